"""The wire contract as JSON Schema: for people and other languages, and as a golden file."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from gpuwarden_wire.acknowledgement import Acknowledgement, Problem
from gpuwarden_wire.batches import WIRE_VERSION, Batch

FILE_NAME = "batch.schema.json"


def wire_json_schema() -> dict[str, Any]:
    """Batch, acknowledgement and problem details as JSON Schema 2020-12.

    The batch itself travels as msgpack: the same maps and arrays, float bytes as binary.
    """
    (batch, acknowledgement, problem), components = msgspec.json.schema_components(
        (Batch, Acknowledgement, Problem), ref_template="#/$defs/{name}"
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"gpuwarden wire contract, version {WIRE_VERSION}",
        "anyOf": [batch, acknowledgement, problem],
        "$defs": components,
    }


def schema_text() -> str:
    """What the golden file holds; `python -m gpuwarden_wire.json_schema` prints it."""
    return json.dumps(wire_json_schema(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    import sys

    sys.stdout.write(schema_text())
