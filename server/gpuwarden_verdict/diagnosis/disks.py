"""A local disk that answers slowly while those of other nodes do not."""

from __future__ import annotations

import numpy as np

from gpuwarden_verdict.diagnosis.domain import Acquittal, Culprit, CulpritKind, Layer, Scale
from gpuwarden_verdict.diagnosis.robust import mean, over, peers, quantile, together
from gpuwarden_verdict.diagnosis.scene import Finding, Scene
from gpuwarden_verdict.diagnosis.signs import Sign, find_signs
from gpuwarden_verdict.diagnosis.window import Floats, Ints, Window
from gpuwarden_wire.metrics import EntityKind

_ASKED = 1.0
"""Requests a second from which their time means something."""


def find_disks(scene: Scene) -> Finding:
    """Disks that hold their job up."""
    rows = scene.rows(EntityKind.DISK)
    strip = scene.window.strip(EntityKind.DISK)
    names = tuple(f"disk {strip.keys[row]}" for row in rows.tolist())
    found = find_signs(scene, _signs(scene.window, rows), names, scene.phases.running)
    culprits = []
    for place, seen in found.items():
        if all(one.sign.name == "busy_share" for one in seen):
            continue  # a disk that works is no slow disk
        chain = sorted((one.evidence for one in seen), key=lambda one: -one.strength)
        culprits.append(
            Culprit(
                kind=CulpritKind.DISK,
                entity=strip.keys[rows[place]],
                node=scene.window.nodes[strip.node[rows[place]]],
                layer=Layer.NONE,
                score=together([one.strength for one in chain]),
                run=max(seen, key=lambda one: one.evidence.strength).run,
                evidence=tuple(chain),
                hit=scene.node_names,
                scale=Scale(
                    1,
                    scene.job.nodes.size,
                    f"one of {rows.size} disks on the job's nodes",
                ),
            )
        )
    return Finding(tuple(culprits), _acquittal(scene, rows))


def seconds_each(window: Window, rows: Ints) -> Floats:
    """Mean time of a request, seconds, shape (disks, steps); NaN where few were asked."""

    def read(metric: str) -> Floats:
        return window.metric(EntityKind.DISK, metric)[rows]

    asked = read("disk_reads_completed_total") + read("disk_writes_completed_total")
    took = read("disk_read_seconds_total") + read("disk_write_seconds_total")
    return np.where(asked >= _ASKED, over(took, asked), np.nan)


def _signs(window: Window, rows: Ints) -> list[Sign]:
    each = seconds_each(window, rows)
    others = peers(each)
    slower = np.where(each >= 2e-3, np.log2(np.maximum(over(each, others), 1e-9)), 0.0)
    slower = np.where(np.isfinite(each), slower, np.nan)
    busy = window.metric(EntityKind.DISK, "disk_io_seconds_total")[rows]
    busy_peers = peers(busy)
    broken = 60.0 * window.metric(EntityKind.DISK, "disk_media_errors_total")[rows]
    return [
        Sign(
            "seconds_a_request",
            Layer.NONE,
            slower,
            1.5,
            4.0,
            0.8,
            "a request of {entity} takes {own:.3g} s, on its peers {others:.3g}",
            each,
            others,
        ),
        Sign(
            "busy_share",
            Layer.NONE,
            busy - busy_peers,
            0.4,
            0.8,
            0.3,
            "{entity} is busy {own:.0%} of the time, its peers {others:.0%}",
            busy,
            busy_peers,
        ),
        Sign(
            "media_errors_per_minute",
            Layer.NONE,
            broken,
            0.05,
            1.0,
            0.5,
            "{entity} has {own:.2g} unreadable blocks a minute",
            broken,
            broken,
        ),
    ]


def _acquittal(scene: Scene, rows: Ints) -> Acquittal:
    each = seconds_each(scene.window, rows)[:, scene.first :]
    busy = scene.window.metric(EntityKind.DISK, "disk_io_seconds_total")[rows][:, scene.first :]
    if not np.isfinite(busy).any():
        return Acquittal("local disks", "no disk was read", read=False)
    typical = quantile(each, 0.5, 1)
    worst = float(np.nanmax(typical)) if np.isfinite(typical).any() else float("nan")
    slow = f"; the slowest takes {worst * 1e3:.2g} ms a request" if worst == worst else ""
    mean_busy = mean(busy)
    return Acquittal(
        "local disks", f"{rows.size} disks were read, busy {mean_busy:.0%}{slow}", read=True
    )
