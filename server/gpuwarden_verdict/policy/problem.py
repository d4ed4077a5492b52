"""What is wrong with a policy file."""

from __future__ import annotations


class PolicyError(Exception):
    """A policy that cannot be used.

    Attributes:
        key: Where in the file: "pools[0].cap.max_nodes".
        value: What stands there.
        mend: What to write instead.
    """

    def __init__(self, key: str, value: object, mend: str) -> None:
        super().__init__(f"policy: {key} = {value!r}: {mend}")
        self.key = key
        self.value = value
        self.mend = mend
