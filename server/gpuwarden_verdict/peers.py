"""How far each GPU stands out from its peers: grouped medians, all groups at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

FEWEST_PEERS = 4
"""Smallest group with a number for each member, itself included, whose median says anything."""


@dataclass(frozen=True, slots=True)
class PeerGroups:
    """Who is compared with whom.

    Attributes:
        fleet: Group over the fleet of each of N entities, int64.
        node: Group within the node of each, int64.
        known: False where the group is not known: no comparison.
    """

    fleet: I64
    node: I64
    known: npt.NDArray[np.bool_]


def excess_over_peers(values: npt.NDArray[np.floating], groups: PeerGroups) -> F64:
    """The value less the median of its peers, in the fleet or in the node: the smaller excess.

    Args:
        values: Shape (N,), any unit; NaN is no member of any median.
        groups: Peers.

    Returns:
        float64, shape (N,), in the unit of `values`; NaN where the value is missing or neither
        group has FEWEST_PEERS numbers.
    """
    wide = np.where(groups.known, values, np.nan).astype(np.float64)
    if wide.size == 0:
        return wide
    over_fleet = wide - group_medians(wide, groups.fleet)
    over_node = wide - group_medians(wide, groups.node)
    excess: F64 = np.fmin(over_fleet, over_node)
    return excess


def group_medians(values: F64, groups: I64) -> F64:
    """Median of each entity's group without NaN; NaN where it has fewer than FEWEST_PEERS numbers.

    Args:
        values: Shape (N,).
        groups: Group of each, int64, any numbers.

    Returns:
        float64, shape (N,): each entity gets its group's median.
    """
    _, group = np.unique(groups, return_inverse=True)
    order = np.lexsort((values, group))  # NaN sorts last within its group
    ordered = values[order]
    counts = np.bincount(group, weights=~np.isnan(values)).astype(np.int64)
    first = np.concatenate(([0], np.cumsum(np.bincount(group))[:-1]))
    lower = first + np.maximum(counts - 1, 0) // 2
    upper = first + counts // 2
    upper = np.minimum(upper, values.size - 1)
    medians = 0.5 * (ordered[lower] + ordered[upper])
    medians[counts < FEWEST_PEERS] = np.nan
    result: F64 = medians[group]
    return result
