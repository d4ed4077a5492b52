"""What the judge asks about the fleet, read from the directory and from who was heard of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpuwarden_verdict.context import FleetContext, NodeContext, NodePlace, Shortfall
from gpuwarden_verdict.engine.directory import Directory
from gpuwarden_verdict.engine.fleet import (
    GpuRecord,
    NodeRecord,
    expected_of,
    shortfall_of,
)
from gpuwarden_verdict.engine.ports import Presences, Time
from gpuwarden_verdict.engine.presence import Presence
from gpuwarden_verdict.entities import Contact, EntityRef
from gpuwarden_verdict.exclusions import GpuPlace
from gpuwarden_verdict.job_ends import EndBook, JobEnd
from gpuwarden_verdict.policy.guards import Counted, Seat
from gpuwarden_verdict.tuning.rules import NO_TUNING, Tuning
from gpuwarden_wire.events import GpuIdentity
from gpuwarden_wire.metrics import EntityKind


@dataclass(frozen=True, slots=True)
class Patience:
    """How long silence means nothing yet, seconds.

    Attributes:
        silent_after_s: Without a batch, a node is silent.
        gone_after_s: Without one for so long, it counts neither for the breaker nor for its pool's
            size: many that were switched off must not stop the rest from being judged.
    """

    silent_after_s: float
    gone_after_s: float


class FleetFacts:
    """The fleet in the judge's words; callable from any thread."""

    def __init__(
        self, directory: Directory, presences: Presences, clock: Time, patience: Patience
    ) -> None:
        """Make them.

        Args:
            directory: Nodes and GPUs.
            presences: Who was heard of.
            clock: Time.
            patience: How long silence means nothing yet.
        """
        self._directory = directory
        self._presences = presences
        self._clock = clock
        self._patience = patience
        self._retired: Callable[[], frozenset[str]] = frozenset
        self._repaired_at: Callable[[], Mapping[str, float]] = dict
        self._declared: Callable[[], Mapping[str, int]] = dict
        self._node_places: Callable[[Sequence[NodeRecord]], Mapping[str, NodePlace]] = _nowhere
        self._rack_of: Callable[[str], str] = lambda _node_id: ""
        self._pool_of: Callable[[str], str] = lambda _node_id: ""
        self._tuning = NO_TUNING
        self._any_maintenance: Callable[[], bool] = lambda: False
        self._maintenance: Callable[[str], str] = lambda _node_id: ""
        self._diagnosed: Callable[[], Mapping[str, frozenset[str]]] = dict
        self._started_at = clock.monotonic()
        self._booted_at: dict[str, float] = {}
        self._job_ends = EndBook()
        self._end_noted: Callable[[str, JobEnd], None] = _unread

    def note_boots(self, booted_at: Mapping[str, float]) -> None:
        """Take over when nodes booted, epoch seconds by node, as their agents tell."""
        self._booted_at.update(booted_at)

    def rename(self, old: str, new: str) -> None:
        """A node is called `new` from now on."""
        if old in self._booted_at:
            self._booted_at[new] = self._booted_at.pop(old)
        self._job_ends.rename(old, new)

    def note_job_end(self, node_id: str, end: JobEnd) -> None:
        """Take over how a job ended that ran on a node; called in the judge's thread."""
        self._job_ends.note(node_id, end)
        self._end_noted(node_id, end)

    def follow_job_ends(self, noted: Callable[[str, JobEnd], None]) -> None:
        """Tell of each end of a job that is taken over from now on, by node."""
        self._end_noted = noted

    def follow_retired(self, retired: Callable[[], frozenset[str]]) -> None:
        """Ask there from now on who is retired; none before."""
        self._retired = retired

    def follow_repairs(self, repaired_at: Callable[[], Mapping[str, float]]) -> None:
        """Ask there from now on when a GPU's repair ended, epoch seconds by uuid."""
        self._repaired_at = repaired_at

    def follow_declared(self, declared: Callable[[], Mapping[str, int]]) -> None:
        """Ask there from now on how many GPUs the inventory expects, by node."""
        self._declared = declared

    def follow_places(
        self, places: Callable[[Sequence[NodeRecord]], Mapping[str, NodePlace]]
    ) -> None:
        """Ask there from now on where nodes stand."""
        self._node_places = places

    def follow_racks(self, rack_of: Callable[[str], str]) -> None:
        """Ask there from now on for the rack of a node, "" for none that is known."""
        self._rack_of = rack_of

    def follow_maintenance(self, any_now: Callable[[], bool], of: Callable[[str], str]) -> None:
        """Ask there from now on whether any maintenance holds, and which a node is under."""
        self._any_maintenance, self._maintenance = any_now, of

    def follow_diagnosed(self, hit: Callable[[], Mapping[str, frozenset[str]]]) -> None:
        """Ask there from now on which nodes a diagnosed fault hits, by key of the place."""
        self._diagnosed = hit

    def follow_policy(self, pool_of: Callable[[str], str], tuning: Tuning) -> None:
        """Let event detectors know the pool of a node, and what the policy says of them."""
        self._pool_of, self._tuning = pool_of, tuning

    def contact_of(self, node_id: str) -> Contact:
        """Whether a node is heard of.

        A node that was known before this process started has the same time to speak up as any
        other: a restart of ours makes nobody silent.
        """
        if self._directory.node(node_id) is None:
            return Contact.NEVER
        if node_id in self._retired():
            return Contact.RETIRED
        silent = self._is_silent(self._presences.presence(node_id))
        return Contact.SILENT if silent else Contact.LIVE

    def _is_silent(self, presence: Presence | None) -> bool:
        quiet_s = self._quiet_of(presence)
        if presence is None:
            return quiet_s >= self._patience.silent_after_s
        return presence.is_silent(self._patience.silent_after_s, quiet_s)

    def presence(self, node_id: str) -> Presence | None:
        """When the node was last heard of since the start."""
        return self._presences.presence(node_id)

    def node_context(self, node_id: str) -> NodeContext:
        """What an event detector may know of a node, recent events left out."""
        node = self._directory.node(node_id)
        present_last = sorted(self._directory.gpus_of(node_id), key=lambda gpu: gpu.present)
        return NodeContext(
            node_id=node_id,
            boot_id=node.boot_id if node else "",
            booted_at=self._booted_at.get(node_id),
            gpus={gpu.pci_bus_id: _identity(gpu) for gpu in present_last},
            pool=self._pool_of(node_id) if self._tuning.rules else "",
            tuning=self._tuning,
        )

    def job_of(self, ref: EntityRef, at: float) -> str:
        """The job that ran on a GPU at `at` (epoch seconds), or on all GPUs of another's node."""
        if ref.kind is EntityKind.GPU:
            return self._directory.job_at(ref.key, at)
        if ref.kind is EntityKind.PLACE:
            return ""
        gpus = (gpu for gpu in self._directory.gpus_of(ref.node_id) if gpu.present)
        jobs = {self._directory.job_at(gpu.gpu_uuid, at) for gpu in gpus}
        return jobs.pop() if len(jobs) == 1 else ""

    def is_older_boot(self, node_id: str, boot_id: str) -> bool:
        """Whether the node has announced another boot since this one."""
        node = self._directory.node(node_id)
        return node is not None and boot_id != node.boot_id and boot_id in node.boots

    def fleet_context(self, pools: Mapping[str, str]) -> FleetContext:
        """What a sweep may know; `pools` by node id."""
        nodes = self._directory.nodes()
        short = self._directory.short_nodes()
        declared, retired = self._declared(), self._retired()
        heard = self._heard(nodes)
        silent = [n for n, presence in heard.items() if self._is_silent(presence)]
        return FleetContext(
            models={gpu.gpu_uuid: gpu.model for gpu in self._directory.all_gpus()},
            pools=pools,
            gpus_expected={
                **{n.node_id: n.gpus_expected for n in nodes if n.gpus_expected is not None},
                **declared,
            },
            gpus_expected_set=frozenset(n.node_id for n in nodes if n.gpus_expected_set)
            | declared.keys(),
            gpus_declared=frozenset(declared),
            shortfalls={n.node_id: self._lacks(n) for n in nodes if n.node_id in short},
            silent_nodes=frozenset(silent) | retired,
            booted_at=dict(self._booted_at),
            boot_ids={node.node_id: node.boot_id for node in nodes},
            jobs=self._directory.jobs(),
            jobs_began=self._directory.jobs_began(),
            job_ends=self._job_ends.shown(self._clock.now()),
            places=self._node_places(nodes),
            # A restart of ours makes nobody vanish: who was not heard of since is left out.
            silent_since={n: one.last_seen_at for n in silent if (one := heard[n]) is not None},
            unheard=frozenset(n for n, presence in heard.items() if presence is None),
            maintenance=self._maintained(nodes),
            diagnosed=self._diagnosed(),
        )

    def gpus_expected(self, node_id: str) -> int | None:
        """How many GPUs a node should show; None where nobody knows."""
        node = self._directory.node(node_id)
        if node is None:
            return None
        if (declared := self._declared().get(node_id)) is not None:
            return declared
        present = sum(gpu.present for gpu in self._directory.gpus_of(node_id))
        return expected_of(node, present, self._lacks(node))

    def _lacks(self, node: NodeRecord) -> Shortfall:
        gpus = self._directory.gpus_of(node.node_id)
        return shortfall_of(node, gpus, self._directory.departed(node.node_id), self._repaired_at())

    def gpus_in(self, node_id: str) -> list[str]:
        """GPUs that sit in a node, or sat there last."""
        return [gpu.gpu_uuid for gpu in self._directory.gpus_of(node_id)]

    def node_ids(self) -> list[str]:
        """All nodes ever seen, by name."""
        return [node.node_id for node in self._directory.nodes()]

    def census(self) -> Counted:
        """Who counts for guards: not who is retired, or silent for very long."""
        with_gpus = frozenset(gpu.node_id for gpu in self._directory.all_gpus())
        silent = self.silent_nodes()
        gone = frozenset(node_id for node_id in silent if self._is_gone(node_id))
        maintained: frozenset[str] = frozenset()
        if self._any_maintenance():
            maintained = frozenset(self._maintained(self._directory.nodes()))
        return Counted(with_gpus - self._retired() - gone, silent - gone, maintained)

    def seat_of(self, node_id: str) -> Seat:
        """Where a node stands, and the jobs on its GPUs."""
        jobs = self._directory.jobs()
        here = (jobs.get(gpu.gpu_uuid, "") for gpu in self._directory.gpus_of(node_id))
        return Seat(self._rack_of(node_id), frozenset(job for job in here if job))

    def maintenance_of(self, node_id: str) -> str:
        """Under which maintenance a node is, in words; "" for none."""
        return self._maintenance(node_id) if self._any_maintenance() else ""

    def _maintained(self, nodes: Sequence[NodeRecord]) -> Mapping[str, str]:
        if not self._any_maintenance():
            return {}
        return {n.node_id: why for n in nodes if (why := self._maintenance(n.node_id))}

    def silent_nodes(self) -> frozenset[str]:
        """Nodes that are known and not heard of, retired ones left out."""
        heard = self._heard(self._directory.nodes())
        return frozenset(n for n, presence in heard.items() if self._is_silent(presence))

    def _heard(self, nodes: Sequence[NodeRecord]) -> Mapping[str, Presence | None]:
        """When nodes were last heard of, retired ones left out: asked once for each."""
        retired, presence = self._retired(), self._presences.presence
        return {n.node_id: presence(n.node_id) for n in nodes if n.node_id not in retired}

    def _quiet_of(self, presence: Presence | None) -> float:
        quiet_s = self._clock.monotonic() - self._started_at
        return quiet_s if presence is None else min(quiet_s, presence.silent_s)

    def _is_gone(self, node_id: str) -> bool:
        """Of a silent node: a restart of ours must not count it in for another hour."""
        presence = self._presences.presence(node_id)
        unseen_s = 0.0 if presence is None else self._clock.now() - presence.last_seen_at
        return max(self._quiet_of(presence), unseen_s) >= self._patience.gone_after_s

    def place(self, gpu_uuid: str) -> GpuPlace | None:
        """Where one GPU sits."""
        gpu = self._directory.gpu(gpu_uuid)
        return GpuPlace(gpu.pci_bus_id, gpu.gpu_index) if gpu else None


def _unread(node_id: str, end: JobEnd) -> None:
    """Nobody keeps a ledger."""


def _nowhere(nodes: Sequence[NodeRecord]) -> Mapping[str, NodePlace]:
    return {}


def _identity(gpu: GpuRecord) -> GpuIdentity:
    return GpuIdentity(
        gpu_uuid=gpu.gpu_uuid,
        pci_bus_id=gpu.pci_bus_id,
        serial=gpu.serial,
        index=gpu.gpu_index,
        model=gpu.model,
        driver_version=gpu.driver_version,
        vbios_version=gpu.vbios_version,
        nics=gpu.nics,
    )
