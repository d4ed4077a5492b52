"""At which scale a mount's trouble shows: clients at once, and smaller jobs beside larger ones."""

from __future__ import annotations

import numpy as np

from gpuwarden_verdict.diagnosis.domain import Scale
from gpuwarden_verdict.diagnosis.mounts import Clients
from gpuwarden_verdict.diagnosis.robust import Run, middle, one_quantile
from gpuwarden_verdict.diagnosis.window import Floats, Window

_HURT, _SPARED = 0.5, 0.1
"""Share of its client steps served badly, from which a job is hurt, and up to which it is not."""
_LEAST = 6


def scale_of(window: Window, clients: Clients, run: Run) -> Scale:
    """Where the trouble of a mount begins.

    Args:
        window: All readings.
        clients: The mount's.
        run: Steps of the trouble.
    """
    asking, slow = clients.asking[:, run.steps], (clients.slow & clients.asking)[:, run.steps]
    asked = int(asking.any(axis=1).sum())
    affected = int((slow.sum(axis=1) >= _HURT * np.maximum(1, asking.sum(axis=1))).sum())
    affected = min(affected, int(slow.any(axis=1).sum()))
    hurt, spared = _jobs(window, clients, run)
    calm, strained = _clients_at_once(clients)
    growth = _growth(clients)
    sentence = _words(affected, asked, hurt, spared, calm, strained)
    return Scale(affected, asked, sentence, spared, hurt, calm, strained, growth)


def _jobs(window: Window, clients: Clients, run: Run) -> tuple[int | None, int | None]:
    """Nodes of the smallest job that is hurt, and of the largest that is not."""
    hurt: list[int] = []
    spared: list[int] = []
    for job in window.jobs:
        mine = np.isin(clients.node, job.nodes)
        asking = clients.asking[mine][:, run.steps]
        count = int(asking.sum())
        if count < 3:
            continue
        share = float((clients.slow[mine][:, run.steps] & asking).sum()) / count
        size = int(job.nodes.size)
        if share >= _HURT:
            hurt.append(size)
        elif share <= _SPARED:
            spared.append(size)
    return min(hurt, default=None), max(spared, default=None)


def _clients_at_once(clients: Clients) -> tuple[int | None, int | None]:
    """Most clients at once that were served well, and fewest that were not.

    A client counts that is served badly, or asks a tenth of what the busiest do: a look at
    attributes loads nobody.
    """
    active = _active(clients)
    share = np.where(
        active > 0, (clients.slow & clients.asking).sum(axis=0) / np.maximum(1, active), 0
    )
    well = active[(active > 0) & (share <= _SPARED)]
    badly = active[(active > 0) & (share >= _HURT)]
    return (
        int(np.quantile(well, 0.9)) if well.size else None,
        int(np.quantile(badly, 0.1)) if badly.size else None,
    )


def _active(clients: Clients) -> Floats:
    busy = one_quantile(clients.asked[clients.asking], 0.95)
    counted = (clients.slow | (np.nan_to_num(clients.asked) >= 0.1 * busy)) & clients.asking
    counts: Floats = counted.sum(axis=0).astype(np.float64)
    return counts


def _growth(clients: Clients) -> float | None:
    """Rank correlation of request time with clients at once."""
    active, seconds = _active(clients), middle(clients.seconds, 0)
    read = np.isfinite(seconds) & (active > 0)
    if read.sum() < _LEAST or np.unique(active[read]).size < 3:
        return None
    ranks = [np.argsort(np.argsort(one[read])).astype(np.float64) for one in (active, seconds)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _words(
    affected: int,
    asked: int,
    hurt: int | None,
    spared: int | None,
    calm: int | None,
    strained: int | None,
) -> str:
    parts = [f"{affected} of {asked} clients that ask are served badly"]
    if hurt is not None and spared is not None and spared < hurt:
        parts.append(
            f"the job on {hurt} nodes is hurt, that on {spared} nodes on the same mount is not: "
            f"it starts somewhere between {spared} and {hurt} nodes"
        )
    elif hurt is not None:
        parts.append(f"the smallest job that is hurt has {hurt} nodes")
    if calm is not None and strained is not None and calm < strained:
        parts.append(
            f"up to {calm} clients at once were served well, from {strained} on they were not"
        )
    return "; ".join(parts)
