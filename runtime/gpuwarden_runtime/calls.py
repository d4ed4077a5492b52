"""Every route as a value: what to ask, and how to read the answer; nothing is sent here.

Those of history and of who is told stand in `told_calls.py`.

Both clients send these; a new route is one function and one line in `routes.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gpuwarden_runtime.audit_records import AuditEntry, AuditPage
from gpuwarden_runtime.call import (
    NOTHING,
    Call,
    Cursor,
    act,
    get,
    read_json,
    read_nothing,
    read_rows,
    read_text,
    segment,
    write,
)
from gpuwarden_runtime.records import (
    DecisionRecord,
    EnrolmentToken,
    EntryRecord,
    EventPage,
    ExclusionSet,
    Fleet,
    GpuRecord,
    IncidentRecord,
    InventoryChanges,
    KeyRecord,
    NodeRecord,
    Page,
    PlacementRecord,
    Policy,
    RenameRecord,
    RepairRecord,
    Role,
    Verdicts,
    Why,
)
from gpuwarden_wire.acknowledgement import Usable

MOST_IN_QUERY = 50
"""A longer query of names outgrows the line limits of common proxies (8 kB)."""


# Verdicts and exclusions


def verdicts(nodes: Sequence[str] = (), *, notable: bool = False) -> Call[Verdicts]:
    """Verdicts of the nodes named, of all where none is named.

    A node that the server never saw is answered with usable `unknown`.

    Args:
        nodes: Whose.
        notable: With those GPUs only of which there is something to say: for a whole fleet.
    """
    gpus = "notable" if notable else "all"
    if len(nodes) <= MOST_IN_QUERY:
        return get("/v1/verdicts", Verdicts, {"node": list(nodes), "gpus": gpus})
    body = {"nodes": list(nodes), "gpus": gpus}
    return Call("POST", "/v1/verdicts", read_json(Verdicts), body=body)


def exclusions() -> Call[ExclusionSet]:
    """The exclusions in force and those that observe mode would make."""
    return get("/v1/exclusions", ExclusionSet, {"format": "json"})


def exclusions_text(form: str, scope: str = "any") -> Call[str]:
    """The exclusions as `hosts` (a node a line) or `slurm` (one comma-separated line)."""
    return Call("GET", "/v1/exclusions", read_text, {"format": form, "scope": scope})


# The fleet


def nodes(
    cursor: Cursor = None,
    limit: int = 200,
    *,
    pool: str | None = None,
    rack: str | None = None,
    leaf: str | None = None,
    state: str | None = None,
    usable: Usable | None = None,
    silent: bool | None = None,
) -> Call[Page[NodeRecord]]:
    """One page of nodes, by name; what is given narrows."""
    where = {"pool": pool, "rack": rack, "leaf": leaf, "state": state}
    query = {"cursor": cursor, "limit": limit, **where, "usable": usable, "silent": silent}
    return get("/v1/nodes", Page[NodeRecord], query)


def add_node(entry: EntryRecord, reason: str) -> Call[PlacementRecord]:
    """Make a node known before it was heard of."""
    body = {**msgspec.to_builtins(entry), "reason": reason}
    return write("/v1/nodes", PlacementRecord, body)


def inventory(cursor: Cursor = None, limit: int = 1000) -> Call[Page[PlacementRecord]]:
    """One page of the inventory, by node."""
    return get("/v1/inventory", Page[PlacementRecord], {"cursor": cursor, "limit": limit})


def put_inventory(
    entries: Sequence[EntryRecord], source: str = "file", *, dry_run: bool = False
) -> Call[InventoryChanges]:
    """Replace all that one source says (file, slurm, kubernetes), or tell what would change."""
    body = {"nodes": msgspec.to_builtins(entries)}
    query = {"source": source, "dry_run": str(dry_run).lower()}
    read = read_json(InventoryChanges)
    return Call("PUT", "/v1/inventory", read, query, body, writes=not dry_run)


def node(node_id: str) -> Call[NodeRecord]:
    """One node."""
    return get(f"/v1/nodes/{segment(node_id)}", NodeRecord)


def gpus(
    cursor: Cursor = None,
    limit: int = 200,
    *,
    node: str | None = None,
    state: str | None = None,
    usable: Usable | None = None,
    present: bool | None = None,
) -> Call[Page[GpuRecord]]:
    """One page of GPUs with their readings, by node and slot; what is given narrows."""
    query = {"cursor": cursor, "limit": limit, "node": node, "state": state}
    return get("/v1/gpus", Page[GpuRecord], query | {"usable": usable, "present": present})


def gpu(gpu_uuid: str) -> Call[GpuRecord]:
    """One GPU with its readings."""
    return get(f"/v1/gpus/{segment(gpu_uuid)}", GpuRecord)


def why_gpu(gpu_uuid: str) -> Call[Why]:
    """What stands behind a GPU's verdict."""
    return get(f"/v1/gpus/{segment(gpu_uuid)}/why", Why)


