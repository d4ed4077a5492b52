"""How flags stand beside labels: recall, false alarms, and lead beside the rate when healthy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from gpuwarden_models.backtest.flags import Flag
from gpuwarden_models.recording_tables import LabelRow
from gpuwarden_verdict.fusion.gate import poisson_upper

SETTLING_S = 600.0
"""After a fault has ended, its flag may stand for the dwell time without being called false."""
USUAL_WINDOW_S = 3600.0
"""Window of a class none of whose labels has a precursor."""
_DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class LabelOutcome:
    """What became of one label.

    Attributes:
        label: The label.
        flagged_at: When a flag first began within it, or what stood before it was excluded, epoch
            seconds; None never.
        excluded_at: When it was first excluded within it; None never.
        by: "entity" where the flag is the entity's own, "node" where its node was flagged for it,
            "" for none.
        stood_before: Whether a flag that began too early to be of it stood when it came. That one
            finds nothing: it would stand there without the fault too.
    """

    label: LabelRow
    flagged_at: float | None
    excluded_at: float | None
    by: str
    stood_before: bool = False

    @property
    def lead_s(self) -> float | None:
        """How long before action was needed, seconds; None without a flag."""
        return None if self.flagged_at is None else self.label.start - self.flagged_at


@dataclass(frozen=True, slots=True)
class ClassScore:
    """One fault class.

    Attributes:
        labels: Faults that needed action.
        flagged: Of these, flagged before their end.
        excluded: Of these, excluded before their end.
        ahead: Of these, flagged before action was needed.
        median_lead_s: Of those flagged; None for none.
        window_s: Length of the window before a fault in which it counts as ahead.
        healthy_windows: Windows of that length on healthy entities.
        healthy_flagged: Of these, with a flag of this class: what a lead by chance would be.
        false_alarms: Flags of this class that no label explains.
    """

    labels: int
    flagged: int
    excluded: int
    ahead: int
    median_lead_s: float | None
    window_s: float
    healthy_windows: int
    healthy_flagged: int
    false_alarms: int


@dataclass(frozen=True, slots=True)
class Rate:
    """A count over a time at risk, with the exact upper 95 % bound of its rate a day."""

    count: int
    days: float

    @property
    def a_day(self) -> float:
        """Rate a day of one entity; NaN where there was no time."""
        return self.count / self.days if self.days > 0 else float("nan")

    @property
    def bound_a_day(self) -> float:
        """Upper bound of the rate."""
        return poisson_upper(self.count) / self.days if self.days > 0 else float("inf")


@dataclass(frozen=True, slots=True)
class Scores:
    """All figures of a labelled history.

    Attributes:
        outcomes: Of each label that needed action.
        by_class: By fault class.
        false_alarms: Flags that began where no label explains them, over the healthy time of all
            GPUs.
        false_exclusions: Exclusions that began in no fault, over the time of all GPUs in which
            theirs had no fault. What a confounder caused is false here: the GPU was sound.
        confounding: Labels that must not lead to an exclusion.
        confounders_excluded: Of these, such that did.
        confounders_flagged: Of these, such that were shown as suspect.
        not_judged: Labels outside the time that was recorded.
    """

    outcomes: tuple[LabelOutcome, ...]
    by_class: Mapping[str, ClassScore]
    false_alarms: Rate
    false_exclusions: Rate
    confounding: tuple[LabelRow, ...]
    confounders_excluded: int
    confounders_flagged: int
    not_judged: int

    @property
    def confounders(self) -> int:
        """How many labels must not lead to an exclusion."""
        return len(self.confounding)

    @property
    def stood_before(self) -> int:
        """Faults that nothing found, with a flag that began before they may be flagged."""
        return sum(one.stood_before and one.flagged_at is None for one in self.outcomes)

    @property
    def recall(self) -> float:
        """Share of faults in which a flag began; NaN where there is none."""
        hits = sum(one.flagged_at is not None for one in self.outcomes)
        return hits / len(self.outcomes) if self.outcomes else float("nan")


@dataclass(frozen=True, slots=True)
class Watched:
    """What was watched for how long.

    Attributes:
        start: Epoch seconds.
        end: Epoch seconds.
        gpus: Number of GPUs.
        node_of: Node of each GPU by UUID.
        behind: Nodes that stand behind a leaf, a mount or a job, by (kind, name) as in labels.
    """

    start: float
    end: float
    gpus: int
    node_of: Mapping[str, str]
    behind: Mapping[tuple[str, str], frozenset[str]]


def score(flags: Sequence[Flag], labels: Sequence[LabelRow], watched: Watched) -> Scores:
    """Hold flags against labels.

    Args:
        flags: All flags.
        labels: All labels.
        watched: What was watched.
    """
    inside = [one for one in labels if one.start <= watched.end and one.end >= watched.start]
    faults = [one for one in inside if one.action_needed]
    confounders = [one for one in inside if not one.action_needed]
    outcomes = tuple(_outcome(label, flags, watched) for label in faults)
    false = [flag for flag in flags if not _explained(flag, flag.first_flagged_at, inside, watched)]
    days = _healthy_days(inside, watched)
    at_risk = _healthy_days(faults, watched)
    excluded = [
        flag
        for flag in flags
        if (at := flag.first_excluded_at) is not None and not _explained(flag, at, faults, watched)
    ]
    touched = [_begun_in(label, flags, watched) for label in confounders]
    return Scores(
        outcomes=outcomes,
        by_class=_by_class(outcomes, false, days),
        false_alarms=Rate(len(false), days),
        false_exclusions=Rate(len(excluded), at_risk),
        confounding=tuple(confounders),
        confounders_excluded=sum(
            bool(_excluded_in(label, excluded, watched)) for label in confounders
        ),
        confounders_flagged=sum(bool(some) for some in touched),
        not_judged=len(labels) - len(inside),
    )


def _outcome(label: LabelRow, flags: Sequence[Flag], watched: Watched) -> LabelOutcome:
    same = [flag for flag in flags if _is_same(flag, label)]
    around = [flag for flag in flags if _is_around(flag, label, watched)]
    own, wide = _risen_in(label, same), _risen_in(label, around)
    flagged = min(own or wide, default=None)
    excluded = min(_excluded_at(label, (*same, *around)), default=None)
    begin = label.precursor_start
    stood = any(f.first_flagged_at < begin <= f.last_flagged_at for f in (*same, *around))
    by = "entity" if own else "node" if wide else ""
    return LabelOutcome(label, flagged, excluded, by, stood)


def _risen_in(label: LabelRow, flags: Sequence[Flag]) -> list[float]:
    """When flags began within a label, or what stood before it then led to an exclusion."""
    begun = [at for flag in flags if _is_within(at := flag.first_flagged_at, label)]
    return [*begun, *_excluded_at(label, flags)]


def _excluded_at(label: LabelRow, flags: Sequence[Flag]) -> list[float]:
    found = (flag.first_excluded_at for flag in flags)
    return [at for at in found if at is not None and _is_within(at, label)]


def _is_same(flag: Flag, label: LabelRow) -> bool:
    return (flag.name.kind, flag.name.entity) == (label.entity_kind, label.entity)


def _is_around(flag: Flag, label: LabelRow, watched: Watched) -> bool:
    """Whether the flag is of the node that the label's entity sits in, or the other way round."""
    node = _node_of(label, watched)
    if not node:
        return False
    if flag.name.kind == "node":
        return flag.name.entity == node
    return label.entity_kind == "node" and flag.name.node == node


