"""What the policy says of spares: the key `standby` of a pool."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from gpuwarden_verdict.policy.problem import PolicyError

WEEK_S = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class StandbyRules:
    """How nodes of a pool are replaced.

    Attributes:
        promote: Whether an exclusion that comes into force leases a spare in the same transaction.
        proof_s: A spare whose last passed check is older than this is never taken, seconds.
        lease_s: How long a lease holds, seconds; 0: until it is released.
    """

    promote: bool = False
    proof_s: float = WEEK_S
    lease_s: float = 0.0


NO_PROMOTION = StandbyRules()
"""What holds where the policy says nothing."""
_LIMITS = {"proof_s": (60.0, math.inf), "lease_s": (0.0, math.inf)}


def parse_standby(where: str, tree: object) -> StandbyRules:
    """What a pool says under `standby`.

    Args:
        where: Name of the key, for errors.
        tree: Its value.

    Raises:
        PolicyError: No table, an unknown key, or a value out of its range.
    """
    if not isinstance(tree, dict):
        raise PolicyError(where, tree, "write a table, such as { promote = true }")
    read: dict[str, Any] = {}
    for key, value in tree.items():
        if key == "promote":
            if not isinstance(value, bool):
                raise PolicyError(f"{where}.promote", value, "write true or false")
            read[key] = value
        elif key in _LIMITS:
            read[key] = _seconds(f"{where}.{key}", value, *_LIMITS[key])
        else:
            mend = "unknown key; known are promote, proof_s, lease_s"
            raise PolicyError(f"{where}.{key}", value, mend)
    return StandbyRules(**read)


def _seconds(where: str, value: Any, least: float, most: float) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not least <= value <= most:
        raise PolicyError(where, value, f"write seconds, a number of at least {least:g}")
    return float(value)
