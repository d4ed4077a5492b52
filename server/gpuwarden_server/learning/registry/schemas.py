"""JSON forms of models."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from gpuwarden_server.core.bodies import Body
from gpuwarden_server.learning.drift.domain import DriftReport
from gpuwarden_server.learning.registry.domain import NAME, Choice, Chosen
from gpuwarden_server.learning.registry.library import Listed
from gpuwarden_server.learning.registry.shelf import Standing

Kind = Literal["gpu", "node", "nic"]
_BASE64 = r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
LARGEST_FILE = 4 << 20
"""Characters of one file of an added model; all of its request has at most 8 MiB."""
_VERSION = "gpu-20261130-3f9a0c1b"
_DIGEST = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


class ChosenView(BaseModel):
    """A version in a role."""

    version: str = Field(examples=[_VERSION])
    digest: str = Field(description="SHA-256 of its MANIFEST.json, which holds those of its files")
    since: float = Field(description="epoch seconds; 0: the model folder names it")
    author: str


class VersionView(BaseModel):
    """A version that may be promoted."""

    version: str = Field(examples=[_VERSION])
    digest: str
    source: Literal["folder", "added"] = Field(description="model folder, or POST /v1/models")
    added_at: float | None
    author: str


class DriftedView(BaseModel):
    """A feature that is elsewhere than in training."""

    feature: str = Field(examples=["gpu_temperature_celsius"])
    shift: float = Field(description="share of the fleet by which it is", examples=[0.42])
    limit: float = Field(description="from which that counts", examples=[0.27])


class DriftView(BaseModel):
    """How the fleet stands beside what the model in use learnt from."""

    checked_at: float
    entities: int = Field(description="looked at lately", examples=[512])
    drifted: list[DriftedView] = Field(description="the furthest first")
    alarms_per_entity_day: float | None = Field(examples=[0.002])
    alarms_expected: float | None = Field(
        description="on the nodes that tested it; null where it does not say", examples=[0.0017]
    )
    warning: str = Field(description="what a person should know, '' for nothing", examples=[""])


class ModelRolesView(BaseModel):
    """What is used for one kind of entity, and what else there is."""

    kind: Kind = Field(examples=["gpu"])
    in_use: str = Field(
        description="version that judges now, '' where rules judge alone", examples=[_VERSION]
    )
    trouble: str = Field(
        description="why what was chosen is not in use, and what to do; '' none", examples=[""]
    )
    schema_hash: str = Field(description="features that it wants", examples=["88a5f3b06c1d2e4f"])
    horizon_s: float | None = Field(
        description="the probability speaks of needing action within it", examples=[86400.0]
    )
    operating_point: float | None = Field(
        description="probability from which it says suspect", examples=[0.2]
    )
    promoted: ChosenView | None
    former: list[ChosenView] = Field(description="what a rollback walks back, newest first")
    challenger: ChosenView | None = Field(description="scored in shadow: never acts")
    drift: DriftView | None = Field(description="null before anything was looked at")
    versions: list[VersionView]


class ModelsView(BaseModel):
    """All kinds."""

    items: list[ModelRolesView]


class PromotionBody(Body):
    """Which version, and why."""

    model_config = ConfigDict(extra="forbid")

    version: str = Field(pattern=NAME, examples=[_VERSION])
    reason: str = Field(min_length=1, max_length=1000, description="Kept in the audit.")


class ModelFile(Body):
    """A file of a model."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(pattern=NAME, examples=["MANIFEST.json"])
    content: str = Field(
        pattern=_BASE64, max_length=LARGEST_FILE, description="base64", examples=["e30="]
    )


class AddedBody(Body):
    """The files of a model's folder."""

    model_config = ConfigDict(extra="forbid")

    files: list[ModelFile] = Field(min_length=1, max_length=16)
    reason: str = Field(min_length=1, max_length=1000, description="Kept in the audit.")


class AddedView(BaseModel):
    """A version that can be promoted now."""

    kind: Kind = Field(examples=["gpu"])
    version: str = Field(examples=[_VERSION])


class VersionFilesView(BaseModel):
    """A version with its files."""

    kind: Kind = Field(examples=["gpu"])
    version: str = Field(examples=[_VERSION])
    digest: str
    files: list[ModelFile]


def model_view(
    kind: Kind,
    choice: Choice,
    standing: Standing,
    versions: list[Listed],
    drift: DriftReport | None,
) -> ModelRolesView:
    """The JSON form of what is used for a kind."""
    used = None if standing.promoted is None else standing.promoted.model
    return ModelRolesView(
        kind=kind,
        in_use="" if used is None else used.version,
        trouble=standing.trouble,
        schema_hash="" if used is None else used.schema_hash,
        horizon_s=None if used is None else used.horizon_s,
        operating_point=None if used is None else used.operating_point,
        promoted=_chosen(choice.promoted),
        former=[view for one in reversed(choice.former) if (view := _chosen(one)) is not None],
        challenger=_chosen(choice.challenger),
        drift=None if drift is None or used is None else _drift(drift),
        versions=[_version(one) for one in versions],
    )


def _drift(report: DriftReport) -> DriftView:
    return DriftView(
        checked_at=report.checked_at,
        entities=report.entities,
        drifted=[
            DriftedView(feature=one.feature, shift=one.shift, limit=one.limit)
            for one in report.drifted
        ],
        alarms_per_entity_day=report.alarms_a_day,
        alarms_expected=report.alarms_expected,
        warning=report.warning,
    )


def _chosen(chosen: Chosen | None) -> ChosenView | None:
    if chosen is None:
        return None
    return ChosenView(
        version=chosen.version, digest=chosen.digest, since=chosen.since, author=chosen.author
    )


def _version(one: Listed) -> VersionView:
    return VersionView(
        version=one.version,
        digest=one.digest,
        source="added" if one.source == "added" else "folder",
        added_at=one.added_at,
        author=one.author,
    )
