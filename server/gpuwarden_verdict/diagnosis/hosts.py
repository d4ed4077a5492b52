"""One node's host: its CPU side starves or hangs while those of its peers do not."""

from __future__ import annotations

import numpy as np

from gpuwarden_verdict.diagnosis.domain import Acquittal, Culprit, CulpritKind, Layer, Scale
from gpuwarden_verdict.diagnosis.robust import mean, middle, over, peers, together
from gpuwarden_verdict.diagnosis.scene import Finding, Scene
from gpuwarden_verdict.diagnosis.signs import Sign, find_signs
from gpuwarden_verdict.diagnosis.window import Floats, Ints
from gpuwarden_wire.metrics import EntityKind


def find_hosts(scene: Scene) -> Finding:
    """Hosts that hold their job up."""
    rows = scene.rows(EntityKind.NODE)
    strip = scene.window.strip(EntityKind.NODE)
    names = tuple(strip.keys[row] for row in rows.tolist())
    read = scene.phases.running & ~scene.phases.resting
    found = find_signs(scene, _signs(scene, rows), names, read)
    culprits = []
    for place, seen in found.items():
        chain = sorted((one.evidence for one in seen), key=lambda one: -one.strength)
        best = max(seen, key=lambda one: one.evidence.strength)
        culprits.append(
            Culprit(
                kind=CulpritKind.HOST,
                entity=names[place],
                node=names[place],
                layer=Layer.NONE,
                score=together([one.strength for one in chain]),
                run=best.run,
                evidence=tuple(chain),
                hit=scene.node_names,
                scale=Scale(
                    1,
                    rows.size,
                    f"one host of {rows.size} in the job",
                ),
            )
        )
    return Finding(tuple(culprits), _acquittal(scene, rows))


def idle_sign(scene: Scene, rows: Ints) -> Sign:
    """Nodes whose GPUs have nothing to do while those of others wait for them in a collective.

    It says at which node the job waits, and not for what.
    """
    used = node_utilization(scene, rows)
    others = peers(used)
    return Sign(
        "gpu_utilization",
        Layer.NONE,
        others - used,
        0.08,
        0.4,
        0.3,
        "the GPUs of {entity} are busy {own:.0%} of the time, those of its peers "
        "{others:.0%}: the job waits for that node",
        used,
        others,
    )


def node_utilization(scene: Scene, rows: Ints) -> Floats:
    """Utilisation of each node's GPUs, shape (nodes, steps)."""
    window = scene.window
    gpus, nodes = window.strip(EntityKind.GPU), window.strip(EntityKind.NODE)
    used = window.metric(EntityKind.GPU, "gpu_utilization_ratio")
    found = [middle(used[gpus.node == nodes.node[row]], 0) for row in rows.tolist()]
    return np.array(found).reshape(rows.size, window.steps)


def _signs(scene: Scene, rows: Ints) -> list[Sign]:
    return [*_pressure_signs(scene, rows), *_kernel_signs(scene, rows)]


def _read(scene: Scene, rows: Ints, metric: str) -> Floats:
    return scene.window.metric(EntityKind.NODE, metric)[rows]


def _pressure_signs(scene: Scene, rows: Ints) -> list[Sign]:
    cpu = _read(scene, rows, "node_pressure_cpu_seconds_total")
    memory = _read(scene, rows, "node_pressure_memory_seconds_total")
    cpus, memories = peers(cpu), peers(memory)
    words = "programs on {entity} wait for %s {own:.0%%} of the time, on its peers {others:.0%%}"
    none, more, short = Layer.NONE, cpu - cpus, memory - memories
    return [
        Sign("cpu_pressure", none, more, 0.1, 0.4, 0.7, words % "a CPU", cpu, cpus),
        Sign("memory_pressure", none, short, 0.05, 0.3, 0.7, words % "memory", memory, memories),
    ]


def _kernel_signs(scene: Scene, rows: Ints) -> list[Sign]:
    ints = _read(scene, rows, "node_interrupts_total")
    switches = _read(scene, rows, "node_context_switches_total")
    ready = _read(scene, rows, "node_processes_running")
    others = [peers(one) for one in (ints, switches, ready)]
    fewer, calmer = 1.0 - over(ints, others[0]), 1.0 - over(switches, others[1])
    more = over(ready, others[2]) - 1.0
    none = Layer.NONE
    took = "{entity} takes {own:.3g} interrupts/s, its peers {others:.3g}"
    changed = "{entity} switches context {own:.3g} times a second, its peers {others:.3g}"
    run = "{entity} has {own:.0f} runnable programs, its peers {others:.0f}"
    return [
        Sign("interrupts", none, fewer, 0.5, 0.9, 0.5, took, ints, others[0]),
        Sign("context_switches", none, calmer, 0.5, 0.9, 0.4, changed, switches, others[1]),
        Sign("runnable", none, more, 1.0, 4.0, 0.3, run, ready, others[2]),
    ]


def _acquittal(scene: Scene, rows: Ints) -> Acquittal:
    cpu = scene.window.metric(EntityKind.NODE, "node_pressure_cpu_seconds_total")[rows]
    ints = scene.window.metric(EntityKind.NODE, "node_interrupts_total")[rows]
    asked = slice(scene.first, None)
    if not (np.isfinite(cpu[:, asked]).any() or np.isfinite(ints[:, asked]).any()):
        return Acquittal("hosts", "neither CPU pressure nor interrupts were read", read=False)
    worst = max((mean(one[asked]) for one in cpu), default=float("nan"))
    most = f"; at most {worst:.1%} of the time waited for a CPU" if worst == worst else ""
    return Acquittal("hosts", f"{rows.size} hosts were read{most}", read=True)
