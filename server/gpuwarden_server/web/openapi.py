"""Completes the OpenAPI document: what is the same for every route is said here, once.

FastAPI tells parameters, bodies and answers of each route. Added are security (from the
authorisation table), problem details for every refusal, entity tags of reads, idempotency keys of
writes, links that lead from an answer to the next request, and an example everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from fastapi import FastAPI

from gpuwarden_server.access.authorisation import ROUTE_GRANTS, Grant
from gpuwarden_server.core.problems import PROBLEM_TYPE
from gpuwarden_server.front import RAW_ROUTES
from gpuwarden_server.web.examples import add_examples
from gpuwarden_server.web.links import add_links
from gpuwarden_server.web.repeats import HEADER, KEY_PATTERN, takes_key
from gpuwarden_wire.acknowledgement import Acknowledgement

Json = dict[str, Any]

_SECURITY: Mapping[str, Json] = MappingProxyType(
    {
        "bearer": {
            "type": "http",
            "scheme": "bearer",
            "bearerFormat": "gw_ and 43 base64url characters",
            "description": "A key of `gpuwarden keys create`.",
        }
    }
)
_PROBLEM_SCHEMA: Json = {
    "type": "object",
    "title": "Problem",
    "description": "RFC 9457 problem details.",
    "required": ["type", "title", "status", "code", "detail", "mend"],
    "properties": {
        "type": {"type": "string", "description": "urn:gpuwarden:problem:CODE"},
        "title": {"type": "string", "description": "The same for every occurrence."},
        "status": {"type": "integer", "minimum": 400, "maximum": 599},
        "code": {"type": "string", "description": "Stable, snake_case."},
        "detail": {"type": "string", "description": "This occurrence; names the input."},
        "mend": {"type": "string", "description": "What the caller can do."},
        "leader": {"type": ["string", "null"], "description": "Leading server, with 503."},
        "schemas": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Schema hashes wanted, with 428.",
        },
    },
}
# By status: name of the shared answer, when it comes, and a code that shows it.
_PROBLEMS: Mapping[str, tuple[str, str, str, str]] = MappingProxyType(
    {
        "401": ("NoValidKey", "The request carries no valid key.", "No valid key", "no_valid_key"),
        "403": ("NotAllowed", "The key's role may not do this.", "Not allowed", "role_not_allowed"),
        "404": ("NotFound", "There is no such thing.", "Not found", "not_found"),
        "409": (
            "Conflict",
            "It stands otherwise by now, or its idempotency key has been used for something else.",
            "In conflict with what is stored",
            "wrong_phase",
        ),
        "413": ("TooLarge", "The body is too large.", "Too large", "body_too_large"),
        "415": (
            "WrongMediaType",
            "The body is of a media type that is not taken.",
            "Not a media type that is taken here",
            "wrong_media_type",
        ),
        "422": (
            "InvalidValue",
            "A value is not valid; the detail names it.",
            "A value is not valid",
            "invalid_value",
        ),
        "default": (
            "Refused",
            "Any other refusal; 429 and 503 say in Retry-After when to come again.",
            "Not available now",
            "storage_failed",
        ),
    }
)
_TAG_HEADER: Json = {
    "description": "Tag of this answer; give it back in If-None-Match.",
    "schema": {"type": "string"},
}
_IF_NONE_MATCH: Json = {
    "name": "If-None-Match",
    "in": "header",
    "description": "Tag of the answer that the caller holds: 304 where it still stands.",
    "schema": {"type": "string"},
    "example": 'W/"5f2b0c9e4a3e9d5f2f6c8a1b7e331c0d"',
}
_IDEMPOTENCY_KEY: Json = {
    "name": HEADER,
    "in": "header",
    "description": "Chosen by the caller for this one request: a repeat under it within 24 h gets "
    "the same answer and does nothing; another request under it is refused with 409.",
    "schema": {"type": "string", "pattern": KEY_PATTERN},
    "example": "0f8fad5b-d9cb-469f-a165-70867728950e",
}


def complete_document(app: FastAPI) -> None:
    """Make `app.openapi` give the completed document; it is made once, when first asked for."""
    make = app.openapi
    made: list[Json] = []

    def openapi() -> Json:
        if not made:
            made.append(_completed(make()))
        return made[0]

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way to extend it


def _completed(document: Json) -> Json:
    parts = document.setdefault("components", {})
    schemas = parts.setdefault("schemas", {})
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    schemas["Problem"] = _PROBLEM_SCHEMA
    schemas.update(_wire_schemas())
    parts["securitySchemes"] = dict(_SECURITY)
    parts["responses"] = {name: _problem_answer(code) for code, (name, *_) in _PROBLEMS.items()}
    parts["parameters"] = {"IfNoneMatch": _IF_NONE_MATCH, "IdempotencyKey": _IDEMPOTENCY_KEY}
    document["tags"] = [{"name": name} for name in sorted(_tags(document))]
    for method, path, operation in operations_of(document):
        _complete(method, path, operation)
    add_links(document)
    add_examples(document)
    return document


def operations_of(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Json]]:
    """Method in capitals, path template and operation of each route in a document."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def _wire_schemas() -> Json:
    """What the raw routes answer is no pydantic model."""
    _, made = msgspec.json.schema_components(
        [Acknowledgement], ref_template="#/components/schemas/{name}"
    )
    return made


