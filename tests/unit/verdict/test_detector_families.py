"""Every detector that differs from others by data only: the same questions to each of them."""

from __future__ import annotations

import pytest

from gpuwarden_verdict.context import BOOT_GRACE_S
from gpuwarden_verdict.detectors import EVENT_DETECTORS, SWEEP_DETECTORS
from gpuwarden_verdict.detectors.about import Described
from gpuwarden_verdict.detectors.growth import GrowthDetector
from gpuwarden_verdict.detectors.states import StateDetector
from gpuwarden_verdict.entities import FaultClass, Rung, Severity
from gpuwarden_verdict.policy.judgement import SUSPECT_CONFIDENCE
from gpuwarden_verdict.signals import Persistence
from gpuwarden_wire.batches import MissingKind
from gpuwarden_wire.events import EventKind
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.registry import METRIC_BY_NAME
from tests.builders.verdict import START, Fleet, gpu_ref, node_ref

GPU = gpu_ref(0, 0)
STATES = [d for d in SWEEP_DETECTORS if isinstance(d, StateDetector) and d.kind is EntityKind.GPU]
GROWTHS = [d for d in SWEEP_DETECTORS if isinstance(d, GrowthDetector) and d.kind is EntityKind.GPU]


def name_of(detector: object) -> str:
    return str(getattr(detector, "name", detector))


def beyond(detector: StateDetector) -> float:
    return detector.limit


def within(detector: StateDetector) -> float:
    return detector.limit + 1 if detector.below else detector.limit / 2 - 0.1


def holding(detector: StateDetector, value: float | MissingKind, *, at: float = 0.0) -> Fleet:
    """A GPU that reads one value for as long as the detector needs, and 20 s more."""
    fleet = Fleet()
    until = detector.held_s + 20
    for step in range(5):
        read = {detector.metric: value}
        fleet.tell([GPU], at=START + at + until * step / 4, **read)
    fleet.now = START + at + until
    return fleet


@pytest.mark.parametrize("detector", STATES, ids=name_of)
def test_a_state_beyond_its_limit_is_told_and_one_within_is_not(detector: StateDetector) -> None:
    fleet = holding(detector, beyond(detector))
    (signal,) = detector.detect(fleet.state, fleet.fleet_context(), fleet.now)
    assert (signal.entity, signal.detector, signal.score) == (GPU, detector.name, detector.score)
    assert GPU.key in signal.sentence and detector.metric in signal.sentence
    sound = holding(detector, within(detector))
    assert detector.detect(sound.state, sound.fleet_context(), sound.now) == []


@pytest.mark.parametrize("detector", STATES, ids=name_of)
@pytest.mark.parametrize("how", ["silent", "stale", "unsupported", "unavailable"])
def test_what_is_not_read_now_is_neither_told_nor_over(detector: StateDetector, how: str) -> None:
    fleet = holding(detector, beyond(detector))
    if how == "silent":
        fleet.silent.add("n0")
    elif how == "stale":
        fleet.tell([GPU], at=fleet.now + 61, gpu_fan_speed_ratio=0.5)
    else:
        missing = MissingKind.NOT_SUPPORTED if how == "unsupported" else MissingKind.UNAVAILABLE
        fleet.tell([GPU], at=fleet.now + 5, **{detector.metric: missing})
    context = fleet.fleet_context()
    assert detector.detect(fleet.state, context, fleet.now + 61) == []
    assert detector.clears(fleet.state, context, [GPU], fleet.now + 61) == []


@pytest.mark.parametrize("detector", STATES, ids=name_of)
def test_a_state_within_its_limit_again_ends_what_was_told(detector: StateDetector) -> None:
    fleet = holding(detector, beyond(detector))
    assert detector.clears(fleet.state, fleet.fleet_context(), [GPU], fleet.now) == []
    fleet.tell([GPU], at=fleet.now + 5, **{detector.metric: within(detector)})
    (recovery,) = detector.clears(fleet.state, fleet.fleet_context(), [GPU], fleet.now + 5)
    assert (recovery.entity, recovery.detectors) == (GPU, frozenset({detector.name}))


@pytest.mark.parametrize("detector", [d for d in STATES if not d.after_boot], ids=name_of)
def test_links_that_train_after_a_boot_are_no_fault(detector: StateDetector) -> None:
    fleet = holding(detector, beyond(detector))
    fleet.booted_at["n0"] = fleet.now - BOOT_GRACE_S + 1
    assert detector.detect(fleet.state, fleet.fleet_context(), fleet.now) == []


@pytest.mark.parametrize("detector", [d for d in STATES if d.held_s], ids=name_of)
def test_a_state_that_has_just_come_is_not_told_yet(detector: StateDetector) -> None:
    fleet = holding(detector, within(detector))
    for later in (5, 10):
        fleet.tell([GPU], at=fleet.now + later, **{detector.metric: beyond(detector)})
    assert detector.detect(fleet.state, fleet.fleet_context(), fleet.now + 10) == []


def growing(detector: GrowthDetector, metric: str, step: float, *, first: float = 1e6) -> Fleet:
    """A counter that stood at `first` and grows by `step` at each of ten readings, 5 s apart."""
    fleet = Fleet()
    for number in range(11):
        fleet.tell([GPU], at=START + 5 * number, **{metric: first + step * number})
    fleet.now = START + 50
    return fleet


