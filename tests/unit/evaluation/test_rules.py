"""Rule sets of others on small frames."""

from __future__ import annotations

import numpy as np

from gpuwarden_models.backtest.naming import Name
from gpuwarden_models.evaluation.rules.absence import AbsenceRules
from gpuwarden_models.evaluation.rules.catalogue import CatalogueRules
from gpuwarden_models.evaluation.rules.contract import RuleSet
from gpuwarden_models.evaluation.rules.open_rules import OpenRules
from gpuwarden_models.frames import Frame, FrameTable, NodeEvent
from gpuwarden_wire.events import Event, EventKind
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.schema import schema_for

NODES = ("n0", "n1", "n2")
GPU = schema_for(
    EntityKind.GPU,
    ["gpu_temperature_celsius", "gpu_row_remap_failure", "gpu_ecc_uncorrected_volatile_total"],
)
NODE = schema_for(EntityKind.NODE, ["node_processes_running", "node_interrupts_total"])


def frame(
    minute: float,
    gpus: dict[str, list[float]] | None = None,
    nodes: dict[str, list[float]] | None = None,
    events: tuple[NodeEvent, ...] = (),
    quiet: tuple[int, ...] = (),
) -> Frame:
    tables = (_table(GPU, ("g0", "g1", "g2"), gpus or {}, quiet), _table(NODE, NODES, nodes or {}))
    return Frame(60.0 * minute, NODES, ("b",) * 3, tables, events)


def _table(
    schema: object,
    keys: tuple[str, ...],
    given: dict[str, list[float]],
    quiet: tuple[int, ...] = (),
) -> FrameTable:
    assert isinstance(schema, type(GPU))
    values = np.array([given.get(one.name, [0.0] * 3) for one in schema.columns])
    reported = np.ones(3, np.bool_)
    reported[list(quiet)] = False
    return FrameTable(schema, keys, keys, np.arange(3), values, reported)


def told(rules: RuleSet, *frames: Frame) -> set[tuple[str, str]]:
    return {(one.name.entity, one.rule) for each in frames for one in rules.look(each)}


def xid(code: int) -> NodeEvent:
    event = Event(
        id=f"x{code}",
        kind=EventKind.KERNEL_LOG,
        observed_at=30.0,
        entity_kind=EntityKind.GPU,
        entity="g1",
        xid=code,
    )
    return NodeEvent("n1", "b", event)


def test_the_catalogue_has_a_rule_a_code_and_one_a_hard_state() -> None:
    rules = CatalogueRules()
    found = told(
        rules,
        frame(0),
        frame(
            1,
            {
                "gpu_row_remap_failure": [1.0, 0.0, 0.0],
                "gpu_ecc_uncorrected_volatile_total": [0.0, 0.0, 2.0],
            },
            events=(xid(79),),
        ),
    )
    assert found == {
        ("g1", "XID 79"),
        ("g0", "row remap failure"),
        ("g2", "uncorrected ECC error"),
    }


def test_heat_must_last_and_codes_of_programs_share_a_rule() -> None:
    rules = OpenRules()
    hot = {"gpu_temperature_celsius": [88.0, 40.0, 40.0]}
    assert told(rules, frame(0, hot), frame(4, hot)) == set()
    found = told(rules, frame(5, hot, events=(xid(43), xid(119))))
    assert found == {
        ("g0", "die above 85 C"),
        ("g1", "XID restarts the application"),
        ("g1", "XID 119"),
    }


def test_a_node_is_held_against_the_median_of_all() -> None:
    rules = OpenRules()
    busy = {"node_processes_running": [40.0, 0.0, 40.0]}
    found = told(rules, *(frame(minute, nodes=busy) for minute in range(12)))
    assert found == {("n1", "few runnable")}


def test_silence_has_a_rule_a_length() -> None:
    rules = AbsenceRules()
    frames = [frame(minute, quiet=(2,)) for minute in range(7)]
    assert told(rules, frame(-1), *frames) == {
        ("g2", "gpu silent for 1 min"),
        ("g2", "gpu silent for 5 min"),
    }
    assert rules.look(frame(8)) == []


def test_names_are_those_of_labels() -> None:
    (one,) = CatalogueRules().look(frame(1, events=(xid(79),)))
    assert one.name == Name("gpu", "g1", "n1")
    assert one.at == 30.0