def _tags(document: Json) -> set[str]:
    return {tag for *_, operation in operations_of(document) for tag in operation.get("tags", ())}


def _complete(method: str, path: str, operation: Json) -> None:
    grant = ROUTE_GRANTS[method, path]
    operation.setdefault("operationId", f"{method}{path}".lower().replace("/", "_"))
    answers = operation.setdefault("responses", {})
    operation["security"] = [] if grant.is_open else [{name: []} for name in _SECURITY]
    operation["description"] = _description(operation, grant)
    if _takes_key(method, path):
        _add_parameter(operation, "IdempotencyKey")
    for code in _codes(method, path, operation, grant):
        if code == "422" or code not in answers:
            answers[code] = {"$ref": f"#/components/responses/{_PROBLEMS[code][0]}"}
    content = answers.get("200", {}).get("content", {})
    if method == "GET" and path.startswith("/v1/") and "text/event-stream" not in content:
        _add_parameter(operation, "IfNoneMatch")
        answers["304"] = {"description": "The caller holds it already.", "headers": _tag()}
        answers["200"].setdefault("headers", {}).update(_tag())


def _takes_key(method: str, path: str) -> bool:
    """Whether an idempotency key counts: raw routes are served before, open ones have no caller."""
    route = (method, path)
    return takes_key(method, path) and route not in _RAW and not ROUTE_GRANTS[route].is_open


_RAW = frozenset((route.method, route.path) for route in RAW_ROUTES)


def _codes(method: str, path: str, operation: Json, grant: Grant) -> Iterator[str]:
    if not grant.is_open:
        yield from ("401", "403")
    if "{" in path:
        yield "404"
    if _takes_key(method, path):
        yield "409"
    if "requestBody" in operation:
        yield from ("413", "415")
    if "requestBody" in operation or operation.get("parameters"):
        yield "422"
    yield "default"


def _description(operation: Json, grant: Grant) -> str:
    said = operation.get("description", "")
    who = "Open: no key is asked."
    if not grant.is_open:
        who = f"Roles: {', '.join(sorted(grant.roles))}."
        who += " A key of role agent may name its own node only." if grant.own_node else ""
    return f"{said}\n\n{who}" if said else who


def _tag() -> Json:
    return {"ETag": dict(_TAG_HEADER)}


def _add_parameter(operation: Json, name: str) -> None:
    operation.setdefault("parameters", []).append({"$ref": f"#/components/parameters/{name}"})


def _problem_answer(code: str) -> Json:
    _, when, title, word = _PROBLEMS[code]
    example = {
        "type": f"urn:gpuwarden:problem:{word}",
        "title": title,
        "status": 503 if code == "default" else int(code),
        "code": word,
        "detail": when,
        "mend": "What the caller can do stands here.",
        "leader": None,
        "schemas": [],
    }
    schema = {"$ref": "#/components/schemas/Problem"}
    return {
        "description": when,
        "content": {PROBLEM_TYPE: {"schema": schema, "example": example}},
    }
