"""A diagnosis is kept as it was answered, with who asked."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from gpuwarden_server.core.clock import Clock
from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.core.ids import new_id
from gpuwarden_server.core.pages import Cursor
from gpuwarden_server.diagnosis import repository
from gpuwarden_server.diagnosis.desk import Answer
from gpuwarden_server.diagnosis.repository import DiagnosisFilter, DiagnosisRow
from gpuwarden_server.diagnosis.schemas import (
    DiagnosisView,
    StoredDiagnosisView,
    diagnosis_view,
    kind_word,
)
from gpuwarden_server.store.database import Database
from gpuwarden_verdict.diagnosis import Culprit, CulpritKind
from gpuwarden_wire.metrics import EntityKind

TRIGGER = "trigger"
"""Who asks where nobody did: the server itself."""
_KINDS = {
    CulpritKind.GPU: EntityKind.GPU,
    CulpritKind.HOST: EntityKind.NODE,
    CulpritKind.NIC: EntityKind.NIC,
    CulpritKind.DISK: EntityKind.DISK,
    CulpritKind.MOUNT_CLIENT: EntityKind.MOUNT,
}


@dataclass(frozen=True, slots=True)
class DiagnosisRecord:
    """Keeps diagnoses, and finds them again; any thread.

    Attributes:
        state: state.db.
        clock: Time.
    """

    state: Database
    clock: Clock

    def keep(self, answer: Answer, asked_by: str, key_id: str | None) -> StoredDiagnosisView:
        """Store an answer.

        Args:
            answer: What was answered.
            asked_by: Name of the key, or TRIGGER.
            key_id: Its id, None for the server itself.

        Raises:
            WriteFailed: It is not stored.
        """
        view = diagnosis_view(answer)
        row = _row(answer, view, new_id("dia"), self.clock.now(), asked_by, key_id)
        body = zlib.compress(view.model_dump_json().encode())
        nodes = _nodes(answer)
        self.state.writer.call(lambda writes: repository.write(writes, row, body, nodes))
        return _stored(row, view)

    def page(self, wanted: DiagnosisFilter, after: Cursor | None, limit: int) -> list[DiagnosisRow]:
        """Diagnoses, the newest first."""
        with self.state.read() as connection:
            return repository.read_page(connection, wanted, after, limit)

    def read(self, diagnosis_id: str) -> StoredDiagnosisView:
        """One of them, whole.

        Raises:
            ProblemError: 404.
        """
        with self.state.read() as connection:
            found = repository.read_one(connection, diagnosis_id)
        if found is None:
            raise ProblemError(
                404,
                "not_found",
                f"no diagnosis {diagnosis_id!r} is kept",
                "See GET /v1/diagnoses; old ones go after GPUWARDEN_RETENTION_DIAGNOSES_DAYS.",
            )
        row, body = found
        return _stored(row, DiagnosisView.model_validate_json(zlib.decompress(body)))


def _stored(row: DiagnosisRow, view: DiagnosisView) -> StoredDiagnosisView:
    return StoredDiagnosisView(id=row.id, at=row.at, asked_by=row.asked_by, **dict(view))


def _row(
    answer: Answer,
    view: DiagnosisView,
    diagnosis_id: str,
    at: float,
    asked_by: str,
    key_id: str | None,
) -> DiagnosisRow:
    first = blamed(answer)
    return DiagnosisRow(
        id=diagnosis_id,
        at=at,
        asked_by=asked_by,
        key_id=key_id,
        job=view.job,
        kind=kind_word(answer.diagnosis.kind),
        entity_kind="" if first is None else _kind_of(first).value,
        entity="" if first is None else first.entity,
        node_id="" if first is None else first.node,
        confidence=view.confidence,
        line=view.line,
        begin=view.begin,
        end=view.end,
    )


def blamed(answer: Answer) -> Culprit | None:
    """What is blamed; None where nothing is, or the evidence does not decide."""
    told = answer.diagnosis
    decided = told.kind is not None and told.kind is not CulpritKind.NOTHING
    return told.culprits[0] if decided and told.culprits else None


def _kind_of(culprit: Culprit) -> EntityKind:
    """A rail is the NICs of many nodes."""
    return _KINDS.get(culprit.kind, EntityKind.PLACE) if culprit.node else EntityKind.PLACE


def _nodes(answer: Answer) -> list[str]:
    """The job's own nodes, and those that a culprit hits or sits in."""
    window, told = answer.window, answer.diagnosis
    own = [
        window.nodes[row]
        for job in window.jobs
        if job.job == told.job
        for row in job.nodes.tolist()
    ]
    hit = [node for one in told.culprits for node in (one.node, *one.hit) if node]
    return list(dict.fromkeys([*own, *hit]))
