"""The server of a mount, the RPC layer of its clients, or one client of it.

A checkpoint that all nodes write at once fills slots and queues too, and is normal: it is at fault
only where the mount gives less than it gave before, or where it goes on for long, and where the job
waits for it. Queues fill behind a slow server as well as by themselves: which it is, the server's
own response time says.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuwarden_verdict.diagnosis.domain import (
    Acquittal,
    Culprit,
    CulpritKind,
    Evidence,
    Layer,
    Scale,
)
from gpuwarden_verdict.diagnosis.mounts import Clients, clients_of, mount_points
from gpuwarden_verdict.diagnosis.phases import SLOW_PACE, Phase
from gpuwarden_verdict.diagnosis.robust import (
    Run,
    grade,
    one_quantile,
    over,
    peers,
    together,
    total,
)
from gpuwarden_verdict.diagnosis.scale import scale_of
from gpuwarden_verdict.diagnosis.scene import Finding, Scene
from gpuwarden_verdict.diagnosis.signs import Sign, find_signs
from gpuwarden_verdict.diagnosis.window import Flags, Floats, Ints
from gpuwarden_wire.metrics import EntityKind

_MOST_SLOW = 0.5
"""Share of the clients that ask, from which it is the mount's trouble and not theirs."""
_SENT_AGAIN = 0.02
"""Share of requests sent again, from which they are lost on the way."""
_ODD_S = 1.5
"""Time of a request from which no sound burst explains it: four hundred requests of 1 MiB at once
take that long on a node that gets 280 MB/s."""
_SLOWER_ANSWER, _SLOW_ANSWER_S = 3.0, 0.01


@dataclass(frozen=True, slots=True)
class _Share:
    """A run in numbers: what a request takes, and where its time goes."""

    seconds: float
    answer_s: float
    queue: float
    again: float
    timeouts: float
    slots: float
    backlog: float
    moved: float
    best: float
    held_s: float
    harm: float

    @property
    def of_best(self) -> float:
        """Throughput against what the mount gave at best."""
        return self.moved / self.best if self.best > 0 else float("nan")


def find_storage(scene: Scene) -> Finding:
    """Mounts that hold the job up, and clients of theirs."""
    culprits: list[Culprit] = []
    told: list[str] = []
    for point in mount_points(scene.window):
        clients = clients_of(scene.window, point)
        mine = np.isin(clients.node, scene.job.nodes)
        if not mine.any():
            continue
        found = _mount(scene, clients, mine)
        if found is not None:
            culprits.append(found)
        culprits += _single(scene, clients, mine)
        told.append(_told(scene, clients, mine))
    if not told or not any(told):
        return Finding((), Acquittal("storage", "no mount was read", read=False))
    return Finding(tuple(culprits), Acquittal("storage", "; ".join(filter(None, told)), read=True))


def _mount(scene: Scene, clients: Clients, mine: Flags) -> Culprit | None:
    """The mount itself, where at least half of those that ask are served badly."""
    asking, slow = clients.asking & mine[:, None], clients.slow & mine[:, None]
    if mine.sum() < 2:  # one node alone says nothing of the mount: its other clients do
        asking, slow = clients.asking, clients.slow
    count = asking.sum(axis=0)
    share = np.where(count > 0, (slow & asking).sum(axis=0) / np.maximum(1, count), np.nan)
    enough = count >= min(2, int((asking.any(axis=1)).sum()))
    run = scene.run(np.nan_to_num(share) >= _MOST_SLOW, np.isfinite(share) & enough)
    if run is None or not asking.any(axis=1).sum() > 1:
        return None
    numbers = _numbers(scene, clients, run, np.nan_to_num(share) >= _MOST_SLOW)
    layer, scale = _layer(clients, numbers), scale_of(scene.window, clients, run)
    chain = _chain(clients, numbers, layer, scale)
    # What a sound burst shows weighs little: full queues are no fault while bytes flow as ever.
    odd = max(
        grade(1.0 - numbers.of_best, 0.2, 0.5),
        grade(numbers.held_s, 480.0, 1200.0),
        grade(np.log2(max(numbers.seconds, 1e-9) / _ODD_S), 0.0, 2.0),
        grade(numbers.timeouts * 60.0, 0.5, 5.0),
    )
    weight = (0.15 + 0.85 * odd) * (0.25 + 0.75 * numbers.harm)
    return Culprit(
        kind=CulpritKind.STORAGE,
        entity=f"mount:{clients.point}",
        node="",
        layer=layer,
        score=together([one.strength for one in chain]) * weight,
        run=run,
        evidence=tuple(sorted(chain, key=lambda one: -one.strength)),
        hit=scene.node_names,
        scale=scale,
    )