def why_node(node_id: str) -> Call[Why]:
    """What stands behind a node's verdict."""
    return get(f"/v1/nodes/{segment(node_id)}/why", Why)


def fleet() -> Call[Fleet]:
    """Summary of the fleet."""
    return get("/v1/fleet", Fleet)


def policy() -> Call[Policy]:
    """The rules in force."""
    return get("/v1/policy", Policy)


def repair_gpu(gpu_uuid: str, reason: str) -> Call[RepairRecord]:
    """Say that a GPU is being repaired; a passed check brings it back."""
    return act(f"/v1/gpus/{segment(gpu_uuid)}/repair", RepairRecord, reason)


def repair_node(node_id: str, reason: str) -> Call[RepairRecord]:
    """Say that a node is being repaired; a passed check brings it back."""
    return act(f"/v1/nodes/{segment(node_id)}/repair", RepairRecord, reason)


def retire_node(node_id: str, reason: str) -> Call[RepairRecord]:
    """Take a node that is switched off for good out of the fleet."""
    return act(f"/v1/nodes/{segment(node_id)}/retire", RepairRecord, reason)


def rename_node(node_id: str, to: str, reason: str) -> Call[RenameRecord]:
    """Call a node something else; history, incidents, exclusions and keys go with it.

    Done before, it is answered the same, and nothing is changed.
    """
    body = {"to": to, "reason": reason}
    return write(f"/v1/nodes/{segment(node_id)}/rename", RenameRecord, body)


# Incidents, decisions, events


def incidents(
    phase: str | None = None,
    node: str | None = None,
    cursor: Cursor = None,
    limit: int = 200,
    *,
    entity: str | None = None,
    severity: str | None = None,
    fault_class: str | None = None,
) -> Call[Page[IncidentRecord]]:
    """One page of incidents, newest first; phase `live` is every one not resolved."""
    narrower = {"entity": entity, "severity": severity, "fault_class": fault_class}
    query = {"phase": phase, "node": node, "cursor": cursor, "limit": limit, **narrower}
    return get("/v1/incidents", Page[IncidentRecord], query)


def incident(incident_id: str) -> Call[IncidentRecord]:
    """One incident."""
    return get(f"/v1/incidents/{segment(incident_id)}", IncidentRecord)


def acknowledge_incident(incident_id: str, reason: str) -> Call[IncidentRecord]:
    """Say that somebody looks after an incident."""
    return act(f"/v1/incidents/{segment(incident_id)}/acknowledge", IncidentRecord, reason)


def clear_incident(incident_id: str, reason: str) -> Call[IncidentRecord]:
    """Close an incident; it comes back on new evidence only."""
    return act(f"/v1/incidents/{segment(incident_id)}/clear", IncidentRecord, reason)


def decisions(
    phase: str | None = None,
    node: str | None = None,
    cursor: Cursor = None,
    limit: int = 200,
    *,
    entity: str | None = None,
    incident: str | None = None,
    ledger: bool = False,
) -> Call[Page[DecisionRecord]]:
    """One page of decisions, newest first; phase `live` is every one that may still act.

    With `ledger` each tells what it saved and lost.
    """
    narrower = {"entity": entity, "incident": incident, "ledger": "true" if ledger else None}
    query = {"phase": phase, "node": node, "cursor": cursor, "limit": limit, **narrower}
    return get("/v1/decisions", Page[DecisionRecord], query)


def decision(decision_id: str) -> Call[DecisionRecord]:
    """One decision."""
    return get(f"/v1/decisions/{segment(decision_id)}", DecisionRecord)


def revoke_decision(decision_id: str, reason: str) -> Call[DecisionRecord]:
    """Take a decision back; its incident is acquitted."""
    return act(f"/v1/decisions/{segment(decision_id)}/revoke", DecisionRecord, reason)


def approve_decision(
    decision_id: str, reason: str, rung: str | None = None
) -> Call[DecisionRecord]:
    """Put an advised decision in force; with a rung only where it still asks for that one."""
    body = {"reason": reason} | ({} if rung is None else {"rung": rung})
    return write(f"/v1/decisions/{segment(decision_id)}/approve", DecisionRecord, body)


