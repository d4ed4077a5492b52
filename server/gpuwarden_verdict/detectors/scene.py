"""What the detectors of one sweep share: columns that may be judged, jobs, models, load, groups."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np

from gpuwarden_verdict.context import FleetContext
from gpuwarden_verdict.detectors.peer_groups import model_codes
from gpuwarden_verdict.detectors.reading import Bool, heard_of, read_now
from gpuwarden_verdict.grouping import Grouping
from gpuwarden_verdict.memory import NO_CODE
from gpuwarden_verdict.tuning.limits import Scopes
from gpuwarden_verdict.windows import FleetReading, KindView
from gpuwarden_verdict.windows.planes import F32, I64
from gpuwarden_wire.metrics import EntityKind

LOAD = "gpu_utilization_ratio"
IDLE, BUSY = 0.15, 0.7
"""Limits of the load bands: GPUs are compared within idle, light and busy."""
BANDS = 3

FEWEST_IN_JOB = 4
"""Fewest of a job in one phase whose middle says what is usual: half a board."""
FEWEST_IN_FLEET = 8
"""One HGX board's worth of GPUs: fewer say nothing about what is usual."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Scene:
    """One kind of entity at one sweep; what is made of it is made once a sweep.

    Attributes:
        kind: The kind.
        state: The windows.
        fleet: What is known besides.
        now: Epoch seconds.
    """

    kind: EntityKind
    state: FleetReading
    fleet: FleetContext
    now: float

    @property
    def view(self) -> KindView:
        """All N entities of the kind."""
        return self.state.view(self.kind)

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Something made once a sweep."""
        view = self.view
        shared = self.fleet.memory.scratch(self.fleet)
        whole = (self.kind, id(view), view.changes, key)
        found = shared.get(whole)
        if found is None:  # the view with it: its identity is not given away
            found = shared[whole] = view, make()
        return cast("T", found[1])

    def known(self, key: Hashable) -> Any:
        """What was made once a sweep already, None where it was not."""
        view = self.view
        found = self.fleet.memory.scratch(self.fleet).get((self.kind, id(view), view.changes, key))
        return None if found is None else found[1]

    def of(self, kind: EntityKind) -> Scene:
        """The same sweep, another kind."""
        return Scene(kind, self.state, self.fleet, self.now)

    def heard(self) -> Bool:
        """Entities of nodes that are heard of, and that their node goes on to name, shape (N,)."""
        return self.once("heard", lambda: heard_of(self.state, self.view, self.fleet))

    def known_metrics(self) -> frozenset[str]:
        """Metrics that anybody ever sent."""
        return self.once("metrics", lambda: frozenset(self.view.metrics))

    def fresh(self, metric: str) -> Bool:
        """Entities whose reading may be judged (`reading.fresh`), shape (N,)."""
        return self.once(("fresh", metric), lambda: read_now(self.view, metric) & self.heard())

    def latest(self, metric: str) -> F32:
        """Latest readings, NaN where they may not be judged, shape (N,)."""
        view = self.view
        return self.once(
            ("latest", metric), lambda: np.where(self.fresh(metric), view.last(metric), np.nan)
        )

    def mean(self, metric: str) -> F32:
        """Means of the last minute, of counters their rates a second; NaN as in `latest`."""
        view = self.view
        return self.once(
            ("mean", metric), lambda: np.where(self.fresh(metric), view.ewma_fast(metric), np.nan)
        )

    def grown_1h(self, metric: str) -> F32:
        """Growth of a counter, decayed over an hour; NaN as in `latest`."""
        view = self.view
        return np.where(self.fresh(metric), view.increment_1h(metric), np.nan).astype(np.float32)

    def grown_24h(self, metric: str) -> F32:
        """Growth of a counter, decayed over a day; NaN as in `latest`."""
        view = self.view
        return np.where(self.fresh(metric), view.increment_24h(metric), np.nan).astype(np.float32)

    def models(self) -> I64:
        """Model of each GPU, NO_CODE where it is not known, shape (N,)."""
        return model_codes(self.view, self.fleet)

    def jobs(self) -> I64:
        """Job of each entity, NO_CODE for none; of all but GPUs, the only job of their node."""
        if self.kind is EntityKind.GPU:
            return self.fleet.memory.codes(self.view, "jobs", self.fleet.jobs)
        if self.kind is EntityKind.NODE:
            return self.once("jobs", self._node_jobs)
        return self.once("jobs", lambda: self.of(EntityKind.NODE).jobs()[self.view.node_rows])

    def pools(self) -> I64:
        """Pool of each entity's node, NO_CODE where it is not known, shape (N,)."""
        nodes = self.state.view(EntityKind.NODE)
        of_node = self.fleet.memory.codes(nodes, "pools", self.fleet.pools)
        return of_node[self.view.node_rows]

    def bands(self) -> I64:
        """Load band of each GPU: 0 idle, 1 light, 2 busy, NO_CODE where it is not known."""
        return self.once("bands", self._bands)

    def grouping(self, name: str, fewest: int, codes: Callable[[], I64]) -> Grouping:
        """Groups, made once a sweep under a name."""
        return self.once(("grouping", name), lambda: Grouping(codes(), fewest))

    def lasting_grouping(self, name: str, fewest: int, codes: Callable[[], I64]) -> Grouping:
        """Groups that seldom change, made anew only when they do."""
        return self.once(
            ("grouping", name, fewest),
            lambda: self.fleet.memory.lasting(
                ("grouping", self.kind, name, fewest), codes(), lambda of: Grouping(of, fewest)
            ),
        )

    def scopes(self) -> Scopes:
        """What limits are learnt for: pools, of GPUs models in pools."""
        return self.once("scopes", self._scopes)

    def _bands(self) -> I64:
        load = self.mean(LOAD)
        with np.errstate(invalid="ignore"):
            band = (load > IDLE).astype(np.int64) + (load > BUSY)
        return np.where(np.isnan(load), NO_CODE, band)

    def _node_jobs(self) -> I64:
        gpus = self.of(EntityKind.GPU)
        jobs, nodes = gpus.jobs(), gpus.view.node_rows
        lowest = np.full(len(self.view), np.iinfo(np.int64).max)
        highest = np.full(len(self.view), NO_CODE)
        np.minimum.at(lowest, nodes, jobs)
        np.maximum.at(highest, nodes, jobs)
        return np.where(lowest == highest, highest, NO_CODE)

    def _scopes(self) -> Scopes:
        memory, pools = self.fleet.memory, self.pools() + 1  # 0 is a node without a pool
        pool_words = ("", *memory.words("pools"))
        gpus = self.kind is EntityKind.GPU
        models = self.models() + 1 if gpus else np.zeros(len(self.view), np.int64)
        model_words = ("", *memory.words("models")) if gpus else ("",)
        both = pools * len(model_words) + models
        used = np.flatnonzero(np.bincount(both, minlength=len(pool_words) * len(model_words)))
        numbers = np.zeros(int(used.max(initial=0)) + 1, np.int64)
        numbers[used] = np.arange(used.size)
        of_pool = [pool_words[n // len(model_words)] for n in used.tolist()]
        of_model = [model_words[n % len(model_words)] for n in used.tolist()]
        names = tuple(f"{p}/{m}" if m else p for p, m in zip(of_pool, of_model, strict=True))
        return Scopes(names, tuple(of_pool), numbers[both])


def combined(*parts: I64) -> I64:
    """One code for each combination of codes; NO_CODE where any part has none."""
    whole = np.zeros(parts[0].shape, np.int64)
    known = np.ones(parts[0].shape, np.bool_)
    for part in parts:
        known &= part != NO_CODE
        whole = whole * (int(part.max(initial=0)) + 1) + part
    return np.where(known, whole, NO_CODE)