def _numbers(scene: Scene, clients: Clients, run: Run, holds: Flags) -> _Share:
    inside = np.zeros(holds.size, dtype=np.bool_)
    inside[run.steps] = holds[run.steps]
    bad = clients.slow & clients.asking & inside[None, :]

    def typical(values: Floats) -> float:
        return one_quantile(values[bad], 0.5)

    asked = float(np.nansum(clients.asked[bad]))
    spent = float(np.nansum((clients.seconds * clients.asked)[bad]))
    queued = float(np.nansum((clients.queue_s * clients.asked)[bad]))
    return _Share(
        seconds=typical(clients.seconds),
        answer_s=typical(clients.answer_s),
        queue=queued / spent if spent > 0 else float("nan"),
        again=float(np.nansum(clients.again[bad])) / asked if asked > 0 else 0.0,
        timeouts=float(np.nansum(clients.timeouts[bad])) / max(1, int(inside.sum())),
        slots=typical(clients.slots),
        backlog=typical(clients.backlog),
        moved=one_quantile(total(clients.moved)[inside], 0.9),  # edges of a save move little
        best=clients.best_bytes(),
        held_s=_longest_s(inside, scene),
        harm=_harm(scene, inside),
    )


def _longest_s(inside: Flags, scene: Scene) -> float:
    """Longest time for which it held without a pause."""
    longest = current = 0
    for one in inside.tolist():
        current = current + 1 if one else 0
        longest = max(longest, current)
    return longest * scene.window.step_s


def _harm(scene: Scene, inside: Flags) -> float:
    """How much of its time the job waits meanwhile, beyond what it waited before; 0..1."""
    phases = scene.phases
    slow = np.nan_to_num(phases.pace, nan=1.0) < SLOW_PACE
    waits = phases.at(Phase.SAVE, Phase.LOAD, Phase.STALLED) | slow
    asked = phases.running & (np.arange(inside.size) >= scene.first)
    past = phases.running & (np.arange(inside.size) < scene.first)
    before = float(waits[past].mean()) if past.sum() >= 5 else 0.1
    meanwhile = float((waits & inside)[asked].sum()) / max(1, int(asked.sum()))
    during = float(waits[inside].mean()) if inside.any() else 0.0
    return max(grade(meanwhile - before, 0.0, 0.2), 0.5 * grade(during, 0.3, 0.9))


def _layer(clients: Clients, numbers: _Share) -> Layer:
    if numbers.again >= _SENT_AGAIN:
        return Layer.RETRANSMIT
    slower = over(np.array([numbers.answer_s]), clients.usual_answer_s)[0]
    if slower >= _SLOWER_ANSWER and numbers.answer_s >= _SLOW_ANSWER_S:
        return Layer.SERVER
    return Layer.RPC_QUEUE if numbers.queue >= 0.5 else Layer.SERVER


def _chain(clients: Clients, numbers: _Share, layer: Layer, scale: Scale) -> list[Evidence]:
    point = clients.point
    slower = numbers.seconds / clients.limit_s if clients.limit_s > 0 else float("nan")
    chain = [
        Evidence(
            f"a request on {point} takes {numbers.seconds:.3g} s, at ease {clients.usual_s:.2g} s",
            0.3 + 0.3 * grade(np.log10(slower) if slower > 0 else 0.0, 0.0, 1.5),
            {"request_seconds": numbers.seconds, "usual_seconds": clients.usual_s},
        ),
        Evidence(
            scale.sentence, 0.5 * grade(scale.share, 0.3, 0.9), {"share_of_clients": scale.share}
        ),
    ]
    if numbers.queue == numbers.queue:
        chain.append(_where_time_goes(clients, numbers, layer))
    if numbers.slots >= 0.8 or numbers.backlog >= 8.0:
        chain.append(
            Evidence(
                f"{numbers.slots:.0%} of the slots of a client are taken and "
                f"{numbers.backlog:.0f} requests wait for one",
                0.3,
                {"slots_in_use": numbers.slots, "backlog": numbers.backlog},
            )
        )
    if numbers.again >= 0.005 or numbers.timeouts > 0:
        chain.append(
            Evidence(
                f"{numbers.again:.1%} of the requests are sent again, "
                f"{numbers.timeouts * 60:.2g} a minute time out for good",
                0.5 * max(grade(numbers.again, 0.0, 0.05), grade(numbers.timeouts, 0.0, 0.05)),
                {"sent_again": numbers.again, "timeouts_per_minute": numbers.timeouts * 60.0},
            )
        )
    if numbers.of_best < 0.75:
        chain.append(
            Evidence(
                f"{point} gives {numbers.moved / 1e9:.3g} GB/s, at best {numbers.best / 1e9:.3g}",
                0.6 * grade(1.0 - numbers.of_best, 0.2, 0.7),
                {"bytes_per_second": numbers.moved, "best_bytes_per_second": numbers.best},
            )
        )
    return chain


