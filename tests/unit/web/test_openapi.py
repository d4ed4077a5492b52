"""The OpenAPI document: complete for every route, true in its examples, followable by its links."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from gpuwarden_server.access.authorisation import ROUTE_GRANTS
from gpuwarden_server.app import create_app
from gpuwarden_server.front import RAW_ROUTES
from gpuwarden_server.web.openapi import operations_of
from tests.builders.server import make_settings

Json = dict[str, Any]
APPROVAL_PAGE = {("GET", "/approve/{token}"), ("POST", "/approve/{token}")}
UNDOCUMENTED = {("GET", "/"), ("GET", "/docs"), ("GET", "/openapi.json")} | APPROVAL_PAGE


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Json:
    made: Json = create_app(make_settings(tmp_path_factory.mktemp("openapi"))).openapi()
    return made


def contents_of(operation: Json) -> Iterator[tuple[str, Json]]:
    """Media type and content of the body and of each answer of an operation that is no problem."""
    answers = [one for code, one in operation["responses"].items() if code.startswith("2")]
    for holder in (operation.get("requestBody", {}), *answers):
        yield from holder.get("content", {}).items()


def test_every_route_is_described_once(document: Json) -> None:
    told = {(method, path) for method, path, _ in operations_of(document)}
    assert told == set(ROUTE_GRANTS) - UNDOCUMENTED
    assert {(route.method, route.path) for route in RAW_ROUTES} <= told
    ids = [operation["operationId"] for *_, operation in operations_of(document)]
    assert len(set(ids)) == len(ids)
    silent = [
        path for _, path, operation in operations_of(document) if not operation.get("summary")
    ]
    assert silent == []


def test_every_route_says_who_may_and_what_is_refused(document: Json) -> None:
    for method, path, operation in operations_of(document):
        grant = ROUTE_GRANTS[method, path]
        answers = operation["responses"]
        assert "default" in answers
        assert bool(operation["security"]) != grant.is_open
        assert ({"401", "403"} <= answers.keys()) != grant.is_open
        assert "Roles: " in operation["description"] or grant.is_open
    assert "HTTPValidationError" not in document["components"]["schemas"]


def test_every_read_tells_its_tag_and_every_write_takes_a_key(document: Json) -> None:
    raw = {(route.method, route.path) for route in RAW_ROUTES}
    for method, path, operation in operations_of(document):
        if (method, path) in raw or not path.startswith("/v1/"):
            continue
        named = [one.get("$ref", "") for one in operation.get("parameters", ())]
        assert ("304" in operation["responses"]) == (method == "GET")
        assert any("IfNoneMatch" in one for one in named) == (method == "GET")
        grant = ROUTE_GRANTS[method, path]
        is_write = method != "GET" and not grant.reads and not grant.is_open
        assert any("IdempotencyKey" in one for one in named) == is_write


def test_every_body_and_answer_has_a_true_schema_and_an_example_of_it(document: Json) -> None:
    for method, path, operation in operations_of(document):
        for media_type, content in contents_of(operation):
            if "json" not in media_type:
                continue
            schema = content.get("schema")
            assert schema, f"{method} {path}: an answer of any form"
            assert "example" in content or "examples" in content, f"{method} {path}"
            if "example" in content:
                check(document, schema, content["example"], f"{method} {path}")
    for name, schema in document["components"]["schemas"].items():
        assert schema["examples"], name
        for example in schema["examples"]:
            check(document, schema, example, name)


def test_every_parameter_has_an_example(document: Json) -> None:
    for method, path, operation in operations_of(document):
        for parameter in operation.get("parameters", ()):
            if "$ref" not in parameter:
                assert "example" in parameter, f"{method} {path} {parameter['name']}"


def test_links_lead_from_lists_to_items_and_on(document: Json) -> None:
    paths = document["paths"]
    assert set(paths["/v1/nodes"]["get"]["responses"]["200"]["links"]) >= {"read_node", "why_node"}
    made = paths["/v1/keys"]["post"]["responses"]["201"]["links"]
    assert made["revoke_key"]["parameters"] == {"path.key_id": "$response.body#/id"}
    ids = {operation["operationId"] for *_, operation in operations_of(document)}
    for *_, operation in operations_of(document):
        for answer in operation["responses"].values():
            for link in answer.get("links", {}).values():
                assert link["operationId"] in ids


def check(document: Json, schema: Json, example: Any, where: str) -> None:
    whole = {"$ref": "#/schema", "schema": schema, "components": document["components"]}
    errors = [error.message for error in Draft202012Validator(whole).iter_errors(example)]
    assert errors == [], where
