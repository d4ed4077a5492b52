"""/v1/policy/…: versions, differences, what another policy would have done; a decision's replay."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter

from gpuwarden_server.core.clock import Clock
from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.decisions.policy import LoadedPolicy, make_policy
from gpuwarden_server.policies import repository
from gpuwarden_server.policies.history import DecisionHistory
from gpuwarden_server.policies.schemas import (
    DiffBody,
    DiffView,
    PolicyTextView,
    PolicyVersionsView,
    ReplayBody,
    ReplayView,
    SimulationBody,
    SimulationView,
    diff_view,
    replay_view,
    simulation_view,
    version_view,
)
from gpuwarden_server.store.database import Database
from gpuwarden_verdict.policy.diff import changes_between, moves_between
from gpuwarden_verdict.policy.document import PolicyDocument
from gpuwarden_verdict.policy.parse import PolicyError

Labels = Callable[[], list[tuple[str, dict[str, str]]]]
"""All nodes with their labels."""


def policies_router(
    state: Database, history: DecisionHistory, loaded: LoadedPolicy, labels: Labels, clock: Clock
) -> APIRouter:
    """Routes of policies."""
    router = APIRouter(prefix="/v1/policy", tags=["policy"])
    in_force = loaded.document

    @router.get("/versions", summary="Policies that servers began with, the newest first")
    def list_policy_versions() -> PolicyVersionsView:
        with state.read() as connection:
            kept = repository.read_texts(connection)
        return PolicyVersionsView(items=[version_view(one, in_force.version) for one in kept])

    @router.get("/versions/{version}", summary="One of them, with its text")
    def read_policy_version(version: str) -> PolicyTextView:
        kept = history.text(version)
        told = version_view(kept, in_force.version)
        return PolicyTextView(**told.model_dump(), text=kept.text)

    @router.post("/diff", summary="What differs between two policies, and nodes that change pool")
    def compare_policies(body: DiffBody) -> DiffView:
        before, after = (
            in_force if text is None else _parsed(text, loaded)
            for text in (body.before, body.after)
        )
        return diff_view(
            (before.version, after.version),
            changes_between(before, after),
            moves_between(before, after, labels()),
        )

    @router.post("/simulation", summary="What a policy would have made of stored decisions")
    def simulate_policy(body: SimulationBody) -> SimulationView:
        document = _parsed(body.policy, loaded)
        found = history.rejudge(document, body.since, clock.now())
        return simulation_view((in_force.version, document.version), body.since, found)

    return router


def replay_router(history: DecisionHistory, loaded: LoadedPolicy) -> APIRouter:
    """A decision judged again."""
    router = APIRouter(prefix="/v1/decisions", tags=["decisions"])

    @router.post(
        "/{decision_id}/replay",
        summary="Judge it again from what it rested on: by its own policy, or by another",
    )
    def replay_decision(decision_id: str, body: ReplayBody) -> ReplayView:
        other = None if body.policy is None else _parsed(body.policy, loaded)
        steps = history.replay(decision_id, other)
        return replay_view(decision_id, steps, own_policy=other is None)

    return router


def _parsed(text: str, loaded: LoadedPolicy) -> PolicyDocument:
    """A policy that somebody asks about, with this server's GPUWARDEN_MODE as it would get.

    Raises:
        ProblemError: 422; names the key and the mend.
    """
    try:
        return make_policy(text, loaded.mode)
    except PolicyError as error:
        raise ProblemError(
            422,
            "invalid_policy",
            f"policy: {error.key} = {error.value!r} cannot be used",
            f"Correct it: {error.mend}.",
        ) from error