def _where_time_goes(clients: Clients, numbers: _Share, layer: Layer) -> Evidence:
    answer = (
        f"the server answers in {numbers.answer_s:.3g} s, at ease in {clients.usual_answer_s:.2g} s"
    )
    spent = f"{numbers.queue:.0%} of a request's time is the wait in its own client"
    match layer:
        case Layer.RPC_QUEUE:
            sentence = f"RPC queue saturation: {spent}; {answer}"
        case Layer.SERVER:
            sentence = f"slow server, and queues behind it: {answer}; {spent}"
        case _:
            sentence = f"{spent}; {answer}"
    return Evidence(
        sentence,
        0.35,
        {
            "queue_share": numbers.queue,
            "answer_seconds": numbers.answer_s,
            "usual_answer_seconds": clients.usual_answer_s,
        },
    )


def _single(scene: Scene, clients: Clients, mine: Flags) -> list[Culprit]:
    """Clients that are served badly while the others of the mount are served well."""
    rows: Ints = np.flatnonzero(mine)
    strip = scene.window.strip(EntityKind.MOUNT)
    others = peers(clients.seconds)[rows]
    each = clients.seconds[rows]
    slower = np.where(each >= clients.limit_s / 2, np.log2(np.maximum(over(each, others), 1e-9)), 0)
    slower = np.where(np.isfinite(each), slower, np.nan)
    again = over(clients.again, np.maximum(clients.asked, 1e-9))
    again = np.where(clients.asking, again, np.nan)
    again_peers = peers(again)
    signs = [
        Sign("seconds_a_request", Layer.NONE, slower, 1.5, 4.0, 0.75,
             "a request of {entity} takes {own:.3g} s, of the mount's other clients {others:.3g}",
             each, others),
        Sign("sent_again", Layer.RETRANSMIT, (again - again_peers)[rows], _SENT_AGAIN, 0.1, 0.6,
             "{entity} sends {own:.1%} of its requests again, other clients {others:.1%}",
             again[rows], again_peers[rows]),
    ]  # fmt: skip
    names = tuple(strip.keys[row] for row in clients.rows[rows].tolist())
    culprits = []
    for place, seen in find_signs(scene, signs, names, scene.phases.running).items():
        chain = sorted((one.evidence for one in seen), key=lambda one: -one.strength)
        sentence = f"one of {clients.rows.size} clients of {clients.point}"
        culprits.append(
            Culprit(
                kind=CulpritKind.MOUNT_CLIENT,
                entity=names[place],
                node=scene.window.nodes[clients.node[rows[place]]],
                layer=next((one.sign.layer for one in seen if one.sign.layer), Layer.NONE),
                score=together([one.strength for one in chain]),
                run=max(seen, key=lambda one: one.evidence.strength).run,
                evidence=tuple(chain),
                hit=scene.node_names,
                scale=Scale(1, clients.rows.size, sentence),
            )
        )
    return culprits


def _told(scene: Scene, clients: Clients, mine: Flags) -> str:
    seconds = clients.seconds[mine][:, scene.first :]
    if not np.isfinite(seconds).any():
        return ""
    share = float((clients.slow & clients.asking)[mine][:, scene.first :].sum())
    asked = max(1, int(clients.asking[mine][:, scene.first :].sum()))
    return (
        f"a request on {clients.point} takes {one_quantile(seconds, 0.5):.2g} s, "
        f"{share / asked:.0%} of the client minutes were slow"
    )
