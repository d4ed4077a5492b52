"""Routes of diagnoses as values; see `calls.py`."""

from __future__ import annotations

import math

from gpuwarden_runtime.call import Call, Cursor, get, read_json, segment, write
from gpuwarden_runtime.diagnosis_records import DiagnosisRecord, DiagnosisRow, ProgressRecord
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


def tell_progress(
    job: str,
    step: int,
    *,
    step_seconds: float | None = None,
    loss: float | None = None,
    rank: int | None = None,
    node: str | None = None,
    gpu_uuid: str | None = None,
) -> Call[ProgressRecord]:
    """Tell of a training step that has ended; `progress.report` does it for a training loop.

    It has no idempotency key: there are many, and one that comes twice changes nothing.

    Args:
        job: As for `diagnose`.
        step: Its number.
        step_seconds: How long it took; None: from the time between two calls of the rank.
        loss: Also one that is not finite; None: not told.
        rank: Who tells.
        node: Where that rank runs.
        gpu_uuid: On which GPU.
    """
    told = None if loss is None else loss if math.isfinite(loss) else f"{loss:g}"
    body = {
        "step": step,
        "step_seconds": step_seconds,
        "loss": told,
        "rank": rank,
        "node": node,
        "gpu_uuid": gpu_uuid,
    }
    path = f"/v1/sessions/{segment(job)}/progress"
    return Call("POST", path, read_json(ProgressRecord), body=body)
