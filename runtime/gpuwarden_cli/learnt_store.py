"""Fetches what a server has to learn from into a folder, as `gpuwarden train` reads it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gpuwarden_cli.exits import CommandError, ExitCode
from gpuwarden_runtime.client import Client
from gpuwarden_runtime.learning_records import ModelRecord
from gpuwarden_runtime.records import Costs

LABELS, ROWS, COSTS = "labels.jsonl", "feature-rows.jsonl", "costs.json"
PROMOTED = "promoted"
"""Folder of the promoted version's files."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """What came.

    Attributes:
        folder: Where it lies.
        promoted: Folder of the version that judges, None where rules judge alone.
        labels: Incidents with a label.
        settled: Of these, such that say whether action was needed.
        rows: Rows of features.
    """

    folder: Path
    promoted: Path | None
    labels: int
    settled: int
    rows: int


def fetch(client: Client, kind: str, folder: Path) -> Fetched:
    """Fetch labels, rows of features, costs and the promoted model of a kind.

    Args:
        client: Asks the server.
        kind: gpu, node or nic.
        folder: New or empty.

    Raises:
        GpuwardenError: The server did not answer, or said no.
        CommandError: The folder cannot be written.
    """
    model = next((one for one in client.models() if one.kind == kind), ModelRecord(kind=kind))
    labels = [one for one in client.all_labels() if one.entity_kind == kind]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write_lines(folder / LABELS, labels)
        rows = _write_lines(folder / ROWS, client.all_feature_rows(kind, model.schema_hash or None))
        costs = client.policy().learning
        if costs != Costs():  # where nobody said any, the trained operating point stays
            (folder / COSTS).write_bytes(msgspec.json.encode(costs))
        promoted = _write_model(client, model, folder / PROMOTED)
    except OSError as error:
        raise CommandError(ExitCode.LOCAL, f"{folder}: {error.strerror}") from error
    settled = sum(one.needed is not None for one in labels)
    return Fetched(folder, promoted, len(labels), settled, rows)


def _write_lines(file: Path, items: Iterable[object]) -> int:
    written = 0
    with file.open("wb") as lines:
        for item in items:
            lines.write(msgspec.json.encode(item) + b"\n")
            written += 1
    return written


def _write_model(client: Client, model: ModelRecord, folder: Path) -> Path | None:
    if not model.in_use:
        return None
    folder.mkdir(exist_ok=True)
    for file in client.model_files(model.kind, model.in_use).files:
        (folder / file.name).write_bytes(file.content)
    return folder