@pytest.mark.parametrize(
    ("detector", "metric"),
    [(d, m) for d in GROWTHS for m in d.metrics],
    ids=name_of,
)
def test_growth_is_told_and_a_standing_count_is_not(detector: GrowthDetector, metric: str) -> None:
    fleet = growing(detector, metric, detector.limit / 9)
    (signal,) = detector.detect(fleet.state, fleet.fleet_context(), fleet.now)
    assert (signal.entity, signal.detector) == (GPU, detector.name)
    assert metric in signal.sentence
    for still in (growing(detector, metric, 0.0), growing(detector, metric, detector.limit / 12)):
        assert detector.detect(still.state, still.fleet_context(), still.now) == []


@pytest.mark.parametrize("detector", GROWTHS, ids=name_of)
def test_a_counter_that_restarts_at_zero_has_not_grown(detector: GrowthDetector) -> None:
    fleet = growing(detector, detector.metrics[0], 0.0)
    fleet.tell([GPU], at=fleet.now + 5, **{detector.metrics[0]: 0.0})
    assert detector.detect(fleet.state, fleet.fleet_context(), fleet.now + 5) == []


@pytest.mark.parametrize("detector", GROWTHS, ids=name_of)
@pytest.mark.parametrize("how", ["silent", "stale", "unsupported"])
def test_growth_that_is_not_read_now_is_neither_told_nor_over(
    detector: GrowthDetector, how: str
) -> None:
    fleet = growing(detector, detector.metrics[0], detector.limit)
    if how == "silent":
        fleet.silent.add("n0")
    elif how == "stale":
        fleet.tell([GPU], at=fleet.now + 61, gpu_fan_speed_ratio=0.5)
    else:
        fleet.tell([GPU], at=fleet.now + 5, **{detector.metrics[0]: MissingKind.NOT_SUPPORTED})
    context = fleet.fleet_context()
    assert detector.detect(fleet.state, context, fleet.now + 61) == []
    assert detector.clears(fleet.state, context, [GPU], fleet.now + 61) == []


@pytest.mark.parametrize("detector", GROWTHS, ids=name_of)
def test_growth_is_over_when_the_counter_has_been_quiet(detector: GrowthDetector) -> None:
    metric = detector.metrics[0]
    fleet = growing(detector, metric, detector.limit)
    last = 1e6 + detector.limit * 10
    assert detector.clears(fleet.state, fleet.fleet_context(), [GPU], fleet.now) == []
    for later in (detector.quiet_s / 2, detector.quiet_s + 5):
        fleet.tell([GPU], at=fleet.now + later, **{metric: last})
    later = fleet.now + detector.quiet_s + 5
    assert detector.detect(fleet.state, fleet.fleet_context(), later) == []
    (recovery,) = detector.clears(fleet.state, fleet.fleet_context(), [GPU], later)
    assert recovery.detectors == {detector.name}


@pytest.mark.parametrize("detector", [d for d in GROWTHS if d.trains], ids=name_of)
def test_what_grew_while_links_trained_is_left_out_also_later(detector: GrowthDetector) -> None:
    metric = detector.metrics[0]
    fleet = growing(detector, metric, detector.limit)
    fleet.booted_at["n0"] = START - 60
    assert detector.detect(fleet.state, fleet.fleet_context(), fleet.now) == []
    later = fleet.now + 2 * BOOT_GRACE_S
    fleet.tell([GPU], at=later, **{metric: 1e6 + detector.limit * 10})
    fleet.tell([node_ref(0)], at=later, node_uptime_seconds=later - START + 60)
    assert detector.detect(fleet.state, fleet.fleet_context(), later) == []


@pytest.mark.parametrize("detector", [*STATES, *GROWTHS], ids=name_of)
def test_score_severity_and_rung_agree(detector: StateDetector | GrowthDetector) -> None:
    if isinstance(detector, GrowthDetector):
        assert detector.score < 0.8  # a counter of corrected or retried things excludes nothing
        assert detector.limit > 0
    elif detector.persistence is Persistence.PART:
        assert detector.severity is Severity.CRITICAL
        assert detector.score > 0.8
    if detector.severity is Severity.WARNING:
        assert detector.score <= 0.6
    if detector.score < SUSPECT_CONFIDENCE:
        assert detector.max_rung is Rung.SUSPECT
    assert detector.fault_class is not FaultClass.APPLICATION


def test_every_detector_describes_itself_by_names_that_there_are() -> None:
    for named in (*EVENT_DETECTORS, *SWEEP_DETECTORS):
        assert isinstance(named, Described)
        about = named.about
        assert about.reads and about.says and about.limit and about.clears
    for detector in SWEEP_DETECTORS:
        assert isinstance(detector, Described)
        names = METRIC_BY_NAME.keys() | set(EventKind)
        assert set(detector.about.reads) <= names, detector.name
        assert detector.name in detector.speaks_for or not detector.speaks_for


def test_names_are_unique() -> None:
    names = [one.name for one in EVENT_DETECTORS] + [one.name for one in SWEEP_DETECTORS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    "metric",
    [
        "gpu_power_cap_seconds_total",  # at the cap in nine samples of ten under load: normal
        "gpu_clock_event_reasons",
        "node_imex_running",  # of no use on a single node
        "gpu_pcie_link_recoveries_total",  # each change of the link's speed is one
        "gpu_nvlink_discards_total",  # congestion
        "gpu_nvlink_remote_errors_total",  # the far end's
    ],
)
def test_what_is_normal_is_read_by_nobody(metric: str) -> None:
    for detector in SWEEP_DETECTORS:
        assert isinstance(detector, Described)
        assert metric not in detector.about.reads
