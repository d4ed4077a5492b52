"""Routes of models and labels as values; see `calls.py`."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence

from gpuwarden_runtime.call import Call, Cursor, act, get, read_json, rows_of, segment, write
from gpuwarden_runtime.learning_records import (
    AddedModel,
    FeatureRowRecord,
    GivenVerdict,
    LabelRecord,
    ModelFiles,
    ModelRecord,
    ShadowRecord,
    TrialRecord,
)
from gpuwarden_runtime.records import Page, RowPage

_MODELS = "/v1/models"


def models() -> Call[tuple[ModelRecord, ...]]:
    """What judges each kind of entity, what challenges it, and what else there is."""
    read = read_json(Page[ModelRecord])
    return Call("GET", _MODELS, lambda body: read(body).items)


def add_model(files: Mapping[str, bytes], reason: str) -> Call[AddedModel]:
    """Bring a version to the server; the same one again changes nothing.

    Args:
        files: Content by name, as `gpuwarden train` wrote them.
        reason: For the audit.
    """
    told = [
        {"name": name, "content": base64.b64encode(content).decode()}
        for name, content in sorted(files.items())
    ]
    return write(_MODELS, AddedModel, {"files": told, "reason": reason})


def model_files(kind: str, version: str) -> Call[ModelFiles]:
    """The files of one version."""
    return get(f"{_MODELS}/{segment(kind)}/versions/{segment(version)}", ModelFiles)


def promote_model(kind: str, version: str, reason: str) -> Call[ModelRecord]:
    """Let a version judge from now on."""
    body = {"version": version, "reason": reason}
    return write(f"{_MODELS}/{segment(kind)}/promotion", ModelRecord, body)


def roll_back_model(kind: str, reason: str) -> Call[ModelRecord]:
    """Let the version judge that did before."""
    return act(f"{_MODELS}/{segment(kind)}/rollback", ModelRecord, reason)


def challenge_model(kind: str, version: str, reason: str) -> Call[ModelRecord]:
    """Score a version in shadow beside the promoted one; it never acts."""
    body = {"version": version, "reason": reason}
    return write(f"{_MODELS}/{segment(kind)}/challenger", ModelRecord, body)


def end_challenger(kind: str) -> Call[ModelRecord]:
    """End scoring in shadow."""
    path = f"{_MODELS}/{segment(kind)}/challenger"
    return Call("DELETE", path, read_json(ModelRecord), writes=True)


def judge_incident(incident_id: str, verdict: str, note: str = "") -> Call[GivenVerdict]:
    """Say what an incident turned out to be; a later word corrects it.

    Args:
        incident_id: inc-…
        verdict: hardware, application, operator, false_alarm or unknown.
        note: For the audit, and for who trains a model.
    """
    body = {"verdict": verdict, "note": note}
    return write(f"/v1/incidents/{segment(incident_id)}/verdict", GivenVerdict, body)


def labels(
    node: str | None = None,
    entity: str | None = None,
    cursor: Cursor = None,
    limit: int = 1000,
) -> Call[Page[LabelRecord]]:
    """One page of what incidents turned out to be, newest first."""
    query = {"node": node, "entity": entity, "cursor": cursor, "limit": limit}
    return get("/v1/labels", Page[LabelRecord], query)


def shadow(node: str | None = None) -> Call[tuple[ShadowRecord, ...]]:
    """What scores would have excluded, with its bound, and what the gate misses."""
    read = read_json(Page[ShadowRecord])
    return Call("GET", "/v1/shadow", lambda body: read(body).items, {"node": node})


def record_trial(
    kind: str,
    version: str,
    healthy_days: float,
    false_actions: int,
    reason: str,
    *,
    digest: str,
    exclude_confidence: float,
    entities: Sequence[str],
    origin: str = "",
    recording_digest: str = "",
) -> Call[TrialRecord]:
    """Record a backtest of a version on this fleet's own history: the gate goes by it.

    Args:
        kind: gpu, node or nic.
        version: Which.
        healthy_days: Entities x days that were healthy.
        false_actions: Exclusions that would have been false.
        reason: For the audit.
        digest: SHA-256 of the MANIFEST.json of the model that was played.
        exclude_confidence: The highest confidence from which a pool of the fleet excluded.
        entities: What was watched: UUIDs of GPUs, or nodes; the server must know most of it.
        origin: What made the recording, "" where it does not say; a simulated one is refused.
        recording_digest: SHA-256 over its files, "" for none; one that taught the model is refused.
    """
    said = {
        "version": version,
        "digest": digest,
        "healthy_days": healthy_days,
        "false_actions": false_actions,
        "exclude_confidence": exclude_confidence,
        "entities": list(entities),
        "origin": origin,
        "recording_digest": recording_digest,
    }
    path = f"{_MODELS}/{segment(kind)}/trials"
    return write(path, TrialRecord, {**said, "reason": reason})


def feature_rows(
    kind: str = "gpu", schema: str | None = None, cursor: Cursor = None, limit: int = 1000
) -> Call[Page[FeatureRowRecord]]:
    """One page of features as they served, oldest first; `schema` narrows to these columns."""
    query = {"kind": kind, "schema": schema, "after": cursor or 0, "limit": limit}
    return Call("GET", "/v1/feature-rows", rows_of(RowPage[FeatureRowRecord], limit), query)
