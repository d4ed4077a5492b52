from __future__ import annotations

from math import inf, isnan, nan
from typing import Any, cast

import pytest

from gpuwarden_agent.collectors.contract import CollectorError, Harvest
from gpuwarden_agent.harvest_check import sound
from gpuwarden_wire.events import Inventory
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import NotSupported, Reading, Stale, Unavailable
from gpuwarden_wire.tables import TableMaker
from tests.builders.agent import event

NODE, GPU = EntityKind.NODE, EntityKind.GPU


def of(rows: object, **more: object) -> Any:
    return Harvest(**{"rows": rows, **more})  # type: ignore[arg-type]  # garbage is the point


GARBAGE: dict[str, object] = {
    "none": None,
    "a number": 42,
    "a dict": {"rows": {}},
    "rows none": of(None),
    "rows a list": of([("gpu", {})]),
    "kind a text": of({"gpu": {}}),
    "entities none": of({GPU: None}),
    "key a number": of({GPU: {5: {}}}),
    "key empty": of({GPU: {"": {}}}),
    "key of the node": of({NODE: {"node-1": {}}}),
    "key too long": of({GPU: {"x" * 256: {}}}),
    "key with NUL": of({GPU: {"a\0b": {}}}),
    "row a text": of({GPU: {"GPU-1": "hot"}}),
    "metric a number": of({GPU: {"GPU-1": {7: 1.0}}}),
    "metric with a blank": of({GPU: {"GPU-1": {"gpu power": 1.0}}}),
    "metric with a line end": of({GPU: {"GPU-1": {"gpu_power\n": 1.0}}}),
    "metric too long": of({GPU: {"GPU-1": {"g" * 200: 1.0}}}),
    "too many metrics": of({NODE: {"": {f"m{n}": 1.0 for n in range(2000)}}}),
    "too many entities": of({GPU: {f"G{n}": {} for n in range(5000)}}),
    "events none": of({}, events=None),
    "events a text": of({}, events="xid"),
    "an event about a place": of({}, events=(event(1, entity_kind=EntityKind.PLACE, entity="x"),)),
    "rows of a place": of({EntityKind.PLACE: {"rack:7": {}}}),
    "an event a dict": of({}, events=({"id": "x"},)),
    "inventory a list": of({}, inventory=["GPU-1"]),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_what_is_no_harvest_is_told_as_garbage(name: str) -> None:
    with pytest.raises(CollectorError, match="garbage") as raised:
        sound(GARBAGE[name])
    assert len(raised.value.reason) <= 200


@pytest.mark.parametrize(
    ("reading", "reason"),
    [
        ("41", "not_a_reading"),
        (None, "not_a_reading"),
        ([1.0], "not_a_reading"),
        (object(), "not_a_reading"),
        (Unavailable(cast("str", None)), "not_a_reading"),
        (Unavailable("x" * 300), "not_a_reading"),
        (Stale(nan), "not_a_reading"),
        (10**400, "implausible_value"),
        (-(10**40), "implausible_value"),
        (1e300, "implausible_value"),
        (inf, "implausible_value"),
        (-inf, "implausible_value"),
    ],
)
def test_a_reading_that_is_none_says_so_and_the_others_stay(reading: object, reason: str) -> None:
    row = {"gpu_power_watts": reading, "gpu_temperature_celsius": 41.0}
    found = sound(of({GPU: {"GPU-1": row}}, events=(event(1),)))
    assert found.rows[GPU]["GPU-1"] == {
        "gpu_power_watts": Unavailable(reason),
        "gpu_temperature_celsius": 41.0,
    }
    assert found.events == (event(1),)
    ((table, _),) = TableMaker().tables("nvml", found.rows, 1.0)
    numbers = memoryview(table.f32).cast("f")
    assert sum(map(isnan, numbers)) == 1
    assert [cell.reason for cell in table.missing] == [reason]


@pytest.mark.parametrize(
    "reading",
    [0, 1.5, True, nan, -3, 2**63, Unavailable("io_error"), Stale(4.0), NotSupported()],
)
def test_a_sound_harvest_goes_on_as_it_is(reading: Reading) -> None:
    harvest = Harvest(
        rows={NODE: {"": {"node_load1": reading}}}, events=(event(1),), inventory=Inventory()
    )
    assert sound(harvest) is harvest
