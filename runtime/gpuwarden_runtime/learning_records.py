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


class ModelRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What judges one kind of entity, and what else there is.

    Attributes:
        kind: gpu, node or nic.
        in_use: Version that judges, "" where rules judge alone.
        trouble: Why what was chosen is not in use, "" where it is.
        former: What a rollback walks back, newest first.
        challenger: Scored in shadow, None for none.
    """

    kind: str
    in_use: str = ""
    trouble: str = ""
    schema_hash: str = ""
    horizon_s: float | None = None
    promoted: ChosenVersion | None = None
    former: tuple[ChosenVersion, ...] = ()
    challenger: ChosenVersion | None = None
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
    label: str = ""
    source: str = ""
    needed: bool | None = None
    note: str = ""
    author: str = ""
    at: float = 0.0