def _node_of(label: LabelRow, watched: Watched) -> str:
    match label.entity_kind:
        case "gpu":
            return watched.node_of.get(label.entity, "")
        case "nic" | "disk":
            return label.entity.partition("/")[0]
        case "node":
            return label.entity
        case _:
            return ""


def _is_within(at: float, label: LabelRow, settling_s: float = 0.0) -> bool:
    return label.precursor_start <= at <= label.end + settling_s


def _begun_in(label: LabelRow, flags: Sequence[Flag], watched: Watched) -> list[Flag]:
    return [flag for flag in flags if _explained(flag, flag.first_flagged_at, [label], watched)]


def _excluded_in(label: LabelRow, flags: Sequence[Flag], watched: Watched) -> list[Flag]:
    return [
        flag
        for flag in flags
        if (at := flag.first_excluded_at) is not None and _explained(flag, at, [label], watched)
    ]


def _explained(flag: Flag, at: float, labels: Sequence[LabelRow], watched: Watched) -> bool:
    """Whether a label speaks of it then; one of a leaf, a mount or a job of what is behind it too.

    What began before it does not become right by standing until it comes.
    """
    for label in labels:
        if not _is_within(at, label, SETTLING_S):
            continue
        behind = watched.behind.get((label.entity_kind, label.entity), frozenset())
        if flag.name.node in behind or _is_same(flag, label) or _is_around(flag, label, watched):
            return True
    return False


def _healthy_days(labels: Iterable[LabelRow], watched: Watched) -> float:
    whole = watched.gpus * (watched.end - watched.start)
    labelled = sum(
        max(0.0, min(one.end + SETTLING_S, watched.end) - max(one.precursor_start, watched.start))
        for one in labels
        if one.entity_kind == "gpu"
    )
    return max(0.0, whole - labelled) / _DAY_S


def _by_class(
    outcomes: Sequence[LabelOutcome], false: Sequence[Flag], healthy_days: float
) -> dict[str, ClassScore]:
    names = {one.label.fault_class.value for one in outcomes}
    names |= {flag.fault_class.value for flag in false}
    return {
        name: _of_class(
            [one for one in outcomes if one.label.fault_class.value == name],
            [flag for flag in false if flag.fault_class.value == name],
            healthy_days,
        )
        for name in sorted(names)
    }


def _of_class(
    outcomes: Sequence[LabelOutcome], false: Sequence[Flag], healthy_days: float
) -> ClassScore:
    leads = [lead for one in outcomes if (lead := one.lead_s) is not None]
    windows = [one.label.start - one.label.precursor_start for one in outcomes]
    window_s = median([one for one in windows if one > 0] or [USUAL_WINDOW_S])
    return ClassScore(
        labels=len(outcomes),
        flagged=len(leads),
        excluded=sum(one.excluded_at is not None for one in outcomes),
        ahead=sum(lead > 0 for lead in leads),
        median_lead_s=median(leads) if leads else None,
        window_s=window_s,
        healthy_windows=int(healthy_days * _DAY_S / window_s),
        healthy_flagged=_windows_touched(false, window_s),
        false_alarms=len(false),
    )


def _windows_touched(false: Sequence[Flag], window_s: float) -> int:
    touched = {
        (flag.name.entity, number)
        for flag in false
        for number in range(
            int(flag.first_flagged_at // window_s), int(flag.last_flagged_at // window_s) + 1
        )
    }
    return len(touched)
