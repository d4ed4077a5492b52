"""The methods that both clients have, once: each sends the call of the same name.

On a `Client` a route is a plain method, on an `AsyncClient` one to await; both have the parameters
of the function in `calls.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from gpuwarden_runtime import (
    calls,
    diagnosis_calls,
    job_calls,
    learning_calls,
    moves,
    standby_calls,
    told_calls,
)
from gpuwarden_runtime.call import Call
from gpuwarden_runtime.moves import MoveStream, Told
from gpuwarden_runtime.records import Page

if TYPE_CHECKING:  # both import this module
    from gpuwarden_runtime.async_client import AsyncClient
    from gpuwarden_runtime.client import Client

P = ParamSpec("P")
Answer = TypeVar("Answer")
Item = TypeVar("Item")


class Route(Generic[P, Answer]):
    """A method that sends one call."""

    def __init__(self, make: Callable[P, Call[Answer]]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Route[P, Answer]: ...
    @overload
    def __get__(self, client: Client, owner: type) -> Callable[P, Answer]: ...
    @overload
    def __get__(
        self, client: AsyncClient, owner: type
    ) -> Callable[P, Coroutine[Any, Any, Answer]]: ...
    def __get__(self, client: Client | AsyncClient | None, owner: type) -> Any:
        """The method of one client."""
        if client is None:
            return self

        def send(*args: P.args, **kwargs: P.kwargs) -> Any:
            return client.send(self._make(*args, **kwargs))

        send.__doc__ = self.__doc__
        return send


class Walk(Generic[P, Item]):
    """A method that goes through a list, page after page."""

    def __init__(self, make: Callable[P, Call[Page[Item]]]) -> None:
        self._make = make
        self.__doc__ = (
            f"Every item, page after page; as the route whose pages they are:\n\n{make.__doc__}"
        )

    @overload
    def __get__(self, client: None, owner: type) -> Walk[P, Item]: ...
    @overload
    def __get__(self, client: Client, owner: type) -> Callable[P, Iterator[Item]]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: type) -> Callable[P, AsyncIterator[Item]]: ...
    def __get__(self, client: Client | AsyncClient | None, owner: type) -> Any:
        """The method of one client."""
        if client is None:
            return self

        def walk(*args: P.args, **kwargs: P.kwargs) -> Any:
            return client.walk(lambda **where: self._make(*args, **{**kwargs, **where}))

        walk.__doc__ = self.__doc__
        return walk


class Follow(Generic[P, Item]):
    """A method that follows a stream until its reader stops."""

    def __init__(self, make: Callable[P, MoveStream[Item]]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Follow[P, Item]: ...
    @overload
    def __get__(self, client: Client, owner: type) -> Callable[P, Iterator[Told[Item]]]: ...
    @overload
    def __get__(
        self, client: AsyncClient, owner: type
    ) -> Callable[P, AsyncIterator[Told[Item]]]: ...
    def __get__(self, client: Client | AsyncClient | None, owner: type) -> Any:
        """The method of one client."""
        if client is None:
            return self

        def follow(*args: P.args, **kwargs: P.kwargs) -> Any:
            return client.follow(self._make(*args, **kwargs))

        follow.__doc__ = self.__doc__
        return follow


class Routes:
    """All routes; `Client` and `AsyncClient` say how they are sent."""

    verdicts = Route(calls.verdicts)
    exclusions = Route(calls.exclusions)
    exclusions_text = Route(calls.exclusions_text)
    nodes = Route(calls.nodes)
    all_nodes = Walk(calls.nodes)
    node = Route(calls.node)
    gpus = Route(calls.gpus)
    all_gpus = Walk(calls.gpus)
    gpu = Route(calls.gpu)
    why_gpu = Route(calls.why_gpu)
    why_node = Route(calls.why_node)
    why_job = Route(job_calls.why_job)
    end_job = Route(job_calls.end_job)
    diagnose = Route(diagnosis_calls.diagnose)
    diagnoses = Route(diagnosis_calls.diagnoses)
    all_diagnoses = Walk(diagnosis_calls.diagnoses)
    diagnosis = Route(diagnosis_calls.diagnosis)
    tell_progress = Route(diagnosis_calls.tell_progress)
    fleet = Route(calls.fleet)
    policy = Route(calls.policy)
    repair_gpu = Route(calls.repair_gpu)
    repair_node = Route(calls.repair_node)
    retire_node = Route(calls.retire_node)
    rename_node = Route(calls.rename_node)
    add_node = Route(calls.add_node)
    inventory = Route(calls.inventory)
    all_inventory = Walk(calls.inventory)
    put_inventory = Route(calls.put_inventory)
    incidents = Route(calls.incidents)
    all_incidents = Walk(calls.incidents)
    incident = Route(calls.incident)
    acknowledge_incident = Route(calls.acknowledge_incident)
    clear_incident = Route(calls.clear_incident)
    judge_incident = Route(learning_calls.judge_incident)
    labels = Route(learning_calls.labels)
    all_labels = Walk(learning_calls.labels)
    models = Route(learning_calls.models)
    add_model = Route(learning_calls.add_model)
    model_files = Route(learning_calls.model_files)
    promote_model = Route(learning_calls.promote_model)
    roll_back_model = Route(learning_calls.roll_back_model)
    challenge_model = Route(learning_calls.challenge_model)
    end_challenger = Route(learning_calls.end_challenger)
    shadow = Route(learning_calls.shadow)
    record_trial = Route(learning_calls.record_trial)
    feature_rows = Route(learning_calls.feature_rows)
    all_feature_rows = Walk(learning_calls.feature_rows)
    decisions = Route(calls.decisions)
    all_decisions = Walk(calls.decisions)
    decision = Route(calls.decision)
    revoke_decision = Route(calls.revoke_decision)
    approve_decision = Route(calls.approve_decision)
    standby = Route(standby_calls.standby)
    standby_leases = Route(standby_calls.standby_leases)
    add_standby = Route(standby_calls.add_standby)
    remove_standby = Route(standby_calls.remove_standby)
    promote_standby = Route(standby_calls.promote_standby)
    release_standby = Route(standby_calls.release_standby)
    events = Route(calls.events)
    all_events = Walk(calls.events)
    history = Route(told_calls.history)
    follow_incidents = Follow(moves.incident_moves)
    follow_states = Follow(moves.state_moves)
    endpoints = Route(told_calls.endpoints)
    test_endpoint = Route(told_calls.test_endpoint)
    enable_endpoint = Route(told_calls.enable_endpoint)
    replay_messages = Route(told_calls.replay_messages)
    messages = Route(told_calls.messages)
    all_messages = Walk(told_calls.messages)
    deliveries = Route(told_calls.deliveries)
    all_deliveries = Walk(told_calls.deliveries)
    silences = Route(told_calls.silences)
    create_silence = Route(told_calls.create_silence)
    expire_silence = Route(told_calls.expire_silence)
    keys = Route(calls.keys)
    all_keys = Walk(calls.keys)
    create_key = Route(calls.create_key)
    rotate_key = Route(calls.rotate_key)
    delete_key = Route(calls.delete_key)
    create_enrolment_token = Route(calls.create_enrolment_token)
    enrolment_tokens = Route(calls.enrolment_tokens)
    delete_enrolment_token = Route(calls.delete_enrolment_token)
    audit = Route(calls.audit)
    all_audit = Walk(calls.audit)
    check_ready = Route(calls.check_ready)
    raw = Route(calls.raw)
    raw_post = Route(calls.raw_post)
    raw_ask = Route(calls.raw_ask)
