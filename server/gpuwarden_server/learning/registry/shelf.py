"""The models in use: read once, replaced whole when a person promotes another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from gpuwarden_server.learning.models import no_model_in, said
from gpuwarden_server.learning.registry import repository
from gpuwarden_server.learning.registry.domain import (
    MODEL_KINDS,
    Choice,
    Chosen,
    by_preference,
)
from gpuwarden_server.learning.registry.library import Library, Loaded
from gpuwarden_server.store.database import Database
from gpuwarden_verdict.fusion import FusionModels, ModelError
from gpuwarden_wire.metrics import EntityKind

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Standing:
    """What is in use for one kind.

    Attributes:
        promoted: Judges; None: rules judge alone.
        challenger: Scored in shadow, None for none.
        trouble: Why what was chosen is not in use, and what to do; "" where it is.
    """

    promoted: Loaded | None = None
    challenger: Loaded | None = None
    trouble: str = ""


class ShelfMeters:
    """Which models are loaded, and what could not be."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.loaded = Gauge(
            "gpuwarden_model_loaded",
            "1 while a learnt model scores a kind in a role, 0 while rules judge it alone.",
            ["kind", "role", "version"],
            registry=registry,
        )
        self.refused = Counter(
            "gpuwarden_models_refused_total",
            "Model versions that were chosen and could not be used.",
            ["kind"],
            registry=registry,
        )
        for kind in MODEL_KINDS:
            self.refused.labels(kind.value)


class ModelShelf:
    """Models by kind and role; any thread may read, people's commands replace."""

    def __init__(self, library: Library, state: Database, registry: CollectorRegistry) -> None:
        """Take what the model folder names; `load` follows what people chose."""
        self._library = library
        self._state = state
        self._meters = ShelfMeters(registry)
        self._lock = Lock()
        self._told: Mapping[EntityKind, Standing] = {}
        self._changed: list[Callable[[], None]] = []
        self._standings = {kind: self._default(kind) for kind in MODEL_KINDS}
        if not any(one.promoted or one.trouble for one in self._standings.values()):
            self._standings[EntityKind.GPU] = Standing(trouble=no_model_in(library.folder))
        self._tell()

    def follow(self, changed: Callable[[], None]) -> None:
        """Call `changed` after each change."""
        self._changed.append(changed)

    def load(self) -> None:
        """Take up what people chose; what cannot be used is replaced by what was before it."""
        with self._state.read() as connection:
            choices = repository.read_choices(connection)
        for kind, choice in choices.items():
            self.put(kind, self._chosen(kind, choice))

    def put(self, kind: EntityKind, standing: Standing) -> None:
        """Use other models for a kind from now on."""
        with self._lock:
            self._standings = {**self._standings, kind: standing}
            self._tell()
        for changed in self._changed:
            changed()

    def standing(self, kind: EntityKind) -> Standing:
        """What is in use for a kind."""
        return self._standings.get(kind, Standing())

    @property
    def trouble(self) -> str:
        """Why what was chosen is not in use, of all kinds; "" for none."""
        troubles = (standing.trouble for standing in self._standings.values())
        return "; ".join(dict.fromkeys(trouble for trouble in troubles if trouble))

    def promoted(self) -> FusionModels:
        """The models that judge, by kind."""
        return {k: s.promoted.model for k, s in self._standings.items() if s.promoted is not None}

    def challengers(self) -> FusionModels:
        """The models that are scored in shadow, by kind."""
        standings = self._standings.items()
        return {k: s.challenger.model for k, s in standings if s.challenger is not None}

    def _default(self, kind: EntityKind) -> Standing:
        try:
            loaded = self._library.load_default(kind)
        except (ModelError, OSError) as error:
            return Standing(trouble=said(error))
        return Standing(loaded)

    def _chosen(self, kind: EntityKind, choice: Choice) -> Standing:
        promoted, trouble = self._first(kind, choice)
        challenger = None
        if choice.challenger is not None:
            challenger, refused = self._try(kind, choice.challenger)
            trouble = trouble or refused
        return Standing(promoted, challenger, trouble)

    def _first(self, kind: EntityKind, choice: Choice) -> tuple[Loaded | None, str]:
        """The best version that can be used, and why it is not the promoted one.

        Where none of those chosen can be, the one that the model folder names.
        """
        if choice.promoted is None:
            standing = self.standing(kind)
            return standing.promoted, standing.trouble
        trouble = ""
        for chosen in by_preference(choice):
            loaded, refused = self._try(kind, chosen)
            if loaded is not None:
                used = f"; {loaded.model.version} is used instead" if trouble else ""
                return loaded, trouble + used
            trouble = trouble or refused
        default = self._default(kind).promoted
        if default is None:
            return None, trouble
        return default, f"{trouble}; {default.model.version}, which the model folder names, is used"

    def _try(self, kind: EntityKind, chosen: Chosen) -> tuple[Loaded | None, str]:
        try:
            return self._library.load_chosen(kind, chosen), ""
        except ModelError as error:
            self._meters.refused.labels(kind.value).inc()
            return None, str(error)

    def _tell(self) -> None:
        """Log and count what changed."""
        self._meters.loaded.clear()
        for kind, standing in self._standings.items():
            version = standing.promoted.model.version if standing.promoted is not None else ""
            if version or standing.trouble:
                present = 1 if version else 0
                self._meters.loaded.labels(kind.value, "promoted", version).set(present)
            if standing.challenger is not None:
                name = standing.challenger.model.version
                self._meters.loaded.labels(kind.value, "challenger", name).set(1)
            if standing != self._told.get(kind, Standing()):
                _log_standing(kind, standing)
        self._told = self._standings


def _log_standing(kind: EntityKind, standing: Standing) -> None:
    if standing.trouble:
        used = standing.promoted.model.version if standing.promoted is not None else ""
        _log.warning("model_not_loaded", kind=kind.value, reason=standing.trouble, used=used)
        return
    _log.info(
        "model_in_use",
        kind=kind.value,
        version=standing.promoted.model.version if standing.promoted is not None else "",
        challenger=standing.challenger.model.version if standing.challenger is not None else "",
    )
