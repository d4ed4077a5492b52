"""Which leaf of each tree a row reaches, all trees at once and without walking them.

What a row's value in one feature rules out of a tree's leaves depends only on where it lies among
the limits that the trees have for that feature. These leaves are known beforehand, as bits; the
leaf that no feature rules out is the row's. (After QuickScorer, Lucchese et al., SIGIR 2015.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from gpuwarden_verdict.fusion.trees import Trees

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
AnyArray = npt.NDArray[Any]

_MOST_BITS = 64


@dataclass(frozen=True, slots=True, eq=False)
class LeafBits:
    """The trees' leaves as bits of words: a tree has a word, or more where it has many leaves.

    Attributes:
        splits: Features that any tree splits on, shape (S,).
        limits: Their limits, those of one feature together and rising, shape (L,).
        features: Feature of each limit, shape (L,).
        starts: Where the limits of each of `splits` begin, shape (S,).
        none: Stands for how many limits NaN is above, by each of `splits`, shape (S,).
        left: By each of `splits`, shape (limits + 2, words): the bits that a value leaves which is
            above so many of the limits; the last row is for NaN.
        full: All bits of each word, shape (words,).
        values: What each leaf adds, shape (words, bits + 1); the first is for a word without any.
    """

    splits: I64
    limits: F64
    features: I64
    starts: I64
    none: I64
    left: tuple[AnyArray, ...]
    full: AnyArray
    values: F64

    def sums(self, values: F64) -> F64:
        """What all trees add for each row of features (N, F), shape (N,)."""
        above, common = self._above(values), self.full.copy()
        # in a healthy fleet most features are the same everywhere
        alike = (above == above[:1]).all(axis=0)
        for number in np.flatnonzero(alike).tolist() if values.shape[0] else ():
            common &= self.left[number][above[0, number]]
        bits = np.repeat(common[None, :], values.shape[0], axis=0)
        for number in np.flatnonzero(~alike).tolist():
            bits &= self.left[number].take(above[:, number], axis=0)
        place = np.frexp(bits.astype(np.float64))[1]  # of the one bit that is left, from 1 on
        total: F64 = self.values[np.arange(self.full.size), place].sum(axis=1)
        return total

    def _above(self, values: F64) -> I64:
        """Above how many limits each row of features lies, by feature, shape (N, S)."""
        if not self.splits.size:
            return np.empty((values.shape[0], 0), np.int64)
        beyond = values.take(self.features, axis=1) > self.limits
        above = np.add.reduceat(beyond, self.starts, axis=1, dtype=np.int64)
        np.copyto(above, self.none, where=np.isnan(values.take(self.splits, axis=1)))
        return above


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
    below = _bits_below(trees, words)
    limits: list[F64] = []
    left: list[AnyArray] = []
    splits = np.unique(trees.feature[~trees.leaf]).astype(np.int64)
    for feature in splits.tolist():
        nodes = np.flatnonzero(~trees.leaf & (trees.feature == feature))
        limits.append(np.unique(trees.threshold[nodes]))
        left.append(np.tile(np.array(full, dtype), (limits[-1].size + 2, 1)))
        for node in nodes.tolist():
            _rule_out(trees, node, limits[-1], left[-1], below)
    sizes = np.array([one.size for one in limits], np.int64)
    return LeafBits(
        splits=splits,
        limits=np.concatenate(limits) if limits else np.empty(0),
        features=np.repeat(splits, sizes),
        starts=np.cumsum(sizes) - sizes,
        none=sizes + 1,
        left=tuple(left),
        full=np.array(full, dtype),
        values=values,
    )


def _bits_below(trees: Trees, words: Mapping[int, tuple[int, int]]) -> list[dict[int, int]]:
    """Leaves below each node, as bits of each word; children stand behind their parent."""
    below: list[dict[int, int]] = [{} for _ in range(trees.leaf.size)]
    for node in reversed(range(trees.leaf.size)):
        if node in words:
            word, bit = words[node]
            below[node] = {word: 1 << bit}
        elif not trees.leaf[node]:
            right = below[trees.right[node]]
            merged = dict(below[trees.left[node]])
            merged |= {word: merged.get(word, 0) | bits for word, bits in right.items()}
            below[node] = merged
    return below


def _rule_out(
    trees: Trees, node: int, limits: F64, left: AnyArray, below: Sequence[Mapping[int, int]]
) -> None:
    """Take away the leaves on the side of a node where a value does not go."""
    beyond = int(np.searchsorted(limits, trees.threshold[node])) + 1
    missing_left = bool(trees.missing_left[node])
    sides = (
        (trees.right[node], slice(0, beyond), missing_left),
        (trees.left[node], slice(beyond, -1), not missing_left),
    )
    for child, places, missing in sides:
        for word, bits in below[child].items():
            kept = ~left.dtype.type(bits)
            left[places, word] &= kept
            if missing:
                left[-1, word] &= kept


def _leaves_below(trees: Trees, node: int) -> list[int]:
    found, waiting = [], [node]
    while waiting:
        one = waiting.pop()
        if trees.leaf[one]:
            found.append(one)
        else:
            waiting += [int(trees.left[one]), int(trees.right[one])]
    return found
