"""The REST routes as a typed, blocking client.

One `Client` is safe to use from several threads; each call is one request and nothing is retried
here: who calls knows whether waiting makes sense (`GpuwardenError.retryable`).
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx
import msgspec
from httpx_sse import EventSource, connect_sse

from gpuwarden_runtime.config import RuntimeSettings
from gpuwarden_runtime.errors import Refused, ServerUnreachable, SettingError, UnexpectedAnswer
from gpuwarden_runtime.mends import mend_of
from gpuwarden_runtime.records import (
    DecisionRecord,
    EventPage,
    ExclusionSet,
    Fleet,
    GpuRecord,
    IncidentRecord,
    KeyRecord,
    NodeRecord,
    Page,
    Role,
    Verdicts,
    Why,
)
from gpuwarden_wire.acknowledgement import Problem
from gpuwarden_wire.codec import decode_problem
from gpuwarden_wire.version import __version__

Answer = TypeVar("Answer")

_TIMEOUT = httpx.Timeout(10.0, connect=5.0)
# The stream's heartbeat comes every 10 s: three missed ones are a broken connection.
STREAM_SILENCE_S = 30.0

_EVENT_PAGE = 1000


class Client:
    """A connection to one gpuwarden server.

    Args:
        settings: Address, key and certificates.
        transport: Stands in for the network (in-process applications); None for real HTTP.

    Raises:
        SettingError: The certificate file cannot be used.
    """

    def __init__(
        self, settings: RuntimeSettings, transport: httpx.BaseTransport | None = None
    ) -> None:
        self.url = settings.url
        headers = {"User-Agent": f"gpuwarden/{__version__}", "Accept": "application/json"}
        if settings.key:
            headers["Authorization"] = f"Bearer {settings.key}"
        # trust_env off: a proxy meant for the internet must not stand between a node and its
        # server, least of all on loopback.
        self._http = httpx.Client(
            base_url=settings.url,
            headers=headers,
            timeout=_TIMEOUT,
            verify=_certificates(settings),
            trust_env=False,
            transport=transport,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    # Reading

    def verdicts(self, nodes: Sequence[str] = ()) -> Verdicts:
        """Verdicts of the nodes named, of all where none is named.

        A node that the server never saw is answered with usable `unknown`.
        """
        if len(nodes) <= 50:  # a longer query outgrows the line limits of common proxies (8 kB)
            return self._get("/v1/verdicts", Verdicts, {"node": list(nodes)})
        return self._post("/v1/verdicts", Verdicts, {"nodes": list(nodes)})

    def nodes(self, cursor: str | int | None = None, limit: int = 200) -> Page[NodeRecord]:
        """One page of nodes."""
        return self._get("/v1/nodes", Page[NodeRecord], {"cursor": cursor, "limit": limit})

    def all_nodes(self) -> Iterator[NodeRecord]:
        """Every node, page after page."""
        page = self.nodes()
        yield from page.items
        while page.next_cursor is not None:
            page = self.nodes(page.next_cursor)
            yield from page.items

    def node(self, node_id: str) -> NodeRecord:
        """One node."""
        return self._get(f"/v1/nodes/{_segment(node_id)}", NodeRecord)

    def gpu(self, gpu_uuid: str) -> GpuRecord:
        """One GPU with its readings."""
        return self._get(f"/v1/gpus/{_segment(gpu_uuid)}", GpuRecord)

    def why_gpu(self, gpu_uuid: str) -> Why:
        """What stands behind a GPU's verdict."""
        return self._get(f"/v1/gpus/{_segment(gpu_uuid)}/why", Why)

    def why_node(self, node_id: str) -> Why:
        """What stands behind a node's verdict."""
        return self._get(f"/v1/nodes/{_segment(node_id)}/why", Why)

    def incidents(
        self,
        phase: str | None = None,
        node: str | None = None,
        cursor: str | int | None = None,
        limit: int = 200,
    ) -> Page[IncidentRecord]:
        """One page of incidents, newest first."""
        query = {"phase": phase, "node": node, "cursor": cursor, "limit": limit}
        return self._get("/v1/incidents", Page[IncidentRecord], query)

    def incident(self, incident_id: str) -> IncidentRecord:
        """One incident."""
        return self._get(f"/v1/incidents/{_segment(incident_id)}", IncidentRecord)

    def decisions(
        self,
        phase: str | None = None,
        node: str | None = None,
        cursor: str | int | None = None,
        limit: int = 200,
    ) -> Page[DecisionRecord]:
        """One page of decisions, newest first."""
        query = {"phase": phase, "node": node, "cursor": cursor, "limit": limit}
        return self._get("/v1/decisions", Page[DecisionRecord], query)

    def exclusions(self) -> ExclusionSet:
        """The exclusions in force and those that observe mode would make."""
        return self._get("/v1/exclusions", ExclusionSet, {"format": "json"})

    def exclusions_text(self, form: str, scope: str = "any") -> str:
        """The exclusions as `hosts` (a node a line) or `slurm` (one comma-separated line)."""
        return self._send(
            "GET", "/v1/exclusions", params={"format": form, "scope": scope}
        ).content.decode("utf-8", errors="replace")

    def all_events(self, node: str | None = None) -> Iterator[dict[str, Any]]:
        """Every stored event in order of arrival, page after page, as the server keeps it."""
        after: int | None = 0
        while after is not None:
            query = {"node": node, "after": after, "limit": _EVENT_PAGE}
            page = self._get("/v1/events", EventPage, query)
            yield from page.items
            # The position is given on the last page too, for who comes back later.
            after = page.next_after if len(page.items) == _EVENT_PAGE else None

    def fleet(self) -> Fleet:
        """Summary of the fleet."""
        return self._get("/v1/fleet", Fleet)

    def check_ready(self) -> None:
        """Return where the server is ready to serve.

        Raises:
            ServerUnreachable: It is not there (yet).
            Refused: It is there and not ready; the problem or page says what is missing.
        """
        self._send("GET", "/readyz")

    def raw(self, path: str, query: Mapping[str, object] | None = None) -> Any:
        """The JSON of any GET route, undigested.

        Raises:
            UnexpectedAnswer: No JSON.
        """
        return self._get(path, object, query)

    # Acting

    def acknowledge_incident(self, incident_id: str, reason: str) -> None:
        """Say that somebody looks after an incident."""
        self._send(
            "POST", f"/v1/incidents/{_segment(incident_id)}/acknowledge", body={"reason": reason}
        )

    def revoke_decision(self, decision_id: str, reason: str) -> None:
        """Take a decision back; its incident is acquitted."""
        self._send("POST", f"/v1/decisions/{_segment(decision_id)}/revoke", body={"reason": reason})

    def approve_decision(self, decision_id: str, reason: str) -> None:
        """Put an advised decision in force."""
        self._send(
            "POST", f"/v1/decisions/{_segment(decision_id)}/approve", body={"reason": reason}
        )

    def repair_gpu(self, gpu_uuid: str, reason: str) -> None:
        """Say that a GPU is being repaired; a passed check brings it back."""
        self._send("POST", f"/v1/gpus/{_segment(gpu_uuid)}/repair", body={"reason": reason})

    def repair_node(self, node_id: str, reason: str) -> None:
        """Say that a node is being repaired; a passed check brings it back."""
        self._send("POST", f"/v1/nodes/{_segment(node_id)}/repair", body={"reason": reason})

    def retire_node(self, node_id: str, reason: str) -> None:
        """Take a node that is switched off for good out of the fleet."""
        self._send("POST", f"/v1/nodes/{_segment(node_id)}/retire", body={"reason": reason})

    def create_key(
        self,
        role: Role,
        node: str | None,
        name: str,
        *,
        expires_in_s: float | None = None,
        scope: Mapping[str, Sequence[str]] | None = None,
    ) -> KeyRecord:
        """Make a key; the answer is the only place that ever shows it.

        Args:
            role: What it may do.
            node: Node of an agent's key, None for other roles.
            name: For people and the audit.
            expires_in_s: Seconds after which it is refused, None for never.
            scope: What to narrow it to: "nodes", "pools", "resources".
        """
        body = {"role": role, "node": node, "name": name, "expires_in_s": expires_in_s}
        return self._post("/v1/keys", KeyRecord, body | {"scope": scope or None})

    def rotate_key(
        self, key_id: str, grace_s: float, expires_in_s: float | None = None
    ) -> KeyRecord:
        """Give a key a new secret, shown in this answer only; the former goes on for `grace_s`."""
        body = {"grace_s": grace_s, "expires_in_s": expires_in_s}
        return self._post(f"/v1/keys/{_segment(key_id)}/rotate", KeyRecord, body)

    def keys(self) -> tuple[KeyRecord, ...]:
        """All keys, without their secrets."""
        return self._get("/v1/keys", Page[KeyRecord]).items

    def delete_key(self, key_id: str) -> None:
        """End a key."""
        self._send("DELETE", f"/v1/keys/{_segment(key_id)}")

    # Following

    @contextmanager
    def exclusion_stream(self, last_event_id: str | None) -> Iterator[EventSource]:
        """The exclusion feed as server-sent events.

        Args:
            last_event_id: "FEED_ID:EPOCH" to be sent what was missed since; None for the present
                position only.

        Raises:
            ServerUnreachable: No answer, or the connection broke; also while iterating.
            Refused: The server said no.
            UnexpectedAnswer: Not an event stream.
        """
        headers = {"Last-Event-ID": last_event_id} if last_event_id else {}
        timeout = httpx.Timeout(10.0, read=STREAM_SILENCE_S)
        with (
            self._translated(),
            connect_sse(
                self._http, "GET", "/v1/exclusions/stream", headers=headers, timeout=timeout
            ) as source,
        ):
            response = source.response
            if response.status_code != httpx.codes.OK:
                response.read()
                raise self._refusal(response)
            if "text/event-stream" not in response.headers.get("content-type", ""):
                raise UnexpectedAnswer(f"{response.url} is no event stream", _NOT_OURS)
            yield source

    # One request

    def _get(
        self, path: str, kind: type[Answer], query: Mapping[str, object] | None = None
    ) -> Answer:
        return _decode(self._send("GET", path, params=query), kind)

    def _post(self, path: str, kind: type[Answer], body: object) -> Answer:
        return _decode(self._send("POST", path, body=body), kind)

    def _send(
        self,
        method: str,
        path: str,
        params: Mapping[str, object] | None = None,
        body: object = None,
    ) -> httpx.Response:
        content = None if body is None else msgspec.json.encode(body)
        with self._translated():
            response = self._http.request(
                method,
                path,
                params=_query(params),
                content=content,
                headers={"Content-Type": "application/json"} if content is not None else None,
            )
        if not response.is_success:
            raise self._refusal(response)
        return response

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except httpx.TransportError as error:
            what = str(error) or type(error).__name__
            raise ServerUnreachable(
                f"no answer from {self.url}: {what}",
                "is `gpuwarden server` running there? The address is GPUWARDEN_URL or --url",
            ) from error

    def _refusal(self, response: httpx.Response) -> Refused | UnexpectedAnswer:
        problem = decode_problem(response.content)
        if problem is None:
            return UnexpectedAnswer(
                f"{response.url} answered {response.status_code} without problem details",
                _NOT_OURS,
                retryable=response.is_server_error,
            )
        mend = mend_of(problem, response.request.url.path)
        problem = msgspec.structs.replace(problem, mend=mend)
        return Refused(_named(problem, response))


