"""POST /v1/nodes/{node_id}/rename: a node is called something else, and stays what it was."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Annotated, Protocol

import structlog
from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from gpuwarden_server.access.authorisation import Caller
from gpuwarden_server.access.keys import KeyRing
from gpuwarden_server.core.bodies import Body
from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.core.ids import NODE_ID_PATTERN
from gpuwarden_server.decisions.ports import Author
from gpuwarden_server.fleet.directory import FleetDirectory
from gpuwarden_server.history.feature import History
from gpuwarden_server.ingest.names import FormerNames
from gpuwarden_server.ingest.refusals import RefusalBook
from gpuwarden_server.ingest.service import IngestService
from gpuwarden_server.ingest.sessions import Sessions
from gpuwarden_server.ingest.state import GuardedState
from gpuwarden_server.inventory.book import Placements
from gpuwarden_server.judging.feature import Judging

_log = structlog.get_logger(__name__)
OnLoop = Callable[[str, str], None]
"""Given the old name and the new one, on the event loop."""


class Base(Protocol):
    """What keeps names of nodes in memory, as the app has it."""

    @property
    def ring(self) -> KeyRing:
        """Valid keys."""

    @property
    def state(self) -> GuardedState:
        """Columnar state of the fleet."""

    @property
    def sessions(self) -> Sessions:
        """What the front door remembers of each node."""

    @property
    def names(self) -> FormerNames:
        """What nodes were called before."""

    @property
    def refusals(self) -> RefusalBook:
        """Agents that were refused."""

    @property
    def directory(self) -> FleetDirectory:
        """Nodes and GPUs."""

    @property
    def placements(self) -> Placements:
        """Where nodes are."""

    @property
    def history(self) -> History:
        """What was measured."""


class RenameBody(Body):
    """What a node is to be called."""

    model_config = ConfigDict(extra="forbid")

    to: Annotated[str, StringConstraints(pattern=NODE_ID_PATTERN)] = Field(examples=["gpu-0117"])
    reason: str = Field(min_length=1, max_length=1000, description="Kept in the audit.")


class RenameView(BaseModel):
    """What a node is called, and was."""

    node_id: str
    former: list[str] = Field(
        description="names that it had, oldest first", examples=[["gpu-0017"]]
    )


def renaming_router(
    base: Base,
    service: IngestService,
    judging: Judging,
    others: Iterable[OnLoop],
    start_anew: Callable[[], None],
) -> APIRouter:
    """The route.

    Args:
        base: What keeps names in memory.
        service: Takes batches; none of the node's meanwhile.
        judging: Writes it, in turn with everything that is judged.
        others: Told too.
        start_anew: Called where a name is in the database and could not be given in memory.
    """
    router = APIRouter(prefix="/v1", tags=["fleet"])
    desk = _RenameDesk(base, service, judging, tuple(others), start_anew)

    @router.post(
        "/nodes/{node_id}/rename",
        summary="Call a node something else; history, incidents, exclusions and keys go with it",
    )
    async def rename_node(node_id: str, body: RenameBody, caller: Caller) -> RenameView:
        caller.require_nodes([body.to])
        await desk.rename(node_id, body.to, Author(caller.name, caller.key_id, body.reason))
        return RenameView(node_id=body.to, former=[one.name for one in base.names.of(body.to)])

    return router


class _RenameDesk:
    """Renames one node at a time."""

    def __init__(
        self,
        base: Base,
        service: IngestService,
        judging: Judging,
        others: tuple[OnLoop, ...],
        start_anew: Callable[[], None],
    ) -> None:
        self._start_anew = start_anew
        self._base = base
        self._service = service
        self._judging = judging
        self._others = others
        self._turn = asyncio.Lock()

    async def rename(self, old: str, new: str, author: Author) -> None:
        """Return once it is done, also where it was done before.

        Raises:
            ProblemError: 404 for a node that is not known; 409 for a name that is taken.
        """
        # Whoever asks may go away meanwhile: half a change of name must not stay.
        await asyncio.shield(asyncio.create_task(self._rename(old, new, author)))

    async def _rename(self, old: str, new: str, author: Author) -> None:
        async with self._turn:
            if self._is_done(old, new):
                return
            self._check(old, new)
            loop = asyncio.get_running_loop()

            def elsewhere(former: str, name: str, at: float) -> None:
                swap = self._swap(former, name, at)
                try:
                    asyncio.run_coroutine_threadsafe(swap, loop).result()
                except Exception:  # judge's thread: the database has it, so memory is made anew
                    _log.exception("rename_not_taken_over", worker="judge", old=former, new=name)
                    self._start_anew()
                    raise

            async with self._service.quiet(old):
                done = self._judging.rename_node(old, new, author, elsewhere)
                await asyncio.wrap_future(done)

    async def _swap(self, old: str, new: str, at: float) -> None:
        """Give the name to all that is in memory, in one step of the event loop.

        The judge waits, and nothing of the node is taken meanwhile.
        """
        base = self._base
        async with base.state.held() as state:
            state.rename_node(old, new)
            base.sessions.rename(old, new)
            base.directory.rename(old, new)
            base.names.note(old, new, at)
            base.placements.rename(old, new)
            base.ring.rename_node(old, new)
            base.refusals.rename(old, new)
            base.history.rename(old, new)
            for other in self._others:
                other(old, new)

    def _is_done(self, old: str, new: str) -> bool:
        known = self._base.directory.node
        return known(old) is None and self._base.names.present(old) == new != old

    def _check(self, old: str, new: str) -> None:
        known = self._base.directory.node
        if known(old) is None:
            present = self._base.names.present(old)
            hint = f"It is called {present} now: rename that." if present != old else ""
            raise ProblemError(404, "not_found", f"no node {old!r}", hint or "See GET /v1/nodes.")
        if known(new) is not None:
            what = "this is its name already" if old == new else f"node {new!r} is known already"
            raise ProblemError(
                409,
                "node_known",
                what,
                "Choose another name. Two nodes do not become one: where the machine has sent by "
                "both names, retire the one that it does not use (gpuwarden nodes retire NODE).",
            )
