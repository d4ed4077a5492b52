"""Signs: how far each entity of a plane is from its peers, and since when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from gpuwarden_verdict.diagnosis.domain import Evidence, Layer
from gpuwarden_verdict.diagnosis.robust import Run, grade, mean
from gpuwarden_verdict.diagnosis.scene import Scene
from gpuwarden_verdict.diagnosis.window import Flags, Floats

CROWD = 0.25
"""Share of a job's entities from which a sign is the job's or the place's, and nobody's own."""


@dataclass(frozen=True, slots=True, eq=False)
class Sign:
    """One way of being odd.

    Attributes:
        name: Key of its numbers.
        layer: What it speaks to.
        size: How odd, 0 for not at all, shape (entities, steps); NaN where not read.
        limit: Size from which a step counts.
        full: Size at which it weighs all of `weight`.
        weight: 0..1.
        words: Sentence; `{entity}`, `{own}`, `{others}`, `{size}` and `{minutes}` are filled in.
        own: What the sentence tells of the entity, shape (entities, steps).
        others: What it tells of its peers.
        crowds: Whether a crowd shares it innocently.
    """

    name: str
    layer: Layer
    size: Floats
    limit: float
    full: float
    weight: float
    words: str
    own: Floats
    others: Floats
    crowds: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """A sign that an entity shows.

    Attributes:
        sign: Which.
        run: Over which steps.
        size: Mean size over them.
        evidence: In words.
    """

    sign: Sign
    run: Run
    size: float
    evidence: Evidence


def find_signs(
    scene: Scene, signs: Iterable[Sign], names: tuple[str, ...], read: Flags
) -> Mapping[int, list[Seen]]:
    """Who shows what, by row.

    Args:
        scene: The job.
        signs: Of some entities, all in the same order.
        names: How these are called in sentences.
        read: Steps that tell, shape (steps,).
    """
    found: dict[int, list[Seen]] = {}
    for sign in signs:
        shown = _shown(scene, sign, read)
        readable = int(np.isfinite(sign.size[:, scene.first :]).any(axis=1).sum())
        if sign.crowds and len(shown) > 1 and len(shown) > CROWD * readable:
            continue
        for row, run in shown.items():
            found.setdefault(row, []).append(_seen(scene, sign, row, run, names[row]))
    return found


def crowd_of(scene: Scene, sign: Sign, read: Flags) -> int:
    """How many entities show a sign."""
    return len(_shown(scene, sign, read))


def _shown(scene: Scene, sign: Sign, read: Flags) -> dict[int, Run]:
    holds = sign.size >= sign.limit
    shown: dict[int, Run] = {}
    for row in np.flatnonzero((holds & read)[:, scene.first :].sum(axis=1) >= 3).tolist():
        run = scene.run(holds[row], np.isfinite(sign.size[row]) & read)
        if run is not None:
            shown[row] = run
    return shown


def _seen(scene: Scene, sign: Sign, row: int, run: Run, name: str) -> Seen:
    size, own, others = (
        mean(values[row, run.steps]) for values in (sign.size, sign.own, sign.others)
    )
    minutes = run.length * scene.window.step_s / 60.0
    sentence = sign.words.format(entity=name, own=own, others=others, size=size, minutes=minutes)
    lasting = 0.4 + 0.6 * grade(run.length, 2.0, 9.0)
    strength = sign.weight * (0.5 + 0.5 * grade(size, sign.limit, sign.full)) * lasting * run.share
    numbers = {f"{sign.name}": own, f"{sign.name}_of_peers": others, "minutes": minutes}
    return Seen(sign, run, size, Evidence(sentence, strength, numbers))