_NOT_OURS = "does GPUWARDEN_URL name a gpuwarden server, with no proxy in between?"


def _named(problem: Problem, response: httpx.Response) -> Problem:
    if problem.detail:
        return problem
    detail = f"{response.request.method} {response.url.path}: {problem.title}"
    return msgspec.structs.replace(problem, detail=detail)


def _decode(response: httpx.Response, kind: type[Answer]) -> Answer:
    try:
        return msgspec.json.decode(response.content, type=kind)
    except msgspec.DecodeError as error:
        raise UnexpectedAnswer(
            f"{response.request.method} {response.url.path}: {error}", _NOT_OURS
        ) from error


def _query(params: Mapping[str, object] | None) -> httpx.QueryParams:
    pairs: list[tuple[str, str]] = []
    for name, value in (params or {}).items():
        if isinstance(value, list):
            pairs.extend((name, str(item)) for item in value)
        elif value is not None:
            pairs.append((name, str(value)))
    return httpx.QueryParams(tuple(pairs))


def _segment(name: str) -> str:
    """An entity name as one path segment: a slash or dot in it must not become a path."""
    return quote(name, safe="")


def _certificates(settings: RuntimeSettings) -> ssl.SSLContext | bool:
    if settings.ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=str(settings.ca_file))
    except OSError as error:  # ssl.SSLError is an OSError
        raise SettingError(
            f"certificates {settings.ca_file}: {error}", "point GPUWARDEN_CA_FILE at a PEM file"
        ) from error
