"""A node's name in all tables: one transaction gives it another.

Every table of STATE with a column `node_id` is changed, so that a new table need not be named here.
What was told (the audit, the feed's log, messages) stays as it was told.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    String,
    Table,
    and_,
    case,
    cast,
    delete,
    func,
    insert,
    literal,
    select,
    update,
)

from gpuwarden_server.store.base import STATE
from gpuwarden_server.store.tables_actuators import actuations, actuator_holds
from gpuwarden_server.store.tables_fleet import keys, nodes
from gpuwarden_server.store.tables_inventory import inventory
from gpuwarden_server.store.tables_jobs import job_ends
from gpuwarden_server.store.tables_judging import decisions, entity_state_moves, incidents
from gpuwarden_server.store.tables_names import former_names
from gpuwarden_server.store.tables_notifications import silences
from gpuwarden_server.store.tables_standby import standby_leases

_NODE = "node"
_MATCHER = re.compile(r"((?:node|entity)(?:=~|!~|!=|=))(.+)", re.DOTALL)
_PARTS = ("nic", "disk", "mount")
"""Kinds of entities that are named NODE/DEVICE."""


_OF_CONSUMERS = (actuations, actuator_holds)
"""A scheduler knows the node by its own name for it, whatever it is called here."""


def rename_node(connection: Connection, old: str, new: str, at: float) -> None:
    """Give a node that is in `nodes` a name that is not.

    Args:
        connection: Writing connection of state.db.
        old: Its name.
        new: Its name from now on. What the inventory says of that name already holds.
        at: Epoch seconds: what went by the old name until then was this node.
    """
    columns = [literal(new) if column.name == "node_id" else column for column in nodes.c]
    copied = select(*columns).where(nodes.c.node_id == old)
    connection.execute(insert(nodes).from_select([column.name for column in nodes.c], copied))
    _keep_newer_inventory(connection, old, new)
    for table in STATE.sorted_tables:
        if table is not nodes and table not in _OF_CONSUMERS and "node_id" in table.c:
            _rename_rows(connection, table, old, new)
    moves = entity_state_moves.c
    connection.execute(
        update(entity_state_moves)
        .where(moves.entity_kind == _NODE, moves.entity == old)
        .values(entity=new)
    )
    leases = update(standby_leases).where(standby_leases.c.leaver == old)
    connection.execute(leases.values(leaver=new))
    connection.execute(delete(nodes).where(nodes.c.node_id == old))
    _rename_in_bodies(connection, old, new)
    _rename_in_scopes(connection, old, new)
    _rename_in_silences(connection, old, new, at)
    _rename_in_job_ends(connection, old, new)
    connection.execute(insert(former_names).values(name=old, until=at, node_id=new))


def load_former_names(connection: Connection) -> list[tuple[str, float, str]]:
    """Name, until when (epoch seconds), and what its node is called now; oldest first."""
    c = former_names.c
    query = select(c.name, c.until, c.node_id).order_by(c.until)
    return [(row.name, row.until, row.node_id) for row in connection.execute(query)]


def _keep_newer_inventory(connection: Connection, old: str, new: str) -> None:
    said = select(inventory.c.source).where(inventory.c.node_id == new)
    sources = list(connection.scalars(said))
    both = and_(inventory.c.node_id == old, inventory.c.source.in_(sources))
    connection.execute(delete(inventory).where(both))


def _rename_rows(connection: Connection, table: Table, old: str, new: str) -> None:
    values: dict[str, Any] = {"node_id": new}
    if "entity" in table.c:
        values["entity"] = _renamed_entity(table, old, new)
    connection.execute(update(table).where(table.c.node_id == old).values(values))


def _renamed_entity(table: Table, old: str, new: str) -> ColumnElement[str]:
    kind, entity = table.c.entity_kind, table.c.entity
    device = func.substr(entity, len(old) + 1, type_=String)
    return case(
        (and_(kind == _NODE, entity == old), literal(new)),
        (kind.in_(_PARTS), literal(new) + device),
        else_=entity,
    )


def _rename_in_bodies(connection: Connection, old: str, new: str) -> None:
    """Incidents and decisions, whose rows are renamed already, also hold the name in JSON."""
    for table, fields in ((incidents, ("body",)), (decisions, ("body", "snapshot"))):
        columns = [table.c[name] for name in fields]
        query = select(table.c.id, *columns).where(table.c.node_id == new)
        for row in connection.execute(query).mappings().all():
            values = {name: _in_json(row[name], _body, old, new) for name in fields}
            connection.execute(update(table).where(table.c.id == row["id"]).values(values))


def _in_json(text: str, change: Callable[[Any, str, str], None], old: str, new: str) -> str:
    form = msgspec.json.decode(text)
    change(form, old, new)
    return msgspec.json.encode(form).decode()


def _body(form: dict[str, Any], old: str, new: str) -> None:
    """An incident, a decision, or what a decision was made from."""
    ref = form.get("entity")
    if isinstance(ref, dict):
        ref["key"] = _renamed_key(ref["key"], old, new)
        ref["node_id"] = new
    for incident in form.get("incidents", ()):
        incident["entity"] = _renamed_key(incident["entity"], old, new)


def _renamed_key(key: str, old: str, new: str) -> str:
    if key == old or key.startswith(f"{old}/"):
        return new + key[len(old) :]
    return key


def _rename_in_scopes(connection: Connection, old: str, new: str) -> None:
    """Keys that are narrowed to this very name; a pattern that meets it stays what it is."""
    for key_id, scope in connection.execute(select(keys.c.id, keys.c.scope)).all():
        if old in scope.get("nodes", ()):
            names = [new if name == old else name for name in scope["nodes"]]
            changed = {**scope, "nodes": names}
            connection.execute(update(keys).where(keys.c.id == key_id).values(scope=changed))


def _rename_in_silences(connection: Connection, old: str, new: str, at: float) -> None:
    c = silences.c
    for silence_id, text in connection.execute(
        select(c.id, c.matchers).where(c.ends_at > at)
    ).all():
        matchers: list[str] = msgspec.json.decode(text)
        changed = [_renamed_matcher(matcher, old, new) for matcher in matchers]
        if changed != matchers:
            body = msgspec.json.encode(changed).decode()
            connection.execute(update(silences).where(c.id == silence_id).values(matchers=body))


def _rename_in_job_ends(connection: Connection, old: str, new: str) -> None:
    c = job_ends.c
    names_it = cast(c.nodes, String).contains(f'"{old}"', autoescape=True)
    for end_id, names in connection.execute(select(c.id, c.nodes).where(names_it)).all():
        changed = [new if name == old else name for name in names]
        connection.execute(update(job_ends).where(c.id == end_id).values(nodes=changed))


def _renamed_matcher(matcher: str, old: str, new: str) -> str:
    """A matcher of this very name: LABEL=NAME, LABEL!=NAME, or a list of names, LABEL=~A|B."""
    found = _MATCHER.fullmatch(matcher)
    if found is None:
        return matcher
    head, names = found.groups()
    if head.endswith("~"):
        listed = [re.escape(new) if one == re.escape(old) else one for one in names.split("|")]
        return head + "|".join(listed)
    return head + _renamed_key(names, old, new)
