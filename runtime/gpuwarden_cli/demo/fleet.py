"""The played fleet: the simulator and its wire player, loaded by name."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from gpuwarden_cli.demo.pace import Pace
from gpuwarden_cli.extras import load

NODES = 16
GPUS_PER_NODE = 8
# A seed whose jobs run through the whole story on the nodes it speaks of, without a checkpoint's
# pause: tests/unit/cli holds it to that.
SEED = 4

_SIMULATOR = "gpuwarden_models.simulator"


class Player(Protocol):
    """What the demo uses of `gpuwarden_models.simulator.wire_player.WirePlayer`."""

    def start(self) -> None:
        """Start playing."""
        ...

    def stop(self, drain_s: float = 5.0) -> bool:
        """Stop; True where everything was applied."""
        ...

    def inject(self, fault: Any) -> None:
        """Start a fault with the next frame."""
        ...

    def repair(self, entity: str) -> int:
        """End the faults of an entity."""
        ...

    def event_ids(self) -> tuple[str, ...]:
        """All events made so far."""
        ...

    def acknowledged_event_ids(self) -> frozenset[str]:
        """Events that the server acknowledged."""
        ...

    def counters(self) -> Any:
        """How it goes."""
        ...


@dataclass(frozen=True, slots=True)
class PlayedFleet:
    """A simulation and its player.

    Attributes:
        player: Sends it.
        nodes: Names.
        gpu_uuids: By (node, index).
    """

    player: Player
    nodes: tuple[str, ...]
    gpu_uuids: Mapping[tuple[str, int], str]

    def fail(
        self, fault: str, entity: str, ramp_s: float | None = None, severity: float = 1.0
    ) -> None:
        """Start a fault of the simulator's catalogue.

        Args:
            fault: Its name: row_remap_failure, gpu_off_bus, …
            entity: gpu_uuid, node, or node/device/port.
            ramp_s: Onset to full effect, None for the fault's own.
            severity: Scales the effect; 1 is typical.
        """
        name = load(f"{_SIMULATOR}.story", "FaultName", "all")(fault)
        script = load(f"{_SIMULATOR}.story", "ScriptedFault", "all")
        self.player.inject(script(name, entity, 0.0, ramp_s, severity=severity))


def build_simulation(interval_s: float, start: float, salt: str) -> Any:
    """The demo's fleet as a `Simulation`: 16 nodes of 8 GPUs.

    Args:
        interval_s: Between frames.
        start: Epoch seconds of the first frame.
        salt: Sets the event ids of this run apart from those of every other.
    """
    setting_type = load(f"{_SIMULATOR}.simulation", "Setting", "all")
    setting = setting_type(NODES, GPUS_PER_NODE, SEED, interval_s, start, salt)
    return load(f"{_SIMULATOR}.simulation", "Simulation", "all")(setting)


def node_names() -> tuple[str, ...]:
    """Names of the played nodes, before there are keys to play with."""
    topology = load(f"{_SIMULATOR}.topology", "build_topology", "all")(NODES, GPUS_PER_NODE, SEED)
    return tuple(topology.nodes)


def build_fleet(url: str, keys: Mapping[str, str], pace: Pace) -> PlayedFleet:
    """A fleet that plays to a server from now on, not yet started.

    Args:
        url: Server.
        keys: Agent key by node.
        pace: For the interval.
    """
    simulation = build_simulation(pace.interval_s, time.time(), secrets.token_hex(8))
    player_type = load(f"{_SIMULATOR}.wire_player", "WirePlayer", "all")
    player = player_type(simulation, url, keys.__getitem__, pace.interval_s)
    topology = simulation.topology
    uuids = {(topology.nodes[gpu.node], gpu.index): gpu.gpu_uuid for gpu in topology.gpus}
    return PlayedFleet(player, tuple(topology.nodes), uuids)
