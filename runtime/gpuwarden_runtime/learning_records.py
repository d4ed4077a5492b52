"""What the routes of models and labels tell, as typed values."""

from __future__ import annotations

import msgspec


class ChosenVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A version in a role.

    Attributes:
        digest: SHA-256 of its MANIFEST.json.
        since: Epoch seconds; 0: the model folder names it.
    """

    version: str
    digest: str = ""
    since: float = 0.0
    author: str = ""


class VersionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A version that may be promoted; `source` is folder or added."""

    version: str
    digest: str = ""
    source: str = ""
    added_at: float | None = None
    author: str = ""


class DriftedFeature(msgspec.Struct, frozen=True, kw_only=True):
    """A feature that is elsewhere than in training, by a share of the fleet."""

    feature: str
    shift: float = 0.0
    limit: float = 0.0


class DriftRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How the fleet stands beside what a model learnt from; `warning` is "" for nothing."""

    checked_at: float
    entities: int = 0
    drifted: tuple[DriftedFeature, ...] = ()
    alarms_per_entity_day: float | None = None
    alarms_expected: float | None = None
    warning: str = ""


class ModelRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What judges one kind of entity, and what else there is.

    Attributes:
        kind: gpu, node or nic.
        in_use: Version that judges, "" where rules judge alone.
        trouble: Why what was chosen is not in use, "" where it is.
        operating_point: Probability from which it says suspect, None where rules judge alone.
        former: What a rollback walks back, newest first.
        challenger: Scored in shadow, None for none.
        drift: None before anything was looked at.
    """

    kind: str
    in_use: str = ""
    trouble: str = ""
    schema_hash: str = ""
    horizon_s: float | None = None
    operating_point: float | None = None
    promoted: ChosenVersion | None = None
    former: tuple[ChosenVersion, ...] = ()
    challenger: ChosenVersion | None = None
    drift: DriftRecord | None = None
    versions: tuple[VersionRecord, ...] = ()


class AddedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A version that can be promoted now."""

    kind: str
    version: str


class ModelFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a model; `content` is base64 in JSON."""

    name: str
    content: bytes


class ModelFiles(msgspec.Struct, frozen=True, kw_only=True):
    """A version with its files."""

    kind: str
    version: str
    digest: str = ""
    files: tuple[ModelFile, ...] = ()


class GivenVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """A person's verdict on an incident, as it stands."""

    incident_id: str
    verdict: str
    note: str = ""
    author: str = ""
    at: float = 0.0


class LabelRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What an incident turned out to be.

    Attributes:
        label: hardware, application, operator, false_alarm, unknown or uncertain.
        source: verdict, repair, check, evidence, job_end or none.
        excluded_at: When the first exclusion in force in its time began, None for none.
        needed: Whether action was needed, None where nobody can tell.
        at: Epoch seconds from which it is known.
    """

    incident_id: str
    entity_kind: str
    entity: str
    node_id: str
    fault_class: str = ""
    opened_at: float = 0.0
    resolved_at: float | None = None
    excluded_at: float | None = None
    label: str = ""
    source: str = ""
    needed: bool | None = None
    note: str = ""
    author: str = ""
    at: float = 0.0


class WouldExclude(msgspec.Struct, frozen=True, kw_only=True):
    """An exclusion that a score would have made.

    Attributes:
        until: Epoch seconds, None while it goes on.
        planes: Kinds of evidence.
        outcome: needed, false, pending or hidden.
    """

    id: str
    entity_kind: str
    entity: str
    node_id: str
    since: float
    until: float | None = None
    probability: float = 0.0
    fault_class: str = ""
    planes: tuple[str, ...] = ()
    outcome: str = ""


class TrialRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A trial of a model on this fleet; `trial` is backtest or shadow.

    Attributes:
        healthy_days: Entities x days.
        false_actions: What is not settled counts.
        bound_per_day: Upper 95 % bound of false exclusions an entity and day, None without a day.
        exclude_confidence: The lowest limit that it speaks for.
        digest: SHA-256 of the MANIFEST.json of the model that was tried.
    """

    trial: str
    version: str
    healthy_days: float = 0.0
    false_actions: int = 0
    bound_per_day: float | None = None
    exclude_confidence: float = 1.0
    digest: str = ""
    recorded_at: float = 0.0


class ShadowRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How one model stands in shadow.

    Attributes:
        kind: gpu, node or nic.
        role: promoted or challenger.
        would_exclude: Exclusions that it would have made: needed, false and unsettled together.
        bound_per_day: Upper 95 % bound of false exclusions an entity and day, None without a day.
        tolerated_per_day: The bound that the gate wants.
        missing: What is missing before it may exclude by itself.
        exclusions: Newest first, at most 100.
    """

    kind: str
    version: str
    role: str
    begun_at: float = 0.0
    seen_at: float = 0.0
    healthy_days: float = 0.0
    would_exclude: int = 0
    needed: int = 0
    false: int = 0
    unsettled: int = 0
    bound_per_day: float | None = None
    tolerated_per_day: float = 0.0
    missing: tuple[str, ...] = ()
    trials: tuple[TrialRecord, ...] = ()
    exclusions: tuple[WouldExclude, ...] = ()


class FeatureRowRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Features of one entity at one moment, as they served.

    Attributes:
        why: suspect, incident or healthy: why it was kept.
        share: The chance that an entity was kept for this reason at that moment.
        values: Columns, little-endian float32, NaN where missing; base64 in JSON.
    """

    row: int
    at: float
    kind: str
    entity: str
    node_id: str = ""
    why: str = ""
    share: float = 1.0
    schema_hash: str = ""
    model_version: str = ""
    values: bytes = b""
