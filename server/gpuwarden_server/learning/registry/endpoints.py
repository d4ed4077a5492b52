"""/v1/models: which versions judge, and people's word about that."""

from __future__ import annotations

import base64
from typing import Annotated

from fastapi import APIRouter, Path

from gpuwarden_server.access.authorisation import Caller
from gpuwarden_server.incidents.schemas import ReasonBody
from gpuwarden_server.learning.drift.book import DriftBook
from gpuwarden_server.learning.registry.desk import ModelDesk
from gpuwarden_server.learning.registry.domain import NAME
from gpuwarden_server.learning.registry.schemas import (
    AddedBody,
    AddedView,
    Kind,
    ModelFile,
    ModelRolesView,
    ModelsView,
    PromotionBody,
    VersionFilesView,
    model_view,
)
from gpuwarden_wire.metrics import EntityKind

_KINDS: tuple[Kind, ...] = ("gpu", "node", "nic")
_Version = Annotated[str, Path(pattern=NAME)]


def models_router(desk: ModelDesk, drift: DriftBook) -> APIRouter:
    """Routes of models."""
    router = APIRouter(prefix="/v1/models", tags=["models"])

    def view(kind: Kind) -> ModelRolesView:
        entity = EntityKind(kind)
        return model_view(
            kind,
            desk.choice(entity),
            desk.standing(entity),
            desk.listed(entity),
            drift.reports().get(entity),
        )

    @router.get("", summary="What judges each kind, what challenges it, and what else there is")
    def list_models() -> ModelsView:
        return ModelsView(items=[view(kind) for kind in _KINDS])

    @router.post("", status_code=201, summary="Bring a version here, as `gpuwarden train` wrote it")
    def add_model(body: AddedBody, caller: Caller) -> AddedView:
        files = {one.name: base64.b64decode(one.content) for one in body.files}
        kind, version = desk.add(files, body.reason, caller)
        return AddedView.model_validate({"kind": kind, "version": version})

    @router.get("/{model_kind}/versions/{version}", summary="The files of one version")
    def read_version(model_kind: Kind, version: _Version) -> VersionFilesView:
        digest, files = desk.files(EntityKind(model_kind), version)
        told = [
            ModelFile(name=name, content=base64.b64encode(content).decode())
            for name, content in sorted(files.items())
        ]
        return VersionFilesView(kind=model_kind, version=version, digest=digest, files=told)

    @router.post("/{model_kind}/promotion", summary="Let a version judge; no restart is needed")
    def promote_model(model_kind: Kind, body: PromotionBody, caller: Caller) -> ModelRolesView:
        desk.promote(EntityKind(model_kind), body.version, body.reason, caller)
        return view(model_kind)

    @router.post("/{model_kind}/rollback", summary="Let the version judge that did before")
    def roll_back_model(model_kind: Kind, body: ReasonBody, caller: Caller) -> ModelRolesView:
        desk.roll_back(EntityKind(model_kind), body.reason, caller)
        return view(model_kind)

    @router.post("/{model_kind}/challenger", summary="Score a version in shadow; it never acts")
    def challenge_model(model_kind: Kind, body: PromotionBody, caller: Caller) -> ModelRolesView:
        desk.challenge(EntityKind(model_kind), body.version, body.reason, caller)
        return view(model_kind)

    @router.delete("/{model_kind}/challenger", summary="End scoring in shadow")
    def end_challenger(model_kind: Kind, caller: Caller) -> ModelRolesView:
        desk.challenge(EntityKind(model_kind), None, "", caller)
        return view(model_kind)

    return router
