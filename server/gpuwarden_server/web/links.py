"""OpenAPI links from the shape of the paths: a list leads to its items, an item to what it takes.

`GET /v1/things` answers a page with `items`, `/v1/things/{thing_id}` and what is below name one of
them: each item has a field of the parameter's name, or `id`. A new resource of that form gets its
links without a word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

Json = dict[str, Any]


def add_links(document: Json) -> None:
    """Put links into every answer that can name the next request."""
    for path, methods in document["paths"].items():
        base, parameter = _split(path)
        if parameter is not None:
            _link_all(document, list(methods.values()), base, parameter)


def _link_all(document: Json, targets: list[Json], base: str, parameter: str) -> None:
    for source in (base, f"{base}/{{{parameter}}}"):
        origins = document["paths"].get(source, {}).values()
        for origin, target in product(origins, targets):
            if origin is not target:
                _link(document, source == base, origin, target, parameter)


def _split(path: str) -> tuple[str, str | None]:
    """The collection of a path with one parameter, and the parameter; None where there is none."""
    base, found, rest = path.partition("/{")
    name = rest.partition("}")[0]
    return (base, name) if found and "{" not in rest.partition("}")[2] else (path, None)


def _link(document: Json, of_collection: bool, origin: Json, target: Json, parameter: str) -> None:
    for code, answer in origin.get("responses", {}).items():
        if not code.startswith("2"):
            continue
        schema = _schema_of(document, answer)
        place = next(_places(document, schema, of_collection, parameter), None)
        if place is not None:
            answer.setdefault("links", {})[target["operationId"]] = {
                "operationId": target["operationId"],
                "parameters": {f"path.{parameter}": f"$response.body#{place}"},
            }


def _places(
    document: Json, schema: Mapping[str, Any], of_collection: bool, parameter: str
) -> Iterator[str]:
    """Where an answer names the thing, as JSON pointers."""
    item = resolve(document, schema.get("properties", {}).get("items", {}).get("items", {}))
    for name in (parameter, "id"):
        if of_collection and name in item.get("properties", {}):
            yield f"/items/0/{name}"
        if name in schema.get("properties", {}):
            yield f"/{name}"


def _schema_of(document: Json, answer: Json) -> Mapping[str, Any]:
    content = answer.get("content", {}).get("application/json", {})
    return resolve(document, content.get("schema", {}))


def resolve(document: Json, schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema behind a `$ref`, or itself."""
    while "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        schema = document["components"]["schemas"][name]
    return schema
