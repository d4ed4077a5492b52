"""An example for every schema, body, answer and parameter of the OpenAPI document.

A model or field that gives its own wins; the rest is put together from the fields, whose names mean
the same thing everywhere (`node_id`, `opened_at`): WELL_KNOWN says what. All examples tell of one
GPU, so that a reader finds it again from route to route.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from gpuwarden_server.web.links import resolve

Json = dict[str, Any]

_GPU = "GPU-5b1f0c9e-0000-4a3e-9d5f-2f6c8a1b7e33"
_AT = 1764500000.1
WELL_KNOWN: Mapping[str, Any] = MappingProxyType(
    {
        "action": "reboot_node",
        "after": 0,
        "agent_version": "0.1.0",
        "author": "ana",
        "bool": False,
        "boot_id": "9d2c6f0a-5a0e-4a52-8a51-0f4ea1d0c1b2",
        "by": "ana",
        "code": "not_found",
        "confidence": 0.98,
        "created_by": "ana",
        "cursor": "WzAuMCwiZ3B1LTAxNyJd",
        "decided_by": "rule",
        "decision_id": "dec-5d0c8a1b7e33",
        "detail": "no node 'gpu-099'",
        "detector": "gpu_lost",
        "digest": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "driver_version": "570.124.06",
        "entity": _GPU,
        "entity_kind": "gpu",
        "epoch": 17,
        "event_id": "kmsg:9d2c6f0a:4711",
        "fault_class": "bus",
        "feed_id": "0f4ea1d0c1b29d2c6f0a5a0e4a528a51",
        "gpu_index": 1,
        "gpu_uuid": _GPU,
        "guard": "",
        "guard_says": "",
        "advised": "",
        "id": "inc-3f9a0c1b2d4e",
        "incident_id": "inc-3f9a0c1b2d4e",
        "index": 1,
        "key_id": "key-8a1b7e335d0c",
        "kind": "kernel_log",
        "limit": 100,
        "mend": "See GET /v1/nodes.",
        "model": "NVIDIA H100 80GB HBM3",
        "model_version": "2026-11-30-1",
        "name": "ana",
        "next_cursor": None,
        "node": "gpu-017",
        "node_id": "gpu-017",
        "pci_bus_id": "0000:1b:00.0",
        "plane": "events",
        "policy_version": "3f9a0c1b2d4e",
        "pool": "default",
        "reason": "XID 79: GPU has fallen off the bus",
        "rung": "exclude",
        "sentence": "XID 79: GPU has fallen off the bus",
        "serial": "1654422006734",
        "severity": "critical",
        "source": "nvml",
        "state": "excluded",
        "title": "Not found",
        "usable": "no",
        "vbios_version": "96.00.89.00.01",
        "version": "0.1.0",
        "why": "XID 79: GPU has fallen off the bus",
        "would": "",
    }
)
_BY_TYPE: Mapping[str, Any] = MappingProxyType(
    {"string": "text", "integer": 1, "number": 1.5, "boolean": False, "null": None}
)
_DEEPEST = 8


def add_examples(document: Json) -> None:
    """Give an example to whatever of `document` has none."""
    for name, schema in document["components"]["schemas"].items():
        for given in schema.get("examples", ()):
            _fill(document, schema, given)
        if not (schema.get("examples") or "example" in schema):
            schema["examples"] = [_make(document, schema, name)]
    for methods in document["paths"].values():
        for operation in methods.values():
            _complete(document, operation)


def _fill(document: Json, schema: Mapping[str, Any], given: Any) -> None:
    """Add what a model's own example lacks: nulls, which FastAPI drops, a subclass's fields."""
    if not isinstance(given, dict):
        return
    for name in schema.get("required", ()):
        field = schema["properties"][name]
        is_null = {"type": "null"} in field.get("anyOf", ())
        given.setdefault(name, None if is_null else _make(document, field, name))


def _complete(document: Json, operation: Json) -> None:
    for parameter in operation.get("parameters", ()):
        if "$ref" not in parameter and not parameter.keys() & {"example", "examples"}:
            parameter["example"] = _make(document, parameter.get("schema", {}), parameter["name"])
    answers = [answer for code, answer in operation["responses"].items() if code.startswith("2")]
    for holder in (operation.get("requestBody", {}), *answers):
        for media_type, content in holder.get("content", {}).items():
            if not content.keys() & {"example", "examples"} and "json" in media_type:
                content["example"] = _make(document, content.get("schema", {}), "")


def _make(document: Json, schema: Mapping[str, Any], name: str, depth: int = 0) -> Any:
    """An example of a schema; `name` is that of the field or parameter that holds it."""
    for given in ("examples", "example", "const"):
        if schema.get(given):
            return schema[given][0] if given == "examples" else schema[given]
    schema = resolve(document, schema)
    if schema.get("examples"):
        return schema["examples"][0]
    if schema.get("enum"):
        known = WELL_KNOWN.get(name)
        return known if known in schema["enum"] else schema["enum"][0]
    choices = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    if choices:
        return _of_choices(document, choices, name, depth)
    known = _known(name, schema)
    if known is not None:
        return known
    return _of_type(document, schema, name, depth)


def _of_choices(document: Json, choices: list[Json], name: str, depth: int) -> Any:
    if WELL_KNOWN.get(name, ...) is None and {"type": "null"} in choices:
        return None
    real = [choice for choice in choices if choice.get("type") != "null"]
    return _make(document, real[0], name, depth) if real else None


def _of_type(document: Json, schema: Mapping[str, Any], name: str, depth: int) -> Any:
    kind = schema.get("type", "object" if "properties" in schema else None)
    if isinstance(kind, list):
        kind = next(one for one in kind if one != "null")
    match kind:
        case "object" if depth < _DEEPEST:
            fields = schema.get("properties", {})
            return {key: _make(document, one, key, depth + 1) for key, one in fields.items()}
        case "array" if depth < _DEEPEST:
            singular = name.removesuffix("s")
            return [_make(document, schema.get("items", {}), singular, depth + 1)]
        case "object":
            return {}
        case "array":
            return []
        case "string" | "integer" | "number" | "boolean":
            return (
                schema["default"] if schema.get("default") is not None else _bounded(schema, kind)
            )
        case _:
            return None


def _bounded(schema: Mapping[str, Any], kind: str) -> Any:
    value = _BY_TYPE[kind]
    if kind in ("integer", "number"):
        value = max(value, schema.get("minimum", value))
        value = min(value, schema.get("maximum", value))
    return value


def _known(name: str, schema: Mapping[str, Any]) -> Any:
    """What a field of this name holds everywhere, where it is of the schema's type."""
    kinds = schema.get("type")
    value = WELL_KNOWN.get(name)
    if value is None and name.endswith(("_at", "since", "until")):
        value = _AT
    if kinds == "number" and isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if kinds == "integer" and isinstance(value, int) and not isinstance(value, bool):
        return value
    return value if kinds == "string" and isinstance(value, str) else None
