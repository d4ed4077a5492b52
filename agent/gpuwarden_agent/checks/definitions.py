"""Which plug-in checks there are: one TOML or JSON file, or a folder of them."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from gpuwarden_agent.checks.ownership import refusal
from gpuwarden_agent.config import ConfigError
from gpuwarden_kernel_log.vocabulary import FaultClass

MAX_CHECKS = 32
MAX_NAMES = 64
"""Metrics of all checks together; a server takes 256 outside its registry from the whole fleet."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_FILE_LIMIT_BYTES = 1_048_576


class Output(StrEnum):
    """What a check prints."""

    NAGIOS = "nagios"  # exit code, a line of text, "|" and performance figures
    JSON = "json"  # one JSON object a line: state, text, gpu_uuid or pci_bus_id, readings


class When(StrEnum):
    """When a check that is due may start."""

    ALWAYS = "always"
    IDLE = "idle"  # no process and no job on any GPU of the node, for a minute


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckDefinition:
    """One plug-in check as its owner wants it run.

    Attributes:
        name: Stable snake_case name; metrics and events carry it.
        command: Program, by its absolute path, and arguments; no shell.
        interval_s: Seconds between two starts.
        deadline_s: Seconds after which its process group is ended.
        output: What it prints.
        readings: Figures to keep as readings: our name, then the check's own.
        fault_class: What a failure speaks to.
        proves_repair: A pass ends the repair of what it speaks about.
        environment: Variables beside PATH and LANG; the agent's own are not handed on.
        when: When it may start.
    """

    name: str
    command: tuple[str, ...]
    interval_s: float = 300.0
    deadline_s: float = 30.0
    output: Output = Output.NAGIOS
    readings: Mapping[str, str] = field(default_factory=dict)
    fault_class: FaultClass = FaultClass.UNKNOWN
    proves_repair: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    when: When = When.ALWAYS

    @property
    def metric(self) -> str:
        """Its state: 0 ok, 1 warning, 2 critical."""
        return f"check_{self.name}"

    def reading_metric(self, name: str) -> str:
        """Metric of one of its readings."""
        return f"check_{self.name}_{name}"

    @property
    def metrics(self) -> tuple[str, ...]:
        """All metrics it may give."""
        return (self.metric, *(self.reading_metric(name) for name in self.readings))


def load_checks(path: Path) -> tuple[CheckDefinition, ...]:
    """All checks of a file, or of the `*.toml` and `*.json` files of a folder, in order of name.

    Raises:
        ConfigError: Names the file, the key and the mend.
    """
    found: dict[str, tuple[CheckDefinition, Path]] = {}
    for file in _files(path):
        for check in parse_checks(_read(file), file):
            if check.name in found:
                other = found[check.name][1]
                raise _error(file, f"{check.name}: name", f"{other} has it too; give another name")
            found[check.name] = (check, file)
    checks = tuple(check for check, _ in found.values())
    _refuse_too_many(path, checks)
    return checks


def parse_checks(text: str, file: Path) -> list[CheckDefinition]:
    """The checks of one file; `file` tells the format and is named in errors.

    Raises:
        ConfigError: Names the file, the key and the mend.
    """
    try:
        whole = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # both decode errors are ValueErrors
        raise ConfigError(f"{file}: {error}. Write it as {file.suffix[1:].upper()}.") from error
    if not isinstance(whole, dict) or not isinstance(whole.get("checks"), list):
        raise _error(file, "checks", "give a list of tables, in TOML each below [[checks]]")
    if strange := sorted(set(whole) - {"checks"}):
        raise _error(file, strange[0], "no such key beside checks; remove it")
    return [_check(one, file, number) for number, one in enumerate(whole["checks"], start=1)]


def _files(path: Path) -> list[Path]:
    try:
        if path.is_dir():
            found = [one for one in path.iterdir() if one.suffix in {".toml", ".json"}]
            return sorted(one for one in found if not one.name.startswith("."))
    except OSError as error:
        raise ConfigError(f"checks {path}: {error.strerror}. Make it readable.") from error
    if path.suffix not in {".toml", ".json"}:
        raise ConfigError(f"checks {path}: give a folder, or a file that ends in .toml or .json.")
    return [path]


