from __future__ import annotations

from typing import Any

import pytest

from gpuwarden_verdict.context import NodeContext
from gpuwarden_verdict.detectors import detect_event
from gpuwarden_verdict.detectors.recoveries import detect_recovery
from gpuwarden_verdict.entities import FaultClass, Rung, Severity
from gpuwarden_verdict.signals import RecoveryKind, Signal
from gpuwarden_wire.events import Event, EventKind
from gpuwarden_wire.metrics import EntityKind
from tests.builders.verdict import START, gpu_ref

NODE = NodeContext("n0", "boot-1", booted_at=START - 86400)


def said(kind: EventKind, **facts: Any) -> Event:
    return Event(
        id="c",
        kind=kind,
        observed_at=START,
        entity_kind=EntityKind.GPU,
        entity="GPU-0-0",
        text="sum differs",
        attributes={"plug_in": True, "check": "gemm", **facts},
    )


def signals(event: Event) -> list[Signal]:
    return detect_event(event, gpu_ref(0, 0), NODE)


@pytest.mark.parametrize(
    ("state", "severity", "suspects"),
    [
        ("critical", Severity.ERROR, True),
        ("warning", Severity.WARNING, False),
        (None, Severity.ERROR, True),
        (["critical"], Severity.ERROR, True),
    ],
)
def test_a_plug_in_advises_and_never_acts(
    state: object, severity: Severity, suspects: bool
) -> None:
    (signal,) = signals(said(EventKind.CHECK_FAILED, state=state, fault_class="memory"))
    assert (signal.detector, signal.fault_class) == ("check:gemm", FaultClass.MEMORY)
    assert (signal.severity, signal.max_rung) == (severity, Rung.SUSPECT)
    assert not signal.acts_alone
    assert (signal.score >= 0.3) is suspects  # the least confidence of a suspect
    assert "gemm" in signal.sentence
    assert "sum differs" in signal.sentence


def test_an_odd_class_is_unknown() -> None:
    (signal,) = signals(said(EventKind.CHECK_FAILED, fault_class=["memory"]))
    assert signal.fault_class is FaultClass.UNKNOWN


def test_a_pass_gives_no_signal() -> None:
    assert signals(said(EventKind.CHECK_PASSED, state="ok")) == []


@pytest.mark.parametrize("proves", [True, False, None, "yes"])
def test_outside_of_a_repair_a_pass_clears_its_own_evidence_only(proves: object) -> None:
    event = said(EventKind.CHECK_PASSED, proves_repair=proves)
    (recovery,) = detect_recovery(event, gpu_ref(0, 0), NODE, in_repair=False)
    assert recovery.kind is RecoveryKind.CHECK_PASSED
    assert recovery.detectors == {"check:gemm"}


@pytest.mark.parametrize("proves", [True, False, None, "yes"])
def test_a_repair_is_ended_only_where_the_definition_says_so(proves: object) -> None:
    event = said(EventKind.CHECK_PASSED, proves_repair=proves)
    (recovery,) = detect_recovery(event, gpu_ref(0, 0), NODE, in_repair=True)
    ends = recovery.kind is RecoveryKind.CHECK_AFTER_REPAIR
    assert ends is (proves is True)
    assert recovery.detectors == (frozenset() if ends else {"check:gemm"})
