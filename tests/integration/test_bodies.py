"""Every model of every request body refuses NaN and infinity, found by walking all routes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from fastapi.routing import APIRoute
from pydantic import BaseModel

from gpuwarden_server.core.bodies import Body
from tests.builders.server import Running, make_settings, running_server


def test_no_body_takes_a_number_that_is_not_finite(tmp_path: Path) -> None:
    with running_server(make_settings(tmp_path)) as server:
        assert server.app is not None
        found: set[type[BaseModel]] = set()
        for route in routes_of(server.app.routes):
            if route.body_field is not None:
                found.update(models_of(route.body_field.field_info.annotation))
        assert len(found) > 30
        assert [one.__name__ for one in found if not issubclass(one, Body)] == []
        assert all(one.model_config.get("allow_inf_nan") is False for one in found)
        for word in ("NaN", "Infinity", "1e999"):
            refused(server, "/v1/leaves", "at", word)
            refused(server, "/v1/silences", "starts_at", word)


def refused(server: Running, path: str, field: str, word: str) -> None:
    text = f'{{"nodes": ["n"], "reason": "r", "{field}": {word}}}'
    answer = server.admin.post(path, content=text, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_value")
    assert f"body.{field}: Input should be a finite number" in answer.json()["detail"]


def routes_of(routes: Any) -> Iterator[APIRoute]:
    """All routes, those of routers that were included too."""
    for one in routes:
        if isinstance(one, APIRoute):
            yield one
        elif (router := getattr(one, "original_router", None)) is not None:
            yield from routes_of(router.routes)


def models_of(annotation: Any) -> Iterator[type[BaseModel]]:
    """Models in an annotation, and in their fields."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        for field in annotation.model_fields.values():
            yield from models_of(field.annotation)
    for part in get_args(annotation):
        yield from models_of(part)
