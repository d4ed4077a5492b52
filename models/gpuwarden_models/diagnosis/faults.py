"""What can slow a job down, as a change of parts; and what each fault is called in the truth."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from gpuwarden_models.diagnosis.plant import GPUS, MOUNTS, Ints, Parts, Site, Work
from gpuwarden_verdict.diagnosis.kinds import CulpritKind


@dataclass(frozen=True, slots=True)
class Truth:
    """One cause: what an answer must name."""

    kind: CulpritKind
    entity: str


@dataclass(frozen=True, slots=True)
class Fault:
    """One cause, and how it changes the parts from its onset on."""

    truth: Truth
    change: Callable[[Parts], None]


def _node(site: Site, row: int) -> str:
    return f"n{row + 1:03d}"


def _any_node(work: Work, rng: np.random.Generator) -> int:
    return int(rng.choice(work.nodes))


def _gpu(site: Site, work: Work, rng: np.random.Generator) -> Fault:
    node, index = _any_node(work, rng), int(rng.integers(GPUS))
    row, way = node * GPUS + index, int(rng.integers(4))
    slower, lanes = float(rng.uniform(0.5, 0.92)), float(rng.choice([2.0, 4.0, 8.0]))

    def change(parts: Parts) -> None:
        if way == 0:
            parts.clock[row] = slower
        elif way == 1:
            parts.clock[row], parts.heat[row] = slower, 1.2 * (1.0 - slower) + 0.1
        elif way == 2:
            parts.watts_limit[row], parts.clock[row] = 700.0 * slower**2, slower
        else:
            parts.lanes[row] = lanes

    return Fault(Truth(CulpritKind.GPU, f"GPU-{_node(site, node)}-{index}"), change)


def _host(site: Site, work: Work, rng: np.random.Generator) -> Fault:
    node, left, hangs = _any_node(work, rng), float(rng.uniform(0.2, 0.7)), rng.random() < 0.4

    def change(parts: Parts) -> None:
        parts.cpu[node], parts.stuck[node] = left, float(hangs)

    return Fault(Truth(CulpritKind.HOST, _node(site, node)), change)


def _nic(site: Site, work: Work, rng: np.random.Generator) -> Fault:
    node, index = _any_node(work, rng), int(rng.integers(GPUS))
    row, share, trains = node * GPUS + index, float(rng.uniform(0.15, 0.5)), rng.random() < 0.4
    lost = float(10 ** rng.uniform(0.6, 2.5))

    def change(parts: Parts) -> None:
        parts.link[row] = share
        if trains:
            parts.trained[row] = 0.25 if share < 0.3 else 0.5
        else:
            parts.lost[row] = lost

    return Fault(Truth(CulpritKind.NIC, f"{_node(site, node)}/mlx5_{index}/1"), change)


def _rail(site: Site, work: Work, rng: np.random.Generator) -> Fault:
    index, share = int(rng.integers(GPUS)), float(rng.uniform(0.15, 0.4))
    jam, lost = float(rng.uniform(6, 25)), float(10 ** rng.uniform(0.5, 2.2))
    rows = np.arange(site.nodes) * GPUS + index
    hit = rows[rng.random(rows.size) < rng.uniform(0.75, 1.0)]

    def change(parts: Parts) -> None:
        parts.link[rows], parts.jam[rows], parts.lost[hit] = share, jam, lost

    return Fault(Truth(CulpritKind.NIC, f"rail:{index}"), change)


def _leaf(site: Site, work: Work, rng: np.random.Generator) -> Fault:
    leaf = int(rng.choice(np.unique(site.leaf[work.nodes])))
    return _switch(site, np.flatnonzero(site.leaf == leaf), f"leaf:l{leaf}", rng)


def _fabric(site: Site, work: Work, rng: np.random.Generator) -> Fault:
    return _switch(site, np.arange(site.nodes), "fleet:", rng)


def _switch(site: Site, nodes: Ints, entity: str, rng: np.random.Generator) -> Fault:
    rows = (nodes[:, None] * GPUS + np.arange(GPUS)).ravel()
    share, jam = float(rng.uniform(0.12, 0.4)), float(rng.uniform(6, 30))
    lost, loses = float(10 ** rng.uniform(0.5, 2.0)), rng.random() < 0.7
    hit = rows[rng.random(rows.size) < rng.uniform(0.6, 1.0)]

    def change(parts: Parts) -> None:
        parts.link[rows] *= share
        parts.jam[rows] = jam
        if loses:
            parts.lost[hit] = lost

    return Fault(Truth(CulpritKind.FABRIC, entity), change)


def _disk(site: Site, work: Work, rng: np.random.Generator) -> Fault:
    node, slower = _any_node(work, rng), float(rng.uniform(15, 120))

    def change(parts: Parts) -> None:
        parts.disk[node] = slower

    return Fault(Truth(CulpritKind.DISK, f"{_node(site, node)}/nvme0n1"), change)


def _client(site: Site, work: Work, rng: np.random.Generator) -> Fault:
    node, added = _any_node(work, rng), float(rng.uniform(0.08, 0.6))
    lost = float(rng.uniform(0.03, 0.15)) if rng.random() < 0.6 else 0.0

    def change(parts: Parts) -> None:
        parts.client_s[node], parts.client_lost[node] = added, lost

    return Fault(Truth(CulpritKind.MOUNT_CLIENT, f"{_node(site, node)}/{MOUNTS[0]}"), change)


def _server(site: Site, work: Work, rng: np.random.Generator) -> Fault:
    share, onset = float(rng.uniform(0.02, 0.2)), _many(site, rng)
    lost = float(rng.uniform(0.02, 0.08)) if rng.random() < 0.25 else 0.0

    def change(parts: Parts) -> None:
        parts.server, parts.server_from = share, onset
        if not onset:
            parts.server_lost = lost

    return Fault(Truth(CulpritKind.STORAGE, f"mount:{MOUNTS[0]}"), change)


def _credits(site: Site, work: Work, rng: np.random.Generator) -> Fault:
    share, onset = float(rng.uniform(0.02, 0.2)), _many(site, rng)

    def change(parts: Parts) -> None:
        parts.credits, parts.server_from = share, onset

    return Fault(Truth(CulpritKind.STORAGE, f"mount:{MOUNTS[0]}"), change)


def _many(site: Site, rng: np.random.Generator) -> int:
    """Clients from which it stalls: now and then only under many."""
    largest = max(work.nodes.size for work in site.works)
    return int(largest * rng.uniform(0.4, 0.9)) if rng.random() < 0.5 else 0


FAULTS: Mapping[str, Callable[[Site, Work, np.random.Generator], Fault]] = MappingProxyType(
    {
        "gpu": _gpu,
        "host": _host,
        "nic": _nic,
        "rail": _rail,
        "leaf": _leaf,
        "fabric": _fabric,
        "disk": _disk,
        "mount_client": _client,
        "storage_server": _server,
        "storage_rpc": _credits,
    }
)
"""Faults of the plant by name."""
