"""Pages of exporters put together from remote write's samples."""

from __future__ import annotations

from collections.abc import Iterable
from math import isnan

import pytest

from gpuwarden_exporters.gathering import meaning_of
from gpuwarden_server.doors.naming import gpu_of, node_of, slot_of
from gpuwarden_server.doors.targets import Look, Series, Target, TargetMarks
from gpuwarden_server.doors.telling import NodeTelling
from gpuwarden_wire.events import EventKind
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import Unavailable
from tests.builders.dcgm import OTHER_UUID, UUID, DcgmGpu, dcgm_text
from tests.builders.remote_write import STALE, scraped

T0 = 1_700_000_000.0
NUMBERS: dict[str, float | str] = {
    "DCGM_FI_DEV_GPU_TEMP": 41,
    "DCGM_FI_DEV_POWER_USAGE": 300,
    "DCGM_FI_DEV_XID_ERRORS": 0,
}


class Page:
    """A target and the samples that come to it."""

    def __init__(self, marks: TargetMarks | None = None) -> None:
        self.target = Target("dcgm/node-1:9400", marks)
        self._series: dict[str, Series] = {}

    def put(self, at: float, numbers: dict[str, float | str], **labels: str) -> None:
        for pairs, samples in scraped(dcgm_text([DcgmGpu(numbers=numbers)]), at, **labels):
            named = dict(pairs)
            key = str(sorted(named.items()))
            meaning = meaning_of(named.pop("__name__"), named)
            series = self._series.setdefault(key, Series(self.target, meaning))
            for when, number in samples:
                # the marker is a NaN of its own, which text does not have
                self.target.put(series, round(when * 1000), STALE if isnan(number) else number)

    def look(self, at: float, numbers: dict[str, float | str], **labels: str) -> Look:
        self.put(at, numbers, **labels)
        return self.target.look()


def xids(look: Look) -> list[tuple[int, int]]:
    return [(news.code, number) for news, number in look.xids]


def test_a_page_reads_as_the_exporters_text_does() -> None:
    look = Page().look(T0, NUMBERS)
    assert look.at == T0
    row = look.rows[EntityKind.GPU][UUID]
    assert (row["gpu_temperature_celsius"], row["gpu_power_watts"]) == (41.0, 300.0)
    assert look.gpus[UUID].pci_bus_id == "0000:1b:00.0"
    ((table, schema),) = look.tables()
    assert table.entities == (UUID,) and schema.entity_kind is EntityKind.GPU


def test_a_page_is_due_once_as_many_samples_came_as_last_time() -> None:
    page = Page()
    page.put(T0, NUMBERS)
    due = [page.target.is_due]  # nobody knows yet how many samples there are
    page.target.look()
    page.put(T0 + 15, {"DCGM_FI_DEV_GPU_TEMP": 42})
    due.append(page.target.is_due)
    assert page.target.is_next(round((T0 + 30) * 1000))
    page.put(T0 + 15, {"DCGM_FI_DEV_POWER_USAGE": 300, "DCGM_FI_DEV_XID_ERRORS": 0})
    due.append(page.target.is_due)
    assert due == [False, False, True]
    assert page.target.look().rows[EntityKind.GPU][UUID]["gpu_temperature_celsius"] == 42.0


def test_what_ended_is_missing_with_a_reason() -> None:
    page = Page()
    page.look(T0, NUMBERS)
    row = page.look(T0 + 15, {"DCGM_FI_DEV_GPU_TEMP": STALE}).rows[EntityKind.GPU][UUID]
    assert row["gpu_temperature_celsius"] == Unavailable("not_in_exporter")
    assert row["gpu_power_watts"] == 300.0
    late = page.look(T0 + 400, {"DCGM_FI_DEV_GPU_TEMP": 43}).rows[EntityKind.GPU][UUID]
    assert late["gpu_temperature_celsius"] == 43.0
    assert late["gpu_power_watts"] == Unavailable("not_in_exporter")  # for too long nothing came


def test_a_sample_that_is_not_newer_says_nothing() -> None:
    page = Page()
    page.look(T0, NUMBERS)
    page.put(T0, {"DCGM_FI_DEV_GPU_TEMP": 99})
    page.put(T0 - 5, {"DCGM_FI_DEV_GPU_TEMP": 99})
    assert not page.target.waits


def test_the_cadence_is_learnt() -> None:
    page = Page()
    for number in range(4):
        page.look(T0 + 15.004 * number, NUMBERS)
    assert page.target.interval_s == 15.0


def test_an_xid_is_news_when_it_comes_and_not_while_it_stands() -> None:
    page = Page()
    assert xids(page.look(T0, NUMBERS | {"DCGM_FI_DEV_XID_ERRORS": 31})) == []
    page.put(T0 + 15, {"DCGM_FI_DEV_XID_ERRORS": 79})
    assert page.target.is_due  # at once: it does not wait for the rest of its scrape
    assert xids(page.target.look()) == [(79, 1)]
    assert xids(page.look(T0 + 30, NUMBERS | {"DCGM_FI_DEV_XID_ERRORS": 79})) == []
    assert xids(page.look(T0 + 45, NUMBERS | {"DCGM_FI_DEV_XID_ERRORS": 94})) == [(94, 2)]


