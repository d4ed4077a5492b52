"""What one decision rested on, kept so that it can be judged again. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec

from gpuwarden_verdict.policy.case import EntityCase
from gpuwarden_verdict.policy.document import DecisionMove
from gpuwarden_verdict.policy.guards import PoolLoad

FORM = 1
"""Version of the bytes; raised where an older reader would misread them."""


class SnapshotError(Exception):
    """Bytes that this version cannot read; the message says why."""


@dataclass(frozen=True, slots=True)
class DecisionSnapshot:
    """One entity, judged once.

    Attributes:
        case: The entity and its evidence, as they were judged: the score's gate is in it.
        pool: Name of its pool.
        labels: Labels of its node: by them another policy may put it into another pool.
        loads: What was out in each pool, by name.
        policy_version: Policy that decided.
        model_version: Model whose risk took part, "" for none.
        at: Epoch seconds.
        moves: What followed.
    """

    case: EntityCase
    pool: str
    labels: Mapping[str, str]
    loads: Mapping[str, PoolLoad]
    policy_version: str
    model_version: str
    at: float
    moves: tuple[DecisionMove, ...]


def snapshot_of_case(
    case: EntityCase,
    pool: str,
    labels: Mapping[str, str],
    loads: Mapping[str, PoolLoad],
    judged: tuple[str, float, tuple[DecisionMove, ...]],
) -> DecisionSnapshot:
    """What is kept of a judgement; what no decision rests on is left out.

    Args:
        case: What was judged.
        pool: Name of its pool.
        labels: Of its node.
        loads: By pool.
        judged: Version of the policy, when (epoch seconds), and what followed.
    """
    version, at, moves = judged
    own = {incident.id for incident in case.incidents}
    risk = None if case.risk is None else replace(case.risk, contributions=(), strange=())
    kept = replace(case, risk=risk, storms=case.storms & own)
    model = "" if risk is None else risk.model_version
    return DecisionSnapshot(kept, pool, dict(labels), dict(loads), version, model, at, moves)


def encode_snapshot(snapshot: DecisionSnapshot) -> bytes:
    """Bytes of the present FORM."""
    return zlib.compress(msgspec.msgpack.encode(snapshot), 6)


def decode_snapshot(form: int, body: bytes) -> DecisionSnapshot:
    """A snapshot from its bytes.

    Raises:
        SnapshotError: Of a form that this version does not know, or damaged.
    """
    if form != FORM:
        raise SnapshotError(f"form {form} is of another version of gpuwarden (this reads {FORM})")
    try:
        return _decoder.decode(zlib.decompress(body))
    except (zlib.error, msgspec.MsgspecError) as error:
        raise SnapshotError(f"it cannot be read: {error}") from error


_decoder = msgspec.msgpack.Decoder(DecisionSnapshot)
