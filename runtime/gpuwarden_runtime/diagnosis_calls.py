"""Routes of diagnoses as values; see `calls.py`."""

from __future__ import annotations

from gpuwarden_runtime.call import Call, Cursor, get, segment, write
from gpuwarden_runtime.diagnosis_records import DiagnosisRecord, DiagnosisRow
from gpuwarden_runtime.records import Page


def diagnose(
    job: str | None = None,
    *,
    begin: float | None = None,
    end: float | None = None,
    past_s: float | None = None,
) -> Call[DiagnosisRecord]:
    """Where a job or the fleet is slow; the answer is kept.

    Args:
        job: "KIND:ID" ("slurm:4711"), or the id alone where one job has it; None for the fleet.
        begin: Epoch seconds; None for an hour before the end.
        end: Epoch seconds; None for now, or the job's end.
        past_s: How much before it is compared with; None for as much again.
    """
    body = {"job": job, "begin": begin, "end": end, "past_s": past_s}
    return write("/v1/diagnoses", DiagnosisRecord, body)


def diagnoses(
    job: str | None = None,
    cursor: Cursor = None,
    limit: int = 100,
    *,
    node: str | None = None,
    culprit: str | None = None,
    begin: float | None = None,
    end: float | None = None,
) -> Call[Page[DiagnosisRow]]:
    """One page of the diagnoses that were made, newest first; what is given narrows.

    Args:
        job: "KIND:ID"; "": of the fleet.
        cursor: `next_cursor` of the page before.
        limit: At most so many.
        node: Of the job, hit, or blamed.
        culprit: Kind of the first culprit, "nothing" or "undecided".
        begin: Epoch seconds; made then or later.
        end: Epoch seconds; made before.
    """
    where = {"job": job, "node": node, "culprit": culprit, "begin": begin, "end": end}
    return get("/v1/diagnoses", Page[DiagnosisRow], {**where, "cursor": cursor, "limit": limit})


def diagnosis(diagnosis_id: str) -> Call[DiagnosisRecord]:
    """One of them, as it was answered."""
    return get(f"/v1/diagnoses/{segment(diagnosis_id)}", DiagnosisRecord)