def events(
    node: str | None = None,
    cursor: Cursor = None,
    limit: int = 1000,
    *,
    kind: str | None = None,
    entity: str | None = None,
) -> Call[Page[dict[str, Any]]]:
    """One page of stored events in order of arrival, as the server keeps them.

    Args:
        node: Only of this node.
        cursor: The `row` of the last event that is known.
        limit: Most of one page.
        kind: Only of this kind.
        entity: Only about this entity, by its key.
    """
    query = {"node": node, "after": cursor or 0, "limit": limit, "kind": kind, "entity": entity}
    return Call("GET", "/v1/events", lambda body: read_rows(body, EventPage, limit), query)


# Keys and audit


def keys(cursor: Cursor = None, limit: int = 1000) -> Call[Page[KeyRecord]]:
    """One page of keys without their secrets, oldest first; revoked ones too."""
    return get("/v1/keys", Page[KeyRecord], {"cursor": cursor, "limit": limit})


def create_key(
    role: Role,
    node: str | None,
    name: str,
    *,
    expires_in_s: float | None = None,
    scope: Mapping[str, Sequence[str]] | None = None,
) -> Call[KeyRecord]:
    """Make a key; the answer is the only place that ever shows it.

    Args:
        role: What it may do.
        node: Node of an agent's key, None for other roles.
        name: For people and the audit.
        expires_in_s: Seconds after which it is refused, None for never.
        scope: What to narrow it to: "nodes", "pools", "resources".
    """
    body = {"role": role, "node": node, "name": name, "expires_in_s": expires_in_s}
    return write("/v1/keys", KeyRecord, body | {"scope": scope or None})


def rotate_key(key_id: str, grace_s: float, expires_in_s: float | None = None) -> Call[KeyRecord]:
    """Give a key a new secret, shown in this answer only; the former goes on for `grace_s`."""
    body = {"grace_s": grace_s, "expires_in_s": expires_in_s}
    return write(f"/v1/keys/{segment(key_id)}/rotate", KeyRecord, body)


def delete_key(key_id: str) -> Call[KeyRecord]:
    """End a key."""
    return Call("DELETE", f"/v1/keys/{segment(key_id)}", read_json(KeyRecord), writes=True)


def create_enrolment_token(
    nodes: str = "*",
    uses: int = 1,
    expires_in_s: float = 86_400,
    *,
    re_enrol: bool = False,
    name: str = "",
) -> Call[EnrolmentToken]:
    """Make a token with which nodes fetch keys of their own; shown in this answer only.

    Args:
        nodes: Pattern of the nodes that may enrol with it.
        uses: How often it may be used.
        expires_in_s: Seconds until it is refused.
        re_enrol: Whether it may replace the key that a node has.
        name: For people and the audit.
    """
    body = {"nodes": nodes, "uses": uses, "expires_in_s": expires_in_s}
    return write(
        "/v1/enrolment-tokens", EnrolmentToken, body | {"re_enrol": re_enrol, "name": name}
    )


def enrolment_tokens() -> Call[tuple[EnrolmentToken, ...]]:
    """All tokens, without their secrets."""
    return Call(
        "GET", "/v1/enrolment-tokens", lambda body: read_json(Page[EnrolmentToken])(body).items
    )


def delete_enrolment_token(token_id: str) -> Call[EnrolmentToken]:
    """End a token; keys that were made with it stay."""
    path = f"/v1/enrolment-tokens/{segment(token_id)}"
    return Call("DELETE", path, read_json(EnrolmentToken), writes=True)


def audit(
    cursor: Cursor = None,
    limit: int = 1000,
    *,
    author: str | None = None,
    action: str | None = None,
    target: str | None = None,
    since: float | None = None,
) -> Call[Page[AuditEntry]]:
    """One page of the audit, oldest first.

    Args:
        cursor: Id of the last entry that is known.
        limit: Most of one page.
        author: Only of this author: name of a key, or "gpuwarden".
        action: Only of this action: "revoke_decision".
        target: Only about this: id of a key, node, decision.
        since: Only from this time on, epoch seconds.
    """
    query: dict[str, object] = {"after": cursor or 0, "limit": limit, "author": author}
    query |= {"action": action, "target": target, "since": since}
    return Call("GET", "/v1/audit", lambda body: read_rows(body, AuditPage, limit), query)


# The server itself


def check_ready() -> Call[None]:
    """Return where the server is ready to serve; refused where it is there and not ready."""
    return Call("GET", "/readyz", read_nothing)


def raw(path: str, query: Mapping[str, object] | None = None) -> Call[Any]:
    """The JSON of any GET route, undigested."""
    return get(path, object, query or NOTHING)


def raw_post(path: str, body: Mapping[str, object]) -> Call[Any]:
    """The JSON answer of any POST route, undigested."""
    return write(path, object, body)


def raw_ask(path: str, body: Mapping[str, object]) -> Call[Any]:
    """The JSON answer of any POST route that only reads, undigested."""
    return Call("POST", path, read_json(object), body=body)
