"""Boosted trees as plain arrays, and their prediction with numpy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gpuwarden_verdict.fusion.leaves import LeafBits, leaf_bits

F64 = npt.NDArray[np.float64]
I32 = npt.NDArray[np.int32]
Bool = npt.NDArray[np.bool_]

_DTYPES: Mapping[str, npt.DTypeLike] = {
    "roots": np.int32,
    "feature": np.int32,
    "threshold": np.float64,
    "missing_left": np.bool_,
    "left": np.int32,
    "right": np.int32,
    "leaf": np.bool_,
    "value": np.float64,
    "cover": np.float64,
}
TREE_ARRAYS: tuple[str, ...] = tuple(_DTYPES)


@dataclass(frozen=True, eq=False)
class Trees:
    """All trees of a model, their nodes one after another.

    A row goes left where its feature is <= threshold, or is NaN and `missing_left`.

    Attributes:
        roots: Node of each tree's root, shape (trees,).
        feature: Column that a node splits on, shape (nodes,); 0 at leaves.
        threshold: Limit, in the feature's unit; may be +inf: all numbers go left.
        missing_left: Where NaN goes.
        left: Node on the left; 0 at leaves.
        right: Node on the right; 0 at leaves.
        leaf: Which nodes are leaves.
        value: What a leaf adds to the raw score (log-odds before calibration); 0 elsewhere.
        cover: Training rows that passed the node.
    """

    roots: I32
    feature: I32
    threshold: F64
    missing_left: Bool
    left: I32
    right: I32
    leaf: Bool
    value: F64
    cover: F64

    def sum_of_leaves(self, matrix: npt.NDArray[np.floating]) -> F64:
        """What all trees add for each row.

        Args:
            matrix: Features, shape (N, F); NaN where missing.

        Returns:
            float64, shape (N,).
        """
        return self._bits.sums(matrix.astype(np.float64))

    @cached_property
    def _bits(self) -> LeafBits:
        """What scoring needs, made on first use."""
        return leaf_bits(self)


def trees_from_arrays(arrays: Mapping[str, npt.NDArray[np.generic]], features: int) -> Trees:
    """Check arrays from outside and make trees of them.

    Args:
        arrays: By name as TREE_ARRAYS.
        features: Columns that a matrix will have.

    Raises:
        ValueError: An array is missing, or they are not trees: the message says which and why.
    """
    missing = [name for name in TREE_ARRAYS if name not in arrays]
    if missing:
        raise ValueError(f"no array {', '.join(missing)}")
    typed = {name: np.asarray(arrays[name]).astype(dtype) for name, dtype in _DTYPES.items()}
    trees = Trees(**typed)
    _check(trees, features)
    return trees


def _check(trees: Trees, features: int) -> None:
    nodes = trees.value.size
    sizes = {getattr(trees, name).shape for name in TREE_ARRAYS if name != "roots"}
    if sizes != {(nodes,)} or trees.roots.ndim != 1 or nodes == 0:
        raise ValueError("the node arrays differ in length")
    inner = np.flatnonzero(~trees.leaf)
    # Children stand behind their parent: every walk ends.
    behind = (trees.left[inner] > inner) & (trees.right[inner] > inner)
    inside = (trees.left[inner] < nodes) & (trees.right[inner] < nodes)
    if not (behind.all() and inside.all()):
        raise ValueError("a node's children do not stand behind it")
    if ((trees.roots < 0) | (trees.roots >= nodes)).any():
        raise ValueError("a root lies outside the nodes")
    if ((trees.feature < 0) | (trees.feature >= features)).any():
        raise ValueError(f"a node splits on a feature outside 0..{features - 1}")
    if not np.isfinite(trees.value).all() or (trees.cover[trees.roots] <= 0).any():
        raise ValueError("a value is not a number, or a tree covers nothing")
