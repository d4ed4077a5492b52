from __future__ import annotations

import numpy as np
import pytest

from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.memory import WAITING_KEPT_S, MemoryFormError, SweepMemory
from gpuwarden_verdict.windows import FleetState
from gpuwarden_wire.metrics import EntityKind

GPU = EntityKind.GPU


def fleet_of(*nodes: str, gpus: int = 2) -> FleetState:
    state = FleetState()
    for node in nodes:
        for number in range(gpus):
            state.register(EntityRef(GPU, f"GPU-{node}-{number}", node))
    return state


def kept(memory: SweepMemory, state: FleetState) -> dict[str, float]:
    view = state.view(GPU)
    plane = memory.plane(view, "heat", "held", -1.0)
    return {ref.key: float(plane[row]) for row, ref in enumerate(view.refs)}


def marked(state: FleetState) -> SweepMemory:
    """A memory that holds 10, 11, ... for the GPUs of a fleet."""
    memory = SweepMemory()
    plane = memory.plane(state.view(GPU), "heat", "held", -1.0)
    plane[:] = 10.0 + np.arange(plane.size)
    return memory


def test_planes_follow_entities_that_come_go_and_move() -> None:
    state = fleet_of("a", "b", "c")
    memory = marked(state)
    state.register(EntityRef(GPU, "GPU-d-0", "d"))
    assert kept(memory, state) == {
        **{f"GPU-{node}-{n}": 10.0 + 2 * at + n for at, node in enumerate("abc") for n in (0, 1)},
        "GPU-d-0": -1.0,
    }
    state.retire_node("a")
    state.register(EntityRef(GPU, "GPU-b-1", "d"))  # the part moved: it takes along what is known
    found = kept(memory, state)
    assert found["GPU-b-1"] == 13.0
    assert found["GPU-c-0"] == 14.0
    assert "GPU-a-0" not in found
    state.register(EntityRef(GPU, "GPU-a-0", "a"))
    assert kept(memory, state)["GPU-a-0"] == -1.0


def test_a_plane_is_the_same_array_while_nothing_changes_even_over_snapshots() -> None:
    state = fleet_of("a")
    memory = marked(state)
    first = memory.plane(state.snapshot().view(GPU), "heat", "held")
    assert memory.plane(state.snapshot().view(GPU), "heat", "held") is first
    assert memory.plane(state.view(EntityKind.NIC), "heat", "held").size == 0


def test_planes_and_tables_survive_as_bytes_in_whatever_order_entities_come_back() -> None:
    memory = marked(fleet_of("a", "b"))
    memory.table("heat", "limit", "H100", 2)[:] = [4.0, 5.0]
    assert memory.elapsed_s("heat", 100.0) == 0.0
    restored = SweepMemory.imported(memory.export())
    state = fleet_of("b")
    assert kept(restored, state) == {"GPU-b-0": 12.0, "GPU-b-1": 13.0}
    state.register(EntityRef(GPU, "GPU-a-1", "a"))
    assert kept(restored, state)["GPU-a-1"] == 11.0
    assert restored.table("heat", "limit", "H100", 2).tolist() == [4.0, 5.0]
    assert np.isnan(restored.table("heat", "limit", "H100", 3)).all()
    assert restored.elapsed_s("heat", 107.0) == 7.0
    assert restored.elapsed_s("heat", 90.0) == 0.0


def test_what_has_not_come_back_yet_survives_a_second_export() -> None:
    memory = marked(fleet_of("a", "b"))
    memory.plane(fleet_of("a", "b").view(GPU), "blind", "base", 0.0, np.float64)[:] = 7.0
    never_swept = SweepMemory.imported(memory.export())
    restored = SweepMemory.imported(never_swept.export())
    state = fleet_of("b")
    assert kept(restored, state) == {"GPU-b-0": 12.0, "GPU-b-1": 13.0}
    again = SweepMemory.imported(restored.export())
    state.register(EntityRef(GPU, "GPU-a-1", "a"))
    assert kept(again, state) == {"GPU-b-0": 12.0, "GPU-b-1": 13.0, "GPU-a-1": 11.0}
    base = again.plane(state.view(GPU), "blind", "base", 0.0, np.float64)
    assert base.tolist() == [7.0, 7.0, 7.0]


def test_what_waits_follows_its_node_to_another_name() -> None:
    state = FleetState()
    state.register(EntityRef(EntityKind.NIC, "a/eth0", "a"))
    memory = SweepMemory()
    memory.plane(state.view(EntityKind.NIC), "heat", "held")[:] = 3.0
    restored = SweepMemory.imported(memory.export())
    restored.rename_node("a", "z")
    renamed = FleetState()
    renamed.register(EntityRef(EntityKind.NIC, "z/eth0", "z"))
    again = SweepMemory.imported(restored.export())
    assert again.plane(renamed.view(EntityKind.NIC), "heat", "held").tolist() == [3.0]


def test_a_retired_entity_is_not_exported_however_it_was_imported() -> None:
    restored = SweepMemory.imported(marked(fleet_of("a", "b")).export())
    state = fleet_of("a", "b")
    assert kept(restored, state)["GPU-a-0"] == 10.0
    state.retire_node("a")
    assert set(kept(restored, state)) == {"GPU-b-0", "GPU-b-1"}
    for memory in (restored, SweepMemory.imported(restored.export())):
        assert kept(memory, fleet_of("a", "b"))["GPU-a-0"] == -1.0


def test_what_nobody_claims_is_forgotten_in_the_end() -> None:
    memory = marked(fleet_of("a", "b"))
    memory.elapsed_s("heat", 0.0)
    for at in (0.6, 1.1):
        memory = SweepMemory.imported(memory.export())
        assert "GPU-b-0" in kept(memory, fleet_of("b"))
        memory.elapsed_s("heat", at * WAITING_KEPT_S)
    found = kept(SweepMemory.imported(memory.export()), fleet_of("a", "b"))
    assert (found["GPU-a-0"], found["GPU-b-0"]) == (-1.0, 12.0)


@pytest.mark.parametrize(
    "blob", [b"", b"nonsense", b"GWSM" + bytes(12), marked(fleet_of("a")).export()[:-1]]
)
def test_bytes_that_are_no_memory_are_refused_with_the_mend(blob: bytes) -> None:
    with pytest.raises(MemoryFormError, match="delete it"):
        SweepMemory.imported(blob)