def test_two_copies_of_a_scrape_are_one() -> None:
    page = Page()
    page.look(T0, NUMBERS, prometheus_replica="a")
    page.look(T0 + 3, NUMBERS, prometheus_replica="b")
    told = NUMBERS | {"DCGM_FI_DEV_XID_ERRORS": 79, "DCGM_FI_DEV_GPU_TEMP": 50}
    assert xids(page.look(T0 + 15, told, prometheus_replica="a")) == [(79, 1)]
    look = page.look(T0 + 18, told | {"DCGM_FI_DEV_GPU_TEMP": 51}, prometheus_replica="b")
    assert xids(look) == []
    assert look.rows[EntityKind.GPU][UUID]["gpu_temperature_celsius"] == 51.0


def test_a_later_process_goes_on_where_the_earlier_one_was() -> None:
    first = Page()
    first.look(T0, NUMBERS)
    marks = first.look(T0 + 15, NUMBERS | {"DCGM_FI_DEV_XID_ERRORS": 79}).marks
    assert marks is not None
    assert xids(Page(marks).look(T0 + 30, NUMBERS | {"DCGM_FI_DEV_XID_ERRORS": 79})) == []
    assert xids(Page(marks).look(T0 + 30, NUMBERS | {"DCGM_FI_DEV_XID_ERRORS": 95})) == [(95, 2)]
    assert first.look(T0 + 30, NUMBERS | {"DCGM_FI_DEV_XID_ERRORS": 79}).marks is None


def look_at(rows: dict[str, float], at: float, gpus: Iterable[str] = ()) -> Look:
    page = Page().look(at, NUMBERS)
    facts = dict.fromkeys(gpus, page.gpus[UUID])
    return Look(page.target, at, {EntityKind.NODE: {"": rows}}, facts, (), None)


def kinds(events: Iterable[object]) -> list[EventKind]:
    return [event.kind for event in events]  # type: ignore[attr-defined]  # events of ours


def test_another_boot_is_told_and_a_corrected_clock_is_none() -> None:
    telling = NodeTelling("node-1")
    first = telling.events(look_at({"node_uptime_seconds": 1000.0}, T0))
    assert kinds(first) == [EventKind.NODE_BOOT, EventKind.INVENTORY]
    assert first[0].attributes["booted_at"] == T0 - 1000
    assert telling.events(look_at({"node_uptime_seconds": 1012.0}, T0 + 15)) == []
    second = telling.events(look_at({"node_uptime_seconds": 40.0}, T0 + 300))
    assert kinds(second) == [EventKind.NODE_BOOT]
    assert second[0].id != first[0].id and telling.boot_id == f"remote-write:{T0 + 260:.0f}"


def test_the_inventory_is_told_when_it_changes_and_keeps_what_is_named_no_more() -> None:
    telling = NodeTelling("node-1")
    look = Page().look(T0, NUMBERS)
    (event,) = telling.events(look)
    assert event.inventory is not None
    assert [gpu.gpu_uuid for gpu in event.inventory.gpus] == [UUID]
    assert telling.events(look_at({}, T0 + 15)) == []
    (exchanged,) = telling.events(
        Look(
            look.target,
            T0 + 30,
            {},
            {OTHER_UUID: type(look.gpus[UUID])(OTHER_UUID, look.gpus[UUID].pci_bus_id)},
            (),
            None,
        )
    )
    assert exchanged.inventory is not None
    assert [gpu.gpu_uuid for gpu in exchanged.inventory.gpus] == [OTHER_UUID]


@pytest.mark.parametrize(
    ("labels", "node"),
    [
        ({"instance": "gpu-17:9400"}, "gpu-17"),
        ({"instance": "gpu-17.example.org:9100", "Hostname": "gpu-17"}, "gpu-17"),
        ({"node": "gpu-17", "Hostname": "pod-x"}, "gpu-17"),
        ({"instance": "10.0.0.7:9100"}, "10.0.0.7"),
        ({"instance": "[fd00::7]:9100", "hostname": "gpu-17"}, "gpu-17"),
        ({"instance": "a b:9100"}, ""),
        ({}, ""),
    ],
)
def test_the_first_label_that_names_a_node_counts(labels: dict[str, str], node: str) -> None:
    assert node_of(labels, ("node", "Hostname", "hostname", "instance")) == node


def test_a_gpu_is_named_in_any_exporters_way() -> None:
    assert gpu_of({"UUID": UUID}) == gpu_of({"uuid": UUID.removeprefix("GPU-")}) == UUID
    assert gpu_of({"gpu_uuid": "MIG-1"}) == ""
    assert slot_of({"pci_bus_id": "00000000:1B:00.0"}) == "0000:1b:00.0"
