"""Rows of the table of client calls: what to ask, and what must be true of the answer."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    """What to ask of a client, and what must be true of the answer."""

    say: Callable[[Any], Any]
    holds: Callable[[Any], bool]


def then(first: Any, follow: Callable[[Any], Any]) -> Any:
    """A second call that needs the answer of the first, for either kind."""
    if not inspect.isawaitable(first):
        return follow(first)

    async def both() -> Any:
        return await follow(await first)

    return both()


DIAGNOSIS_ROWS = {
    "diagnose": Row(lambda c: c.diagnose(), lambda v: v.asked_by == "first admin" and v.line),
    "diagnoses": Row(
        lambda c: then(c.diagnose(), lambda made: c.diagnoses(limit=1)),
        lambda v: len(v.items) == 1 and v.items[0].id,
    ),
    "all_diagnoses": Row(
        lambda c: c.all_diagnoses(limit=1),  # behind those that ask
        lambda v: len(v) >= 2,
    ),
    "diagnosis": Row(
        lambda c: then(c.diagnose(), lambda made: c.diagnosis(made.id)),
        lambda v: v.id.startswith("dia-"),
    ),
    "tell_progress": Row(
        lambda c: c.tell_progress("slurm:8", 3, loss=2.5, rank=1),
        lambda v: (v.job, v.step, v.odd_loss) == ("slurm:8", 3, None),
    ),
}
