"""The outbox, and what it last said of live incidents."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from sqlalchemy import Connection, delete, select

from gpuwarden_server.notifications.domain import Fact, MessageKind, NewFact, proposal_number
from gpuwarden_server.store.tables_judging import outbox
from gpuwarden_server.store.tables_notifications import notify_position, told_incidents
from gpuwarden_server.store.upsert import upsert
from gpuwarden_verdict.entities import Rung


class ToldIncident(msgspec.Struct, frozen=True):
    """What the outbox last said of a live incident."""

    incident_id: str
    severity: str
    fault_class: str
    phase: str
    updates: int
    parent_id: str = ""
    told_node: str = ""

    def is_as(self, now: ToldIncident) -> bool:
        """Whether `now` is no news; an older version did not keep the node."""
        return now == msgspec.structs.replace(self, told_node=self.told_node or now.told_node)


def add_facts(connection: Connection, facts: Sequence[NewFact]) -> None:
    """Write facts inside their transaction; one that exists stays as it is."""
    if not facts:
        return
    rows = [
        {
            "message_id": fact.message_id,
            "kind": fact.kind.value,
            "created_at": fact.created_at,
            "payload": fact.payload,
        }
        for fact in facts
    ]
    statement = upsert(connection, outbox).on_conflict_do_nothing(index_elements=["message_id"])
    connection.execute(statement, rows)


def higher_proposed(connection: Connection, decision_id: str, number: int) -> bool:
    """Whether people were asked for a higher rung of a decision before: falling back is no news."""
    kind = MessageKind.DECISION_PROPOSED
    higher = [
        NewFact(kind, decision_id, 0.0, "", proposal_number(rung.name)).message_id
        for rung in Rung
        if rung >= Rung.EXCLUDE and proposal_number(rung.name) > number
    ]
    found = select(outbox.c.row).where(outbox.c.message_id.in_(higher)).limit(1)
    return connection.execute(found).first() is not None


def told_incident(connection: Connection, incident_id: str) -> ToldIncident | None:
    """What was said of an incident, None where it was never told or is over."""
    found = connection.execute(
        select(told_incidents).where(told_incidents.c.incident_id == incident_id)
    ).first()
    return ToldIncident(*found) if found is not None else None


def note_incident(connection: Connection, told: ToldIncident) -> None:
    """Keep what is said of an incident now."""
    values = msgspec.structs.asdict(told)
    statement = upsert(connection, told_incidents).values(**values)
    connection.execute(statement.on_conflict_do_update(index_elements=["incident_id"], set_=values))


def forget_incident(connection: Connection, incident_id: str) -> None:
    """It is over."""
    connection.execute(delete(told_incidents).where(told_incidents.c.incident_id == incident_id))


def facts_after(connection: Connection, row: int, limit: int) -> list[Fact]:
    """Facts in order of the outbox."""
    statement = select(outbox).where(outbox.c.row > row).order_by(outbox.c.row).limit(limit)
    return [
        Fact(
            one.row,
            one.message_id,
            MessageKind(one.kind),
            one.created_at,
            msgspec.json.decode(one.payload)["data"],
        )
        for one in connection.execute(statement)
    ]


def position(connection: Connection) -> int:
    """Outbox row up to which all is planned."""
    return connection.execute(select(notify_position.c.outbox_row)).scalar() or 0


def write_position(connection: Connection, row: int) -> None:
    """All up to this outbox row is planned."""
    statement = upsert(connection, notify_position).values(id=1, outbox_row=row)
    connection.execute(
        statement.on_conflict_do_update(index_elements=["id"], set_={"outbox_row": row})
    )


def prune(connection: Connection, before: float) -> None:
    """Forget planned facts that are older than a time; the newest stays, or its row came again."""
    planned = position(connection)
    connection.execute(delete(outbox).where(outbox.c.row < planned, outbox.c.created_at < before))