def _read(file: Path) -> str:
    if (refused := refusal(file)) is not None:
        raise ConfigError(f"{file}: {refused.reason}. {refused.mend}")
    try:
        content = file.read_bytes()
        if len(content) > _FILE_LIMIT_BYTES:
            raise ConfigError(
                f"{file}: longer than {_FILE_LIMIT_BYTES} bytes. Is it the right one?"
            )
        return content.decode()
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}. Make it readable for the agent.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: not UTF-8 ({error}). Write it as text.") from error


def _refuse_too_many(path: Path, checks: Iterable[CheckDefinition]) -> None:
    names = [(metric, check.name) for check in checks for metric in check.metrics]
    owners: dict[str, str] = {}
    for metric, name in names:
        if (other := owners.setdefault(metric, name)) != name:
            raise ConfigError(
                f"{path}: checks {other} and {name} both make the metric {metric}; "
                "rename one of them or its reading."
            )
    if len({name for _, name in names}) > MAX_CHECKS:
        raise ConfigError(f"{path}: more than {MAX_CHECKS} checks; merge or remove some.")
    if len(names) > MAX_NAMES:
        raise ConfigError(
            f"{path}: {len(names)} metrics, at most {MAX_NAMES}: one a check and one a reading; "
            "keep fewer readings."
        )


def _check(raw: object, file: Path, number: int) -> CheckDefinition:
    if not isinstance(raw, dict):
        raise _error(file, f"check {number}", "give a table with name and command")
    label = raw["name"] if isinstance(raw.get("name"), str) else f"check {number}"
    values: dict[str, Any] = {}
    for key, value in raw.items():
        if key not in _KEYS:
            raise _error(file, f"{label}: {key}", f"no such key; there are {', '.join(_KEYS)}")
        try:
            values[key] = _KEYS[key](value)
        except ValueError as error:
            raise _error(file, f"{label}: {key} = {str(value)[:80]!r}", str(error)) from error
    for key in ("name", "command"):
        if key not in values:
            raise _error(file, f"{label}: {key}", "is missing; give it")
    check = CheckDefinition(**values)
    if check.deadline_s > check.interval_s:
        raise _error(
            file, f"{label}: deadline_s", f"is above interval_s ({check.interval_s:g}); lower it"
        )
    return check


def _error(file: Path, key: str, mend: str) -> ConfigError:
    return ConfigError(f"{file}: {key}: {mend}.")


def _name(value: object) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError("give 1 to 40 of a-z, 0-9 and _, a letter first")
    return value


def _command(value: object) -> tuple[str, ...]:
    words = value if isinstance(value, list) else []
    if not words or not all(isinstance(word, str) and "\0" not in word for word in words):
        raise ValueError('give a list of words, such as ["/usr/lib/nagios/plugins/check_disk"]')
    if not words[0].startswith("/"):
        raise ValueError("give the program by its absolute path")
    return tuple(words)


def _seconds_within(least: float, most: float) -> Callable[[object], float]:
    def parse(value: object) -> float:
        number = isinstance(value, float | int) and not isinstance(value, bool)
        if not number or not least <= value <= most:  # type: ignore[operator]  # a number by then
            raise ValueError(f"give seconds from {least:g} to {most:g}")
        return float(value)  # type: ignore[arg-type]  # a number by then

    return parse


def _output(value: object) -> Output:
    if not isinstance(value, str) or value not in tuple(Output):
        raise ValueError("give nagios or json")
    return Output(value)


def _when(value: object) -> When:
    if not isinstance(value, str) or value not in tuple(When):
        raise ValueError("give always or idle")
    return When(value)


def _readings(value: object) -> dict[str, str]:
    table = _texts(value)
    for name in table:
        _name(name)
    return table


def _texts(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
        raise ValueError("give a table of names and texts")
    return value


def _environment(value: object) -> dict[str, str]:
    table = _texts(value)
    if any("=" in name or not name or "\0" in name + text for name, text in table.items()):
        raise ValueError("give names of variables and texts without NUL")
    return table


def _fault_class(value: object) -> FaultClass:
    if not isinstance(value, str) or value not in tuple(FaultClass):
        raise ValueError(f"give one of {', '.join(FaultClass)}")
    return FaultClass(value)


def _yes_or_no(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("give true or false")
    return value


_KEYS: Mapping[str, Callable[[object], Any]] = {
    "name": _name,
    "command": _command,
    "interval_s": _seconds_within(1.0, 604_800.0),
    "deadline_s": _seconds_within(0.1, 86_400.0),
    "output": _output,
    "readings": _readings,
    "fault_class": _fault_class,
    "proves_repair": _yes_or_no,
    "environment": _environment,
    "when": _when,
}
