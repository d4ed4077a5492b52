"""Plain files: one a node, and the same as lists, each replaced at once.

`exclude/NODE` exists while the node may not be used; scripts such as a Slurm Prolog or
HealthCheckProgram, an MPI wrapper or a cron job look whether it is there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from gpuwarden_server.actuators.document import FilesTarget
from gpuwarden_server.actuators.ports import ActuatorError
from gpuwarden_verdict.actuation import TAG, Found, Hold, Wanted

_MEND = "The server's user must own the folder, and its disk must have room"
_T = TypeVar("_T")
# A node's name is a file's name: no path, nothing hidden.
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")


class _Record(msgspec.Struct, frozen=True):
    """What `exclude/NODE` holds."""

    reason: str
    rung: str = ""
    decisions: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()


class FilesActuator:
    """A folder of exclusions."""

    def __init__(self, target: FilesTarget) -> None:
        """Make it; the folder itself is the operator's to make or to mount."""
        self._folder = target.folder
        self._nodes = target.folder / "exclude"

    def read(self, nodes: Collection[str]) -> Mapping[str, Found]:
        """Nodes that have a file; those asked about and without one are free."""
        found = {node: Found(Hold.FREE) for node in nodes if _SAFE.fullmatch(node)}
        for name, record in self._records().items():
            ours = record.reason.startswith(TAG)
            found[name] = Found(Hold.OURS if ours else Hold.THEIRS, record.reason)
        return found

    def exclude(self, wanted: Wanted) -> None:
        """Write the lists, then the node's file: where it is there, all is."""
        records = dict(self._records())
        present = records.get(wanted.node_id)
        if present is not None and not present.reason.startswith(TAG):
            return
        rung = wanted.rung.name.lower()
        record = _Record(wanted.text, rung, wanted.decisions, wanted.gpus)
        self._write_lists(records | {wanted.node_id: record})
        self._doing(lambda: self._put(self._nodes / wanted.node_id, msgspec.json.encode(record)))

    def move(self, node_id: str, jobs: Collection[str]) -> None:
        """Nothing runs in a folder."""

    def release(self, node_id: str) -> None:
        """Take a node of ours off the lists, then remove its file."""
        records = dict(self._records())
        present = records.pop(node_id, None)
        if present is None or not present.reason.startswith(TAG):
            return
        self._write_lists(records)
        self._doing(lambda: (self._nodes / node_id).unlink(missing_ok=True))

    def _records(self) -> Mapping[str, _Record]:
        return self._doing(lambda: dict(self._read_records()))

    def _read_records(self) -> Iterable[tuple[str, _Record]]:
        if not self._folder.is_dir():
            # Never made here: on a host where it is not mounted nobody would see what is written.
            raise ActuatorError(f"{self._folder} is not there", "Make it, or mount it")
        self._nodes.mkdir(exist_ok=True)
        for path in sorted(self._nodes.iterdir()):
            if not _SAFE.fullmatch(path.name) or path.name.endswith(".new"):
                continue
            with suppress(FileNotFoundError):
                content = path.read_bytes()
                yield path.name, _record(content)

    def _write_lists(self, records: Mapping[str, _Record]) -> None:
        names = sorted(records)
        files = {
            "hosts.txt": "".join(f"{name}\n" for name in names).encode(),
            "slurm-exclude.txt": (",".join(names) + "\n").encode(),
            "exclusions.json": msgspec.json.encode({name: records[name] for name in names}),
            # Prometheus' file_sd takes groups of targets (its docs: http_sd and file_sd formats).
            "file_sd.json": msgspec.json.encode(
                [
                    {"targets": [name], "labels": {"gpuwarden_rung": records[name].rung}}
                    for name in names
                ]
            ),
        }
        for name, content in files.items():
            self._doing(lambda name=name, content=content: self._put(self._folder / name, content))  # type: ignore[misc]  # mypy cannot infer lambdas with defaults

    def _put(self, path: Path, content: bytes) -> None:
        """Readers see what was or what is, also after a power cut."""
        fresh = path.with_name(f"{path.name}.new")
        with fresh.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        parent = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(parent)
        finally:
            os.close(parent)

    def _doing(self, run: Callable[[], _T]) -> _T:
        try:
            return run()
        except OSError as error:
            raise ActuatorError(f"{self._folder}: {error.strerror or error}", _MEND) from error


def _record(content: bytes) -> _Record:
    """A file of ours, or somebody's own words."""
    try:
        return msgspec.json.decode(content, type=_Record)
    except msgspec.DecodeError:
        return _Record(content.decode("utf-8", "replace").strip()[:200] or "no reason given")
