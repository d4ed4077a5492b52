"""One tick of the plant: who waits for whom, and what moves meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuwarden_models.diagnosis.plant import (
    ANSWER_S,
    BLOCK,
    DISK_S,
    GPUS,
    NIC_BYTES,
    REQUEST,
    SLOTS,
    WANTS_BYTES,
    Floats,
    Parts,
    Site,
    Work,
)

_PREFETCH = 8.0
"""Requests that a loader keeps in flight."""
_DISK_DEPTH = 4.0
_SAVE_DEPTH = 400.0
_HIDDEN = 0.3
"""Share of the talking that hides behind the arithmetic."""
_AT_WORK = 2e8
"""Bytes a second from which a client counts as at work for the server."""


@dataclass(slots=True, eq=False)
class Tick:
    """What happened in one tick, shares of its time and amounts a second.

    Attributes:
        busy: Share in which each GPU computes, shape (GPUs,).
        spins: Share in which it waits in a collective, shape (GPUs,).
        sent: Bytes a second of each NIC, shape (GPUs,).
        steps: Training steps a second of each node's job, shape (nodes,).
        read: Bytes a second of the mount, shape (nodes,).
        written: The same.
        cached: Bytes a second of the disk, shape (nodes,).
        answer_s: What an answer of the mount takes, shape (nodes,).
        queue_s: What a request waits in its client, shape (nodes,).
        slots: Share of the slots in use, shape (nodes,).
        backlog: Requests without a slot, shape (nodes,).
        saves: Nodes that write a checkpoint, shape (nodes,).
        starved: Share in which each node's GPUs wait for its input, shape (nodes,).
    """

    busy: Floats
    spins: Floats
    sent: Floats
    steps: Floats
    read: Floats
    written: Floats
    cached: Floats
    answer_s: Floats
    queue_s: Floats
    slots: Floats
    backlog: Floats
    saves: Floats
    starved: Floats


def tick(site: Site, parts: Parts, now_s: float, dt: float) -> Tick:
    """Advance all jobs by `dt` seconds."""
    made = _empty(site.nodes)
    saves = _wants_to_save(site, now_s)
    feeds = np.zeros(site.nodes)
    for work in site.works:
        feeds[work.nodes] = work.feed_bytes / _alone_s(work)
    wants = np.where(saves > 0, np.minimum(WANTS_BYTES, saves / dt), feeds)
    given = _serve(site, parts, wants, saves > 0, made)
    for work in site.works:
        if work.saving.size:
            moved = given[work.nodes]
            made.written[work.nodes] = np.minimum(moved, work.saving / dt)
            work.saving = np.maximum(work.saving - moved * dt, 0.0)
            made.saves[work.nodes] = 1.0
            if not work.saving.any():
                work.saving, work.next_save_s = np.zeros(0), now_s + work.save_every_s
        else:
            _step(work, parts, given, now_s, made)
    return made


def _empty(nodes: int) -> Tick:
    gpus, one = nodes * GPUS, nodes
    zeros = np.zeros
    return Tick(
        zeros(gpus), zeros(gpus), zeros(gpus), zeros(one), zeros(one), zeros(one), zeros(one),
        np.full(one, ANSWER_S), np.full(one, 1e-4), np.full(one, 0.02), zeros(one), zeros(one),
        zeros(one),
    )  # fmt: skip


def _wants_to_save(site: Site, now_s: float) -> Floats:
    """Bytes that each node has yet to write."""
    left = np.zeros(site.nodes)
    for work in site.works:
        if not work.saving.size and now_s >= work.next_save_s:
            work.saving = np.full(work.nodes.size, work.save_bytes)
        if work.saving.size:
            left[work.nodes] = work.saving
    return left


def _alone_s(work: Work) -> float:
    """A step where nobody holds it up."""
    talk = (1.0 - _HIDDEN) * work.talk_bytes / (0.85 * NIC_BYTES)
    return max(work.compute_s * float(work.share.max()) + work.copy_s + talk, work.prepare_s)


def _serve(
    site: Site, parts: Parts, wants: Floats, closed: NDArray[np.bool_], made: Tick
) -> Floats:
    """Bytes a second for each client, who share the server evenly; how long requests take."""
    at_work = int((wants >= _AT_WORK).sum())
    hit = at_work >= parts.server_from
    server = site.server_bytes * (parts.server if hit else 1.0)
    granted = site.server_bytes * (parts.credits if hit else 1.0)
    lost = parts.client_lost + (parts.server_lost if hit else 0.0)
    extra = parts.client_s + 0.8 * lost
    depth = np.where(closed, SLOTS, _PREFETCH)
    able = np.minimum(wants, depth * REQUEST / (ANSWER_S + extra))
    given = _even(able, min(server, granted))
    short = given < 0.98 * able
    full = given < 0.98 * wants
    answer = ANSWER_S * (1.0 + min(1.0, float(able.sum()) / server) ** 4) + extra
    each = np.maximum(given, 1.0) / REQUEST
    if server < granted:
        answer = np.where(short, np.minimum(depth, SLOTS) / each, answer)
    made.answer_s[:] = answer
    in_flight = each * answer
    asks = np.where(closed, _SAVE_DEPTH, _PREFETCH)
    waiting = np.where(full, np.maximum(asks - in_flight, 0.0), 0.0)
    waiting = np.where(closed, waiting, np.where(granted < server, waiting, 0.0))
    made.queue_s[:] = 1e-4 + waiting / each
    made.backlog[:] = waiting
    slots = np.where(granted <= server, np.maximum(in_flight, 1.0), SLOTS)
    made.slots[:] = np.clip(np.where(waiting > 0, 1.0, in_flight / slots), 0.02, 1.0)
    return given


def _even(wants: Floats, capacity: float) -> Floats:
    """Max-min fair shares of a capacity."""
    if wants.sum() <= capacity:
        return wants
    ordered = np.sort(wants)
    before = np.concatenate(([0.0], np.cumsum(ordered)[:-1]))
    level = (capacity - before) / np.arange(wants.size, 0, -1)
    cap = float(level[np.argmax(level <= ordered)])
    return np.minimum(wants, cap)


def _step(work: Work, parts: Parts, given: Floats, now_s: float, made: Tick) -> None:
    """A job's steps, as fast as the slowest of its ranks lets it."""
    gpus, nodes = work.gpus, work.nodes
    pausing = work.pause_every_s > 0 and now_s % work.pause_every_s < 0.15 * work.pause_every_s
    size = 0.55 if pausing else 1.0
    copy = work.copy_s * 16.0 / parts.lanes[gpus]
    hang = 1.0 + 0.25 * (1.0 - parts.cpu[nodes]).repeat(GPUS)
    arithmetic = size * work.compute_s * work.share / parts.clock[gpus] * hang + copy
    per_node = arithmetic.reshape(nodes.size, GPUS).max(axis=1)
    disk = work.cache_bytes / (_DISK_DEPTH * BLOCK / (DISK_S * parts.disk[nodes]))
    rate = np.maximum(given[nodes], 1.0)
    fetch = np.where(work.feed_bytes > 0, work.feed_bytes / rate, 0.0)
    ready = np.maximum(work.prepare_s / parts.cpu[nodes], disk)
    talk = work.talk_bytes / (0.85 * NIC_BYTES * parts.link[gpus])
    slowest_talk = float(talk.max()) if nodes.size > 1 else 0.0
    own = np.maximum(per_node, ready)
    # Fetching hides behind the step as long as it is shorter than that.
    paced = float(own.max()) + max(0.0, slowest_talk - _HIDDEN * work.compute_s)
    step = max(paced, float(fetch.max()))
    starved = np.maximum(ready - per_node, 0.0) + np.maximum(fetch - paced, 0.0)
    starved = np.minimum(starved, step - per_node)
    made.busy[gpus] = arithmetic / step
    made.spins[gpus] = np.maximum(0.0, 1.0 - arithmetic / step - (starved / step).repeat(GPUS))
    made.sent[gpus] = work.talk_bytes / step if nodes.size > 1 else 0.0
    made.steps[nodes] = 1.0 / step
    made.read[nodes] = work.feed_bytes / step
    made.cached[nodes] = work.cache_bytes / step
    made.starved[nodes] = starved / step
