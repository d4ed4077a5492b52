"""What mistakes of the learnt score cost the user, and from which probability it should speak."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuwarden_verdict.policy.problem import PolicyError

_KEYS = ("gpu_hour_false_exclusion", "gpu_hour_missed_fault")
_LEAST, _MOST = 1e-3, 1e6


@dataclass(frozen=True, slots=True)
class Costs:
    """What the two kinds of mistake cost; only their ratio matters, so any unit does.

    Attributes:
        gpu_hour_false_exclusion: An hour of a sound GPU that is not used.
        gpu_hour_missed_fault: An hour of a GPU that should not have been used: work that is lost,
            and the other GPUs that wait for it.
    """

    gpu_hour_false_exclusion: float = 1.0
    gpu_hour_missed_fault: float = 1.0

    @property
    def operating_point(self) -> float:
        """Probability from which acting costs less than waiting, strictly between 0 and 1.

        With a calibrated probability p, acting costs (1 - p) x false and waiting p x missed; both
        are equal at false / (false + missed). Equal costs give 0.5.
        """
        false, missed = self.gpu_hour_false_exclusion, self.gpu_hour_missed_fault
        return false / (false + missed)


EQUAL = Costs()
"""What holds where the policy says nothing."""


def parse_costs(tree: object) -> Costs:
    """What a policy file says under `learning`.

    Raises:
        PolicyError: No table, an unknown key, or a cost out of its range.
    """
    if not isinstance(tree, dict):
        raise PolicyError("learning", tree, "write a table [learning]")
    for key in tree:
        if key not in _KEYS:
            mend = f"unknown key; known are {', '.join(_KEYS)}"
            raise PolicyError(f"learning.{key}", tree[key], mend)
    return Costs(**{key: _cost(key, tree) for key in _KEYS if key in tree})


def _cost(key: str, tree: Mapping[str, Any]) -> float:
    value = tree[key]
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not _LEAST <= value <= _MOST:
        mend = f"write what an hour costs, a number from {_LEAST:g} to {_MOST:g}"
        raise PolicyError(f"learning.{key}", value, mend)
    return float(value)
