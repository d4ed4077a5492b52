from __future__ import annotations

from threading import Event as StopFlag

import pytest

from gpuwarden_agent.collectors.contract import CollectorError
from gpuwarden_agent.collectors.nvml import NvmlXidFollower
from gpuwarden_agent.collectors.nvml_events import RepeatMerger, xid_event
from gpuwarden_agent.sources.nvml import NvmlSettings
from gpuwarden_agent.sources.nvml_frames import Watch, Xid
from gpuwarden_wire.events import Event, EventKind
from gpuwarden_wire.metrics import EntityKind
from tests.unit.agent_nvml.fake_probe import FakeProbe

SETTINGS = NvmlSettings(boot_id="boot-1")


def xid(code: int = 79, uuid: str = "GPU-1", counter: int = 1) -> Xid:
    return Xid(uuid=uuid, pci_bus_id="0000:1b:00.0", code=code, counter=counter, observed_at=1000.0)


def test_an_xid_becomes_an_event_with_a_natural_id() -> None:
    event = xid_event(xid(counter=42), 1, "boot-1")
    assert event.id == "nvml:boot-1:GPU-1:42"
    assert (event.kind, event.xid, event.entity) == (EventKind.NVML_XID, 79, "GPU-1")
    assert event.pci_bus_id == "0000:1b:00.0"
    assert event.severity == "critical"


def test_an_unknown_xid_is_no_more_than_a_warning() -> None:
    assert xid_event(xid(code=9999), 1, "boot-1").severity == "warning"


def test_an_xid_about_no_gpu_speaks_of_the_node() -> None:
    event = xid_event(Xid(uuid="", pci_bus_id="", code=79, counter=3, observed_at=1.0), 1, "boot-1")
    assert (event.entity_kind, event.entity, event.pci_bus_id) == (EntityKind.NODE, "", None)


def test_the_first_is_handed_over_at_once_and_repeats_as_one() -> None:
    merger = RepeatMerger()
    first, second, third = xid(counter=1), xid(counter=2), xid(counter=3)
    assert merger.take(first, 0.0) == [(first, 1)]
    assert merger.take(second, 1.0) == []
    assert merger.take(third, 4.9) == []
    assert merger.due(4.99) == []
    assert merger.due(5.0) == [(second, 2)]
    assert merger.due(20.0) == []


def test_outside_the_window_each_is_an_event_of_its_own() -> None:
    merger = RepeatMerger()
    assert merger.take(xid(counter=1), 0.0) == [(xid(counter=1), 1)]
    assert merger.take(xid(counter=2), 5.0) == [(xid(counter=2), 1)]


def test_other_codes_and_gpus_are_not_merged() -> None:
    merger = RepeatMerger()
    sent = [xid(79), xid(48), xid(79, uuid="GPU-2")]
    assert [merger.take(one, 0.0) for one in sent] == [[(one, 1)] for one in sent]


def test_no_delivery_is_lost_in_a_storm() -> None:
    merger = RepeatMerger()
    handed = [pair for n in range(1000) for pair in merger.take(xid(31, counter=n), n * 0.02)]
    handed += merger.rest()
    assert sum(count for _, count in handed) == 1000
    assert len(handed) <= 9
    assert len({one.counter for one, _ in handed}) == len(handed)


def test_the_follower_emits_what_comes_and_the_rest_at_its_end() -> None:
    probe, stop = FakeProbe(), StopFlag()
    probe.xids += [xid(counter=1), xid(counter=2), xid(code=48, counter=3)]
    emitted: list[Event] = []

    def emit(events: object) -> None:
        assert isinstance(events, list)
        emitted.extend(events)
        if len(emitted) >= 2:
            stop.set()

    NvmlXidFollower(probe, SETTINGS, clock=lambda: 0.0).follow(emit, stop)
    assert [(event.xid, event.count) for event in emitted] == [(79, 1), (48, 1), (79, 1)]


def test_a_refused_watch_is_own_trouble() -> None:
    probe = FakeProbe()
    probe.watched = Watch(0, 4)
    with pytest.raises(CollectorError) as raised:
        NvmlXidFollower(probe, SETTINGS).follow(lambda events: None, StopFlag())
    assert raised.value.reason == "nvml_events_no_permission"
    assert raised.value.mend


@pytest.mark.parametrize("code", [0, 3, 13, 15])
def test_no_events_on_this_gpu_is_no_trouble(code: int) -> None:
    probe, stop = FakeProbe(), StopFlag()
    probe.watched = Watch(0, code)
    probe.xids.append(xid())
    NvmlXidFollower(probe, SETTINGS).follow(lambda events: stop.set(), stop)
