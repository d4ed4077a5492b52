"""From the raw text of a setting to its value; a ValueError says what to give instead."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlsplit

from gpuwarden_wire.keys import KEY_MEND, key_fault

_SWITCH = MappingProxyType(
    {"on": True, "true": True, "1": True, "yes": True}
    | {"off": False, "false": False, "0": False, "no": False}
)


def parse_text(raw: str) -> str:
    """Text without the blanks around it."""
    return raw.strip()


def parse_command(raw: str) -> str:
    """A command line whose quotations are closed."""
    shlex.split(raw)  # raises ValueError where a quotation is not closed
    return raw.strip()


def parse_key(raw: str) -> str:
    """A key that an HTTP header can carry."""
    key = raw.strip()
    fault = key_fault(key)
    if fault:
        raise ValueError(f"{fault}: {KEY_MEND}")
    return key


def parse_path(raw: str) -> Path:
    """A path."""
    if not raw.strip():
        raise ValueError("give a path")
    return Path(raw.strip())


def parse_optional_path(raw: str) -> Path | None:
    """A path, None where empty."""
    return Path(raw.strip()) if raw.strip() else None


def parse_seconds(raw: str) -> float:
    """Seconds from 0.05 to a day."""
    value = float(raw)
    if not 0.05 <= value <= 86_400:
        raise ValueError("give seconds from 0.05 to 86400")
    return value


def parse_fast_seconds(raw: str) -> float:
    """Seconds from 0.2 to 60; 0 is off."""
    value = float(raw)
    if value != 0 and not 0.2 <= value <= 60:
        raise ValueError("give seconds from 0.2 to 60, or 0")
    return value


def parse_gpm_seconds(raw: str) -> float:
    """Seconds from 1 to an hour; 0 is off."""
    value = float(raw)
    if value != 0 and not 1 <= value <= 3600:
        raise ValueError("give seconds from 1 to 3600, or 0")
    return value


def parse_slow_seconds(raw: str) -> float:
    """Seconds from five minutes to a day."""
    value = float(raw)
    if not 300 <= value <= 86_400:
        raise ValueError("give seconds from 300 to 86400")
    return value


def parse_byte_count(raw: str) -> int:
    """Bytes, at least 64 KiB."""
    value = int(raw)
    if value < 65_536:
        raise ValueError("give a number of bytes, at least 65536")
    return value


def parse_port(raw: str) -> int:
    """A TCP port; 0 is off."""
    value = int(raw)
    if not 0 <= value <= 65_535:
        raise ValueError("give a port from 0 to 65535; 0 is off")
    return value


def parse_optional_count(raw: str) -> int | None:
    """A number from 0 to 1024, None where empty."""
    if not raw.strip():
        return None
    value = int(raw)
    if not 0 <= value <= 1_024:
        raise ValueError("give a number from 0 to 1024, or leave it empty")
    return value


def parse_switch(raw: str) -> bool:
    """On or off."""
    try:
        return _SWITCH[raw.strip().lower()]
    except KeyError:
        raise ValueError("give on or off") from None


def parse_names(raw: str) -> tuple[str, ...]:
    """Names between commas."""
    return tuple(part.strip() for part in raw.split(",") if part.strip())


def parse_url(raw: str) -> str:
    """Address of a server, without a slash at its end."""
    url = raw.strip().rstrip("/")
    if not url:
        return ""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("give an address like https://gpuwarden.example:8750")
    _ = parts.port  # raises ValueError where it is not a number
    return url


class Cloud(StrEnum):
    """Whose metadata service says what it will do to this node."""

    AWS = "aws"
    AZURE = "azure"


def parse_cloud(raw: str) -> Cloud | None:
    """A cloud, None where empty."""
    name = raw.strip().lower()
    if not name:
        return None
    try:
        return Cloud(name)
    except ValueError:
        raise ValueError(f"give {' or '.join(Cloud)}, or leave it empty") from None


def parse_cloud_url(raw: str) -> str:
    """Address of a metadata service: http, no path."""
    url = parse_url(raw)
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.path or parts.query or parts.username:
        raise ValueError("give an address like http://169.254.169.254, without a path")
    return url


_EXPORTER_KINDS = ("auto", "dcgm", "nvidia_smi", "node", "all_smi")


@dataclass(frozen=True, slots=True)
class ExporterAddress:
    """An exporter to read.

    Attributes:
        url: Address of its metrics, path included.
        kind: auto, dcgm, nvidia_smi, node or all_smi.
    """

    url: str
    kind: str = "auto"


def parse_exporters(raw: str) -> tuple[ExporterAddress, ...]:
    """Exporters between commas."""
    return tuple(parse_exporter(part) for part in parse_names(raw))


def parse_exporter(raw: str) -> ExporterAddress:
    """One exporter: KIND=URL or URL."""
    kind, separator, address = raw.partition("=")
    if not separator or "/" in kind:  # an address may hold "=" behind its path
        kind, address = "auto", raw
    if kind not in _EXPORTER_KINDS:
        raise ValueError(f"{kind!r} is no kind of exporter: give {', '.join(_EXPORTER_KINDS)}")
    try:
        url = parse_url(address)
    except ValueError:
        url = ""
    if not url:
        raise ValueError("give an address like dcgm=http://127.0.0.1:9400/metrics")
    path = urlsplit(url).path
    return ExporterAddress(url if path else f"{url}/metrics", kind)


def parse_log_level(raw: str) -> str:
    """A level of logging."""
    level = raw.strip().lower()
    if level not in {"debug", "info", "warning", "error"}:
        raise ValueError("give debug, info, warning or error")
    return level
