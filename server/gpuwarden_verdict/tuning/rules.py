"""What the policy says of detectors: off, a limit, an alarm budget; in some pools or in all."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class DetectorRule:
    """One table of a policy about one detector.

    Attributes:
        enabled: False: the detector gives nothing.
        limit: Limit in the unit of the detector's statistic, in place of what was learnt; None for
            none set.
        budget: Alarms a 1,000 GPU-days that its limit is learnt for; None for the detector's own.
        pools: Shell-style patterns of the pools where this holds; () for all.
    """

    enabled: bool = True
    limit: float | None = None
    budget: float | None = None
    pools: tuple[str, ...] = ()

    def holds_in(self, pool: str) -> bool:
        """Whether it speaks of a pool."""
        return not self.pools or any(fnmatchcase(pool, pattern) for pattern in self.pools)

    def matches_any(self, pools: Collection[str]) -> bool:
        """Whether it speaks of one of some pools."""
        return any(self.holds_in(pool) for pool in pools)


_NO_RULE = DetectorRule()


@dataclass(frozen=True, slots=True)
class Tuning:
    """All that a policy says of detectors; nothing by default.

    A detector that tells kinds of evidence apart after a colon ("xid:13") is set as a whole by its
    first word, or one by one.

    Attributes:
        rules: By name of a detector, in file order: the first that speaks of a pool holds there.
    """

    rules: Mapping[str, tuple[DetectorRule, ...]] = field(default_factory=dict)

    def rule(self, detector: str, pool: str) -> DetectorRule:
        """What holds for a detector in a pool."""
        for name in (detector, detector.partition(":")[0]):
            for rule in self.rules.get(name, ()):
                if rule.holds_in(pool):
                    return rule
        return _NO_RULE

    def is_off(self, detector: str, pool: str) -> bool:
        """Whether a detector gives nothing in a pool."""
        return not self.rule(detector, pool).enabled

    def is_off_everywhere(self, detector: str) -> bool:
        """Whether a detector need not run at all."""
        first = self.rules.get(detector, (_NO_RULE,))[0]
        return not first.enabled and not first.pools


NO_TUNING = Tuning()
"""What holds where the policy says nothing of detectors."""
