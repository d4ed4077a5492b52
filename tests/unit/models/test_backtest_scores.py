"""Flags against labels: what is a hit, what is false, and what a lead is worth."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from gpuwarden_models.backtest.flags import Flag
from gpuwarden_models.backtest.naming import Name, name_of
from gpuwarden_models.backtest.scores import SETTLING_S, Watched, score
from gpuwarden_models.recording_tables import LabelRow
from gpuwarden_verdict.entities import EntityRef, FaultClass, Rung
from gpuwarden_wire.metrics import EntityKind

T, HOUR = 1_800_000_000.0, 3600.0
GPU = Name("gpu", "GPU-a", "n1")
WATCHED = Watched(
    start=T,
    end=T + 24 * HOUR,
    gpus=3,
    node_of={"GPU-a": "n1", "GPU-b": "n1", "GPU-c": "n2"},
    behind={("fabric", "l1"): frozenset({"n1", "n2"})},
)


def flag(name: Name, first: float, last: float, rung: Rung = Rung.SUSPECT) -> Flag:
    out = T + first * HOUR if rung >= Rung.EXCLUDE else None
    span = T + first * HOUR, T + last * HOUR
    return Flag(name, FaultClass.BUS, 0.9, rung, rung, span[0], out, span[1], ("why",))


def label(
    kind: str, entity: str, start: float, end: float, *, needed: bool = True, before: float = 0.0
) -> LabelRow:
    at, until = T + start * HOUR, inf if end == inf else T + end * HOUR
    return LabelRow(kind, entity, FaultClass.BUS, at, until, needed, at - before * HOUR)


def test_a_flag_within_precursor_and_end_is_a_hit_with_its_lead() -> None:
    fault = label("gpu", "GPU-a", 10, 12, before=2)
    found = score([flag(GPU, 9, 13, Rung.EXCLUDE)], [fault], WATCHED)
    (outcome,) = found.outcomes
    assert (outcome.by, outcome.lead_s, found.recall) == ("entity", HOUR, 1.0)
    assert found.by_class["bus"].ahead == found.by_class["bus"].excluded == 1
    assert score([flag(GPU, 12.5, 13)], [fault], WATCHED).recall == 0.0
    assert score([], [fault], WATCHED).recall == 0.0


def test_a_flag_that_stood_before_the_precursor_is_false_and_finds_nothing() -> None:
    fault = label("gpu", "GPU-a", 10, 12, before=2)
    early = score([flag(GPU, 2, 13, Rung.EXCLUDE)], [fault], WATCHED)
    (outcome,) = early.outcomes
    assert (outcome.flagged_at, outcome.excluded_at, outcome.lead_s) == (None, None, None)
    assert (early.recall, early.stood_before) == (0.0, 1)
    assert (early.false_alarms.count, early.false_exclusions.count) == (1, 1)
    again = score([flag(GPU, 2, 13), flag(GPU, 9, 13)], [fault], WATCHED)
    assert (again.outcomes[0].lead_s, again.false_alarms.count) == (HOUR, 1), "a fresh one finds it"
    suspect = replace(flag(GPU, 2, 13, Rung.EXCLUDE), first_excluded_at=T + 11 * HOUR)
    then = score([suspect], [fault], WATCHED)
    assert then.outcomes[0].excluded_at == then.outcomes[0].flagged_at == T + 11 * HOUR
    assert (then.false_alarms.count, then.false_exclusions.count) == (1, 0)


def test_a_flag_of_the_node_is_a_hit_that_names_the_node() -> None:
    fault = label("gpu", "GPU-a", 10, inf)
    node = score([flag(Name("node", "n1", "n1"), 11, 12)], [fault], WATCHED)
    assert (node.outcomes[0].by, node.outcomes[0].lead_s) == ("node", -HOUR)
    other = score([flag(Name("gpu", "GPU-b", "n1"), 11, 12)], [fault], WATCHED)
    assert (other.recall, other.false_alarms.count) == (0.0, 1)


def test_what_no_label_explains_is_false_and_its_rate_has_a_bound() -> None:
    late = 12 + SETTLING_S / HOUR
    fault = label("gpu", "GPU-a", 10, 12)
    assert score([flag(GPU, late, 20)], [fault], WATCHED).false_alarms.count == 0
    flags = [flag(GPU, late + 0.1, 20), flag(Name("gpu", "GPU-c", "n2"), 1, 2, Rung.EXCLUDE)]
    found = score(flags, [fault], WATCHED)
    assert (found.false_alarms.count, found.false_exclusions.count) == (2, 1)
    assert found.false_alarms.days == pytest.approx((3 * 24 - 2 - SETTLING_S / HOUR) / 24)
    assert found.by_class["bus"].healthy_flagged == 11, "windows of an hour that a flag touches"
    assert score([], [fault], WATCHED).false_alarms.bound_a_day == pytest.approx(3.0 / 2.91, 0.01)


def test_a_confounder_must_not_lead_to_an_exclusion_and_explains_what_is_behind_it() -> None:
    leaf = label("fabric", "l1", 5, 6, needed=False)
    nic = Name("nic", "n2/mlx5_0", "n2")
    assert score([flag(nic, 5, 6)], [leaf], WATCHED).false_alarms.count == 0
    node = label("node", "n1", 5, 6, needed=False)
    for rung, excluded in ((Rung.SUSPECT, 0), (Rung.EXCLUDE, 1)):
        found = score([flag(GPU, 5, 6, rung)], [node], WATCHED)
        assert (found.confounders, found.confounders_excluded) == (1, excluded)
        assert found.confounders_flagged == 1
    at_once = [node, label("gpu", "GPU-a", 5, 6)]
    assert score([flag(GPU, 5, 6, Rung.EXCLUDE)], at_once, WATCHED).confounders_excluded == 0


RACK = Watched(
    start=T,
    end=T + 24 * HOUR,
    gpus=8,
    node_of={f"GPU-{number}": "n1" for number in range(8)},
    behind={("rack", "r1"): frozenset({"n1"})},
)


@pytest.mark.parametrize(("kind", "entity"), [("node", "n1"), ("rack", "r1"), ("gpu", "GPU-0")])
def test_a_sound_gpu_that_a_confounder_excludes_is_a_false_exclusion(
    kind: str, entity: str
) -> None:
    flags = [flag(Name("gpu", key, "n1"), 5, 6, Rung.EXCLUDE) for key in RACK.node_of]
    capped = score(flags, [label(kind, entity, 5, 6, needed=False)], RACK)
    assert capped.false_exclusions.count == 8
    assert capped.false_exclusions.days == 8.0, "a confounder's time is time at risk"
    assert (capped.confounders_excluded, capped.confounders_flagged) == (1, 1)
    broken = score(flags, [label(kind, entity, 5, 6)], RACK)
    assert broken.false_exclusions.count == (7 if kind == "gpu" else 0)


def test_labels_outside_the_recorded_time_are_counted_and_judged_by_nobody() -> None:
    found = score([], [label("gpu", "GPU-a", 30, 31), label("gpu", "GPU-a", -3, -2)], WATCHED)
    assert (found.not_judged, found.outcomes) == (2, ())
    assert found.recall != found.recall


@pytest.mark.parametrize(
    ("kind", "key", "node", "named"),
    [
        (EntityKind.GPU, "GPU-a", "n1", Name("gpu", "GPU-a", "n1")),
        (EntityKind.NODE, "n1", "n1", Name("node", "n1", "n1")),
        (EntityKind.NIC, "n1/mlx5_0/1", "n1", Name("nic", "n1/mlx5_0", "n1")),
        (EntityKind.DISK, "n1/nvme0n1", "n1", Name("disk", "n1/nvme0n1", "n1")),
        (EntityKind.MOUNT, "n1//scratch", "n1", Name("mount", "/scratch", "n1")),
        (EntityKind.PLACE, "leaf:l1", "", Name("fabric", "l1", "")),
        (EntityKind.PLACE, "job:slurm:47", "", Name("job", "47", "")),
        (EntityKind.PLACE, "rack:r1", "", Name("rack", "r1", "")),
    ],
)
def test_entities_are_called_as_labels_call_them(
    kind: EntityKind, key: str, node: str, named: Name
) -> None:
    assert name_of(EntityRef(kind, key, node)) == named
