"""The policy file: TOML in, a validated document out."""

from __future__ import annotations

from gpuwarden_verdict.policy.document import Mode, PolicyDocument, PoolPolicy


class PolicyError(Exception):
    """A policy that cannot be used. Attributes: key, value (as written), mend."""

    def __init__(self, key: str, value: object, mend: str) -> None:
        super().__init__(f"policy: {key} = {value!r}: {mend}")
        self.key = key
        self.value = value
        self.mend = mend


def parse_policy(text: str, default_mode: Mode = Mode.OBSERVE) -> PolicyDocument:
    """Parse and validate; `default_mode` (GPUWARDEN_MODE) stands in for [defaults] mode."""
    raise NotImplementedError


def pool_of(document: PolicyDocument, node_id: str) -> PoolPolicy:
    """The first pool whose pattern matches; always one, since the last matches all."""
    raise NotImplementedError
