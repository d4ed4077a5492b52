"""Steps of a long evaluation: what was done stays done."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from gpuwarden_models.evaluation.plain import plain


class EvaluationError(Exception):
    """An evaluation that cannot go on; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Step:
    """One piece of work.

    Attributes:
        name: Of the step, and of the file with its result.
        work: Does it; its result is written as JSON.
    """

    name: str
    work: Callable[[], object]


class StepBook:
    """Results of finished steps, one file each."""

    def __init__(self, folder: Path, arguments: Mapping[str, Any]) -> None:
        """Open or begin.

        Args:
            folder: State; made where it is not there.
            arguments: What the results hang on.

        Raises:
            EvaluationError: The folder holds results of other arguments.
        """
        self._folder = folder / "steps"
        self._folder.mkdir(parents=True, exist_ok=True)
        written = msgspec.json.encode(plain(arguments), order="sorted")
        told = folder / "arguments.json"
        if told.exists() and told.read_bytes() != written:
            raise EvaluationError(
                f"{folder}: holds an evaluation with other arguments ({told.name});"
                " give the same ones to go on, or another --state folder"
            )
        told.write_bytes(written)

    def result(self, name: str) -> Any:
        """A finished step's result; None where it is not done."""
        path = self._path(name)
        return msgspec.json.decode(path.read_bytes()) if path.exists() else None

    def run(
        self,
        steps: Sequence[Step],
        minutes: float,
        tell: Callable[[str], None],
    ) -> list[str]:
        """Do what is not done yet, until the time is over.

        Args:
            steps: In their order.
            minutes: No step begins after so long.
            tell: Told what begins and how long it took.

        Returns:
            Names of the steps that are left.
        """
        began = time.monotonic()
        left = [step for step in steps if not self._path(step.name).exists()]
        for number, step in enumerate(left):
            if time.monotonic() - began > 60.0 * minutes:
                return [one.name for one in left[number:]]
            tell(f"{step.name} ...")
            at = time.monotonic()
            self._keep(step.name, step.work())
            tell(f"{step.name}: {time.monotonic() - at:.0f} s")
        return []

    def _keep(self, name: str, result: object) -> None:
        unfinished = self._path(name).with_suffix(".partial")
        unfinished.write_bytes(msgspec.json.encode(plain(result)))
        unfinished.replace(self._path(name))

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"


def digest_of(folder: Path) -> str:
    """First digits of a hash over the files of a folder, names included."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]
