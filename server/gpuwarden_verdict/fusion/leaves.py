"""Which leaf of each tree a row reaches, all trees at once and without walking them.

What a row's value in one feature rules out of a tree's leaves depends only on where it lies among
the limits that the trees have for that feature. These leaves are known beforehand, as bits; the
leaf that no feature rules out is the row's. (After QuickScorer, Lucchese et al., SIGIR 2015.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from gpuwarden_verdict.fusion.trees import Trees

F64 = npt.NDArray[np.float64]
AnyArray = npt.NDArray[Any]

_MOST_BITS = 64


@dataclass(frozen=True, slots=True, eq=False)
class LeafBits:
    """The trees' leaves as bits of words: a tree has a word, or more where it has many leaves.

    Attributes:
        limits: By feature that any tree splits on: its limits, rising.
        left: By feature, shape (limits + 2, words): the bits that a value leaves which is above so
            many of the limits; the last row is for NaN.
        full: All bits of each word, shape (words,).
        values: What each leaf adds, shape (words, bits + 1); the first is for a word without any.
    """

    limits: Mapping[int, F64]
    left: Mapping[int, AnyArray]
    full: AnyArray
    values: F64

    def sums(self, values: F64) -> F64:
        """What all trees add for each row of features (N, F), shape (N,)."""
        bits = np.repeat(self.full[None, :], values.shape[0], axis=0)
        for feature, limits in self.limits.items():
            seen = values[:, feature]
            above = np.searchsorted(limits, seen)
            above[np.isnan(seen)] = limits.size + 1
            # in a healthy fleet most features are the same everywhere
            alike = values.shape[0] > 0 and bool((above == above[0]).all())
            bits &= self.left[feature][above[0] if alike else above]
        place = np.frexp(bits.astype(np.float64))[1]  # of the one bit that is left, from 1 on
        total: F64 = self.values[np.arange(self.full.size), place].sum(axis=1)
        return total


def leaf_bits(trees: Trees) -> LeafBits:
    """Lay the leaves of checked trees out as bits."""
    leaves = [_leaves_below(trees, int(root)) for root in trees.roots]
    words: dict[int, tuple[int, int]] = {}  # of each leaf: its word and bit
    full: list[int] = []
    for own in leaves:
        for first in range(0, len(own), _MOST_BITS):
            part = own[first : first + _MOST_BITS]
            words.update({leaf: (len(full), bit) for bit, leaf in enumerate(part)})
            full.append((1 << len(part)) - 1)
    dtype = np.min_scalar_type(max(full, default=0))
    values = np.zeros((len(full), max(full, default=0).bit_length() + 1))
    for leaf, (word, bit) in words.items():
        values[word, bit + 1] = trees.value[leaf]
    limits: dict[int, F64] = {}
    left: dict[int, AnyArray] = {}
    for feature in np.unique(trees.feature[~trees.leaf]).tolist():
        nodes = np.flatnonzero(~trees.leaf & (trees.feature == feature))
        limits[feature] = np.unique(trees.threshold[nodes])
        left[feature] = np.tile(np.array(full, dtype), (limits[feature].size + 2, 1))
        for node in nodes.tolist():
            _rule_out(trees, node, limits[feature], left[feature], words)
    return LeafBits(limits, left, np.array(full, dtype), values)


def _rule_out(
    trees: Trees, node: int, limits: F64, left: AnyArray, words: Mapping[int, tuple[int, int]]
) -> None:
    """Take away the leaves on the side of a node where a value does not go."""
    goes_left = np.append(
        np.arange(limits.size + 1) <= np.searchsorted(limits, trees.threshold[node]),
        trees.missing_left[node],
    )
    for child, places in ((trees.left[node], ~goes_left), (trees.right[node], goes_left)):
        for leaf in _leaves_below(trees, int(child)):
            word, bit = words[leaf]
            left[places, word] &= ~left.dtype.type(1 << bit)


def _leaves_below(trees: Trees, node: int) -> list[int]:
    found, waiting = [], [node]
    while waiting:
        one = waiting.pop()
        if trees.leaf[one]:
            found.append(one)
        else:
            waiting += [int(trees.left[one]), int(trees.right[one])]
    return found
