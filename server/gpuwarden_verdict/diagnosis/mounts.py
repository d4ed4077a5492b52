"""Clients of a mount as numbers: what a request takes, where its time goes, who asks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuwarden_verdict.diagnosis.robust import one_quantile, over, total
from gpuwarden_verdict.diagnosis.window import Flags, Floats, Ints, Window
from gpuwarden_wire.metrics import EntityKind

_ASKED = 1.0
"""Requests a second from which a client asks, and their time means something."""
_STUCK = 4.0
"""Requests that wait for a slot, from which a client that gets no answer is badly served."""
_QUICK_S, _LEAST_SLOW_S, _TIMES_SLOWER = 0.05, 0.03, 4.0


@dataclass(frozen=True, slots=True, eq=False)
class Clients:
    """All clients of one mount point, arrays of shape (clients, steps) where not said.

    Attributes:
        point: Mount point.
        rows: Rows in the strip of mounts, shape (clients,).
        node: Rows of their nodes, shape (clients,).
        asked: Requests a second.
        seconds: What a request takes in all; NaN where a client asks little.
        answer_s: Of it, the server's and the network's response.
        queue_s: Of it, the wait in the client.
        moved: Bytes a second.
        again: Requests sent again a second.
        timeouts: Major timeouts a second.
        slots: Share of the slots in use.
        backlog: Requests that wait for a slot.
        asking: Who asks.
        usual_s: What a request takes at ease.
        usual_answer_s: What a response takes at ease.
        slow: Who is served badly.
    """

    point: str
    rows: Ints
    node: Ints
    asked: Floats
    seconds: Floats
    answer_s: Floats
    queue_s: Floats
    moved: Floats
    again: Floats
    timeouts: Floats
    slots: Floats
    backlog: Floats
    asking: Flags
    usual_s: float
    usual_answer_s: float
    slow: Flags

    @property
    def limit_s(self) -> float:
        """Time of a request from which a client is served badly."""
        return max(_TIMES_SLOWER * self.usual_s, _LEAST_SLOW_S)

    def best_bytes(self) -> float:
        """What the mount gave at best in one step, bytes a second."""
        return one_quantile(total(self.moved), 0.98)


def mount_points(window: Window) -> tuple[str, ...]:
    """All mount points that were read, sorted."""
    strip = window.strip(EntityKind.MOUNT)
    return tuple(sorted({_point(window, row) for row in range(len(strip.keys))}))


def clients_of(window: Window, point: str) -> Clients:
    """All clients of a mount point."""
    strip = window.strip(EntityKind.MOUNT)
    rows = np.array([r for r in range(len(strip.keys)) if _point(window, r) == point], np.int64)

    def read(metric: str) -> Floats:
        return window.metric(EntityKind.MOUNT, metric)[rows]

    asked, backlog = read("mount_operations_total"), read("mount_backlog_requests")
    enough = asked >= _ASKED
    each = {
        name: np.where(enough, over(read(f"mount_{name}_seconds_total"), asked), np.nan)
        for name in ("execute", "round_trip", "queue")
    }
    past = slice(0, window.first)
    usual, usual_answer = (
        _usual(each[name], past, window.first) for name in ("execute", "round_trip")
    )
    stuck = (np.nan_to_num(asked) < _ASKED) & (np.nan_to_num(backlog) >= _STUCK)
    limit = max(_TIMES_SLOWER * usual, _LEAST_SLOW_S)
    return Clients(
        point=point,
        rows=rows,
        node=strip.node[rows],
        asked=asked,
        seconds=each["execute"],
        answer_s=each["round_trip"],
        queue_s=each["queue"],
        moved=read("mount_read_bytes_total") + read("mount_written_bytes_total"),
        again=read("mount_retransmits_total"),
        timeouts=read("mount_major_timeouts_total"),
        slots=read("mount_slots_in_use_ratio"),
        backlog=backlog,
        asking=enough | stuck,
        usual_s=usual,
        usual_answer_s=usual_answer,
        slow=(np.nan_to_num(each["execute"]) >= limit) | stuck,
    )


def _point(window: Window, row: int) -> str:
    strip = window.strip(EntityKind.MOUNT)
    return strip.keys[row].removeprefix(f"{window.nodes[strip.node[row]]}/")


def _usual(each: Floats, past: slice, first: int) -> float:
    """What it takes at ease: the lower quarter of the past, else of all; never beyond 50 ms."""
    before = each[:, past]
    enough = first >= 5 and np.isfinite(before).any()
    found = one_quantile(before if enough else each, 0.25)
    return min(found, _QUICK_S) if found == found else _QUICK_S / 2
