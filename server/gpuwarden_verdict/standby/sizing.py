"""How many spares a pool wants: the 99th percentile of a binomial on what it showed so far."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwarden_verdict.fusion.gate import poisson_upper
from gpuwarden_verdict.savings.chances import binomial_quantile

DAY_S = 86_400.0
WINDOW_S = 90 * DAY_S
"""How far back leaves are counted."""
PRIOR_RATE = 6.5e-3
"""Leaves a node-day before anything was seen: failures a node-day of the larger of two research
clusters (Meta RSC, 6.50 and 2.34 a 1,000 node-days); weighs as much as one leave."""
PRIOR_OUT_S = DAY_S
"""How long a node stays out before anything was seen: assumed; weighs as much as one return."""
QUANTILE = 0.99
"""As ByteRobust sizes its pools of spares."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a pool showed.

    Attributes:
        pool: Name.
        nodes: Nodes with GPUs in service.
        node_days: Time that they were watched, within the window.
        leaves: How often one of them was, or by advice should have been, taken out.
        returns: Of these, those that are back.
        out_s: Time out of those that are back, seconds.
    """

    pool: str
    nodes: int
    node_days: float
    leaves: int
    returns: int
    out_s: float


@dataclass(frozen=True, slots=True)
class Advice:
    """How many spares a pool wants.

    Attributes:
        seen: What it rests on.
        rate: Leaves a node-day, with the prior.
        rate_upper: Upper 95 % bound of what was seen alone, None where nothing was watched.
        mean_out_s: Time out, with the prior.
        share_out: Share of the nodes that is out at a time.
        wanted: Spares that suffice 99 % of the time, if nodes fail apart from each other.
        wanted_upper: The same at the upper bound of the rate, None where it is unknown.
        says: What to know before believing it.
    """

    seen: Seen
    rate: float
    rate_upper: float | None
    mean_out_s: float
    share_out: float
    wanted: int
    wanted_upper: int | None
    says: tuple[str, ...]


def advise(seen: Seen) -> Advice:
    """How many spares a pool wants by what it showed, and by the prior while that is little."""
    rate = (seen.leaves + 1.0) / (seen.node_days + 1.0 / PRIOR_RATE)
    mean_out_s = (seen.out_s + PRIOR_OUT_S) / (seen.returns + 1.0)
    upper = poisson_upper(seen.leaves) / seen.node_days if seen.node_days > 0 else None
    return Advice(
        seen=seen,
        rate=rate,
        rate_upper=upper,
        mean_out_s=mean_out_s,
        share_out=_share(rate, mean_out_s),
        wanted=_wanted(seen.nodes, rate, mean_out_s),
        wanted_upper=None if upper is None else _wanted(seen.nodes, max(rate, upper), mean_out_s),
        says=tuple(_says(seen)),
    )


def _share(rate: float, mean_out_s: float) -> float:
    """Of a node that leaves at a rate and stays out for a while: out / (in + out)."""
    out_days = rate * mean_out_s / DAY_S
    return out_days / (1.0 + out_days)


def _wanted(nodes: int, rate: float, mean_out_s: float) -> int:
    return binomial_quantile(nodes, _share(rate, mean_out_s), QUANTILE)


def _says(seen: Seen) -> list[str]:
    told = ["nodes that fail together (a switch, a rack, a power domain) are not in this number"]
    if seen.leaves < 10:
        told.append(
            f"{seen.leaves} leaves in {seen.node_days:.0f} node-days: the prior of"
            f" {1000 * PRIOR_RATE:g} leaves in 1,000 node-days still weighs as one of them"
        )
    if seen.returns < 3:
        told.append(f"{seen.returns} returns: a stay of {PRIOR_OUT_S / 3600:g} h is assumed")
    return told
