"""All planes together: who is to blame for a job's slowness, who is not, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gpuwarden_verdict.diagnosis.disks import find_disks
from gpuwarden_verdict.diagnosis.domain import (
    COMPONENTS,
    NETWORK,
    Acquittal,
    Culprit,
    CulpritKind,
    Diagnosis,
    Evidence,
)
from gpuwarden_verdict.diagnosis.gpus import find_gpus
from gpuwarden_verdict.diagnosis.hosts import find_hosts, idle_sign
from gpuwarden_verdict.diagnosis.network import find_network
from gpuwarden_verdict.diagnosis.program import find_program
from gpuwarden_verdict.diagnosis.robust import together
from gpuwarden_verdict.diagnosis.scene import Finding, Scene, make_scene
from gpuwarden_verdict.diagnosis.signs import find_signs
from gpuwarden_verdict.diagnosis.storage import find_storage
from gpuwarden_verdict.diagnosis.window import JobSpan, Window
from gpuwarden_verdict.diagnosis.words import line_of
from gpuwarden_wire.metrics import EntityKind

NAMED = 0.45
"""Score from which a culprit is named."""
NOTED = 0.15
"""Score from which it is listed."""
_LOST = 0.08
"""Loss of pace from which something must be wrong, though nothing was found."""
_MOST = 6
_SHORT = 5
_LOCAL = frozenset({CulpritKind.GPU, CulpritKind.HOST, CulpritKind.DISK, CulpritKind.MOUNT_CLIENT})


def diagnose(window: Window, job: str = "") -> Diagnosis:
    """Who is to blame.

    Args:
        window: All readings. What lies before `window.first` is the past that the job is compared
            with; without one, its own best within the window is.
        job: Whose slowness; "" asks of the whole fleet: of every job in turn.

    Returns:
        The answer, with everything that was looked at.

    Raises:
        KeyError: The window has no such job.
    """
    if job:
        return _of_job(window, {one.job: one for one in window.jobs}[job])
    spans = window.jobs or (_everything(window),)
    return _of_fleet(window, [_of_job(window, one) for one in spans])


def _everything(window: Window) -> JobSpan:
    """All nodes as one, where no job is known."""
    return JobSpan("", np.arange(len(window.nodes)), frozenset(), 0.0, None)


def _of_job(window: Window, span: JobSpan) -> Diagnosis:
    scene = make_scene(window, span)
    planes = [
        find_gpus(scene),
        find_hosts(scene),
        find_network(scene),
        find_disks(scene),
        find_storage(scene),
    ]
    culprits = [one for plane in planes for one in plane.culprits]
    culprits += find_program(scene)
    culprits = _waited_for(scene, culprits)
    culprits = [_with_harm(scene, one) for one in culprits]
    culprits = _less_explained(_one_a_node(culprits), planes)
    culprits = [one for one in culprits if one.score >= NOTED]
    culprits.sort(key=lambda one: -one.score)
    kind, confidence = _verdict(scene, culprits, planes)
    blind = tuple(
        f"{p.acquittal.what}: {p.acquittal.sentence}" for p in planes if not p.acquittal.read
    )
    acquitted = tuple(_acquittals(planes, culprits if kind in COMPONENTS else []))
    draft = Diagnosis(
        job=span.job,
        kind=kind,
        confidence=confidence,
        line="",
        culprits=tuple(culprits[:_MOST]),
        acquitted=acquitted,
        phases=scene.phases,
        slow=scene.slow,
        lost=scene.phases.lost(scene.slow),
        blind=blind,
    )
    return replace(draft, line=line_of(draft, window))


def _waited_for(scene: Scene, culprits: list[Culprit]) -> list[Culprit]:
    """Add to what is local to a node that the job waits for this very node."""
    rows = scene.rows(EntityKind.NODE)
    if rows.size < 2:
        return culprits
    names = tuple(scene.window.strip(EntityKind.NODE).keys[row] for row in rows.tolist())
    seen = find_signs(scene, [idle_sign(scene, rows)], names, scene.phases.running)
    waited = {names[row]: shown[0].evidence for row, shown in seen.items()}
    return [
        _more(one, waited[one.node]) if one.kind in _LOCAL and one.node in waited else one
        for one in culprits
    ]


def _with_harm(scene: Scene, culprit: Culprit) -> Culprit:
    """Add that the job was slower in the same time; less of it where it was not."""
    if scene.slow is None or culprit.kind is CulpritKind.STORAGE:
        return culprit
    both = culprit.run.overlap(scene.slow)
    if both < 0.3:
        return replace(culprit, score=0.85 * culprit.score)
    lost = scene.phases.lost(scene.slow)
    words = "steps" if scene.phases.measured else "traffic and effort"
    sentence = f"in the same time the job lost {lost:.0%} of its pace, by its {words}"
    return _more(culprit, Evidence(sentence, 0.25 * both, {"lost": lost}))


def _more(culprit: Culprit, evidence: Evidence) -> Culprit:
    """One more link of the chain, which adds in proportion to what is there."""
    chain = tuple(sorted((*culprit.evidence, evidence), key=lambda one: -one.strength))
    score = culprit.score + (1.0 - culprit.score) * evidence.strength * culprit.score
    return replace(culprit, evidence=chain, score=score)


def _one_a_node(culprits: Sequence[Culprit]) -> list[Culprit]:
    """A host that waits for its disk or its mount is not slow itself."""
    waits = {
        one.node: one.score
        for one in culprits
        if one.kind in (CulpritKind.DISK, CulpritKind.MOUNT_CLIENT)
    }
    return [
        replace(one, score=one.score * (1.0 - 0.7 * waits.get(one.node, 0.0)))
        if one.kind is CulpritKind.HOST
        else one
        for one in culprits
    ]


def _less_explained(culprits: Sequence[Culprit], planes: Sequence[Finding]) -> list[Culprit]:
    """The network, and the program, are blamed as far as nothing else explains the trouble.

    Most of what looks like the network is not (71 % in a published census): it must have company in
    nothing, and storage and compute must have been read.
    """
    others = [one.score for one in culprits if one.kind in COMPONENTS and one.kind not in NETWORK]
    plant = [one.score for one in culprits if one.kind in COMPONENTS]
    blind = sum(not plane.acquittal.read for plane in (planes[0], planes[4]))
    found = []
    for one in culprits:
        if one.kind in NETWORK:
            doubt = 0.15 if one.node else 0.4  # a NIC has counters of its own
            share = (1.0 - doubt * max(others, default=0.0)) * 0.75**blind
            found.append(replace(one, score=one.score * share))
        elif one.kind not in COMPONENTS:
            found.append(replace(one, score=one.score * (1.0 - 0.8 * max(plant, default=0.0))))
        else:
            found.append(one)
    return found


def _verdict(
    scene: Scene, culprits: Sequence[Culprit], planes: Sequence[Finding]
) -> tuple[CulpritKind | None, float]:
    """What the answer is, and how sure; None where the evidence does not decide."""
    if not scene.phases.running[scene.first :].any():
        return None, 0.0
    best = culprits[0].score if culprits else 0.0
    if best >= NAMED:
        rival = next((o.score for o in culprits[1:] if o.kind is not culprits[0].kind), 0.0)
        return culprits[0].kind, best * (1.0 - 0.3 * rival / best)
    blind = sum(not plane.acquittal.read for plane in planes)
    if (
        scene.slow is not None
        and scene.phases.lost(scene.slow) >= _LOST
        and scene.slow.length >= _SHORT
    ):
        return None, best
    if blind > 2:
        return None, best
    return CulpritKind.NOTHING, (1.0 - best) * (1.0 - 0.15 * blind)


def _acquittals(planes: Sequence[Finding], culprits: Sequence[Culprit]) -> list[Acquittal]:
    """Planes of which nothing is named."""
    named = {one.kind for one in culprits if one.score >= NAMED}
    kinds = (
        {CulpritKind.GPU},
        {CulpritKind.HOST},
        set(NETWORK),
        {CulpritKind.DISK},
        {CulpritKind.STORAGE, CulpritKind.MOUNT_CLIENT},
    )
    return [
        plane.acquittal
        for plane, own in zip(planes, kinds, strict=True)
        if plane.acquittal.read and not own & named
    ]


def _of_fleet(window: Window, each: Sequence[Diagnosis]) -> Diagnosis:
    """All jobs as one answer: the gravest culprit first, each once."""
    merged: dict[tuple[CulpritKind, str], Culprit] = {}
    for one in each:
        for culprit in one.culprits:
            _merge(merged, culprit)
    culprits = tuple(sorted(merged.values(), key=lambda one: -one.score))
    named = [one for one in each if one.kind not in (None, CulpritKind.NOTHING)]
    first = culprits[0] if culprits else None
    if first is not None and first.score >= NAMED and named:
        kind, confidence = (
            first.kind,
            max(one.confidence for one in named if one.kind is first.kind),
        )
    elif all(one.kind is CulpritKind.NOTHING for one in each):
        kind, confidence = CulpritKind.NOTHING, min(one.confidence for one in each)
    else:
        kind, confidence = None, 0.0
    blamed = {one.kind for one in culprits if one.score >= NAMED}
    draft = Diagnosis(
        job="",
        kind=kind,
        confidence=confidence,
        line="",
        culprits=culprits[:_MOST],
        acquitted=each[0].acquitted if len(each) == 1 else _common(each, blamed),
        phases=each[0].phases if len(each) == 1 else None,
        slow=each[0].slow if len(each) == 1 else None,
        lost=max(one.lost for one in each),
        blind=tuple(dict.fromkeys(words for one in each for words in one.blind)),
    )
    return replace(draft, line=line_of(draft, window))


def _merge(merged: dict[tuple[CulpritKind, str], Culprit], culprit: Culprit) -> None:
    key = (culprit.kind, culprit.entity)
    known = merged.get(key)
    if known is None:
        merged[key] = culprit
        return
    first, second = sorted((known, culprit), key=lambda one: -one.score)
    hit = tuple(dict.fromkeys((*first.hit, *second.hit)))
    score = together([first.score, 0.3 * second.score])
    merged[key] = replace(first, hit=hit, score=score)


def _common(each: Sequence[Diagnosis], blamed: set[CulpritKind]) -> tuple[Acquittal, ...]:
    """What no job's diagnosis blames, a sentence of each job's."""
    whats = set.intersection(*({one.what for one in d.acquitted} for d in each))
    return tuple(
        replace(one, sentence=f"{d.job}: {one.sentence}")
        for d in each
        for one in d.acquitted
        if one.what in whats
    )
