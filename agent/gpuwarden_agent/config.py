"""Settings of the agent: the only place that reads its environment."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, get_type_hints
from urllib.parse import urlsplit

from gpuwarden_wire.keys import KEY_MEND, key_fault

PREFIX = "GPUWARDEN_AGENT_"

_SWITCH = MappingProxyType(
    {"on": True, "true": True, "1": True, "yes": True}
    | {"off": False, "false": False, "0": False, "no": False}
)

# As host names, and as Slurm and Kubernetes name nodes; the server takes no other.
_NODE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


class ConfigError(Exception):
    """A setting that cannot be used; the message names the setting and the mend."""


def _text(raw: str) -> str:
    return raw.strip()


def _key(raw: str) -> str:
    key = raw.strip()
    fault = key_fault(key)
    if fault:
        raise ValueError(f"{fault}: {KEY_MEND}")
    return key


def _path(raw: str) -> Path:
    if not raw.strip():
        raise ValueError("give a path")
    return Path(raw.strip())


def _optional_path(raw: str) -> Path | None:
    return Path(raw.strip()) if raw.strip() else None


def _seconds(raw: str) -> float:
    value = float(raw)
    if not 0.05 <= value <= 86_400:
        raise ValueError("give seconds from 0.05 to 86400")
    return value


def _byte_count(raw: str) -> int:
    value = int(raw)
    if value < 65_536:
        raise ValueError("give a number of bytes, at least 65536")
    return value


def _port(raw: str) -> int:
    value = int(raw)
    if not 0 <= value <= 65_535:
        raise ValueError("give a port from 0 to 65535; 0 is off")
    return value


def _optional_count(raw: str) -> int | None:
    if not raw.strip():
        return None
    value = int(raw)
    if not 0 <= value <= 1_024:
        raise ValueError("give a number from 0 to 1024, or leave it empty")
    return value


def _switch(raw: str) -> bool:
    try:
        return _SWITCH[raw.strip().lower()]
    except KeyError:
        raise ValueError("give on or off") from None


def _names(raw: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in raw.split(",") if part.strip())


def _url(raw: str) -> str:
    url = raw.strip().rstrip("/")
    if not url:
        return ""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("give an address like https://gpuwarden.example:8750")
    _ = parts.port  # raises ValueError where it is not a number
    return url


def _log_level(raw: str) -> str:
    level = raw.strip().lower()
    if level not in {"debug", "info", "warning", "error"}:
        raise ValueError("give debug, info, warning or error")
    return level


@dataclass(frozen=True, slots=True)
class Setting:
    """What stands behind one field of the settings.

    Attributes:
        parse: Reads the raw text; raises ValueError with what to give instead.
        doc: One sentence for help texts and docs.
        secret: Never shown.
    """

    parse: Callable[[str], Any]
    doc: str
    secret: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """Every setting of the agent. Field `x_y` is read from GPUWARDEN_AGENT_X_Y or `--x-y`.

    Each field carries its own description, which the command line prints; see `setting_docs`.
    """

    server_url: Annotated[
        str,
        Setting(_url, "Address of the gpuwarden server, such as https://gpuwarden.example:8750."),
    ] = ""
    key: Annotated[
        str,
        Setting(_key, "Bearer key of this node (role agent). Prefer the key file.", secret=True),
    ] = ""
    key_file: Annotated[
        Path | None,
        Setting(_optional_path, "File that holds the bearer key; read again whenever it changes."),
    ] = None
    ca_file: Annotated[
        Path | None,
        Setting(
            _optional_path, "PEM file of the authorities to trust for https, instead of the host's."
        ),
    ] = None
    client_cert_file: Annotated[
        Path | None,
        Setting(_optional_path, "PEM client certificate for https, where the server asks for one."),
    ] = None
    client_key_file: Annotated[
        Path | None, Setting(_optional_path, "PEM private key of the client certificate.")
    ] = None
    request_timeout_s: Annotated[
        float, Setting(_seconds, "Seconds to wait for the server to accept or answer one batch.")
    ] = 10.0
    backoff_max_s: Annotated[
        float,
        Setting(
            _seconds, "Longest pause between two tries, seconds; Retry-After may ask for more."
        ),
    ] = 15.0
    node_id: Annotated[str, Setting(_text, "Name of this node; the host name where empty.")] = ""
    interval_s: Annotated[
        float, Setting(_seconds, "Cadence of collection and telemetry, seconds.")
    ] = 5.0
    deadline_s: Annotated[
        float,
        Setting(_seconds, "Seconds after which one collection counts as stuck (NVML has its own)."),
    ] = 4.0
    proc_root: Annotated[Path, Setting(_path, "Where procfs is mounted.")] = Path("/proc")
    sys_root: Annotated[Path, Setting(_path, "Where sysfs is mounted.")] = Path("/sys")
    kmsg_path: Annotated[
        Path, Setting(_path, "Kernel log to follow: the device, or a log file that grows.")
    ] = Path("/dev/kmsg")
    kmsg_backlog_bytes: Annotated[
        int,
        Setting(_byte_count, "How much of a log file is read back at the very first start, bytes."),
    ] = 1_048_576
    collectors: Annotated[
        tuple[str, ...],
        Setting(_names, "Names of the collectors to run, comma-separated; all where empty."),
    ] = ()
    spool_folder: Annotated[
        Path, Setting(_path, "Folder of the disk spool; one agent a folder.")
    ] = Path("/var/lib/gpuwarden-agent")
    spool_cap_bytes: Annotated[
        int,
        Setting(_byte_count, "Most bytes of batches kept in the spool; telemetry is shed first."),
    ] = 268_435_456
    verdict_file: Annotated[Path, Setting(_path, "Local file with the node's verdict.")] = Path(
        "/run/gpuwarden/verdict.json"
    )
    metrics_host: Annotated[str, Setting(_text, "Address that /metrics listens on.")] = "127.0.0.1"
    metrics_port: Annotated[int, Setting(_port, "Port that /metrics listens on; 0 is off.")] = 0
    gpus_expected: Annotated[
        int | None,
        Setting(
            _optional_count,
            "Number of GPUs built into this node, those bound to another driver (vfio-pci) "
            "included. The most ever seen where empty, over reboots too: set it once after GPUs "
            "were taken out for good.",
        ),
    ] = None
    nvml: Annotated[bool, Setting(_switch, "Read GPUs through NVML: on or off.")] = True
    nvml_library: Annotated[
        str, Setting(_text, "Path of libnvidia-ml.so.1; the loader's choice where empty.")
    ] = ""
    log_level: Annotated[
        str, Setting(_log_level, "Least severe log line: debug, info, warning, error.")
    ] = "info"

    @property
    def own_node_id(self) -> str:
        """The node's name: as set, else the host name."""
        return self.node_id or socket.gethostname()


@dataclass(frozen=True, slots=True)
class SettingDoc:
    """One setting, for help texts and docs.

    Attributes:
        name: Field name.
        variable: Environment variable.
        flag: Command-line flag.
        default: As a user would write it.
        doc: One sentence.
    """

    name: str
    variable: str
    flag: str
    default: str
    doc: str


def setting_docs() -> tuple[SettingDoc, ...]:
    """All settings, in order."""
    defaults = {one.name: one.default for one in fields(AgentSettings)}
    return tuple(
        SettingDoc(
            name=name,
            variable=PREFIX + name.upper(),
            flag="--" + name.replace("_", "-"),
            default=_written(defaults[name]),
            doc=setting.doc,
        )
        for name, setting in _settings().items()
    )


def _settings() -> dict[str, Setting]:
    hints = get_type_hints(AgentSettings, include_extras=True)
    return {one.name: hints[one.name].__metadata__[0] for one in fields(AgentSettings)}


def read_settings(flags: Mapping[str, str]) -> AgentSettings:
    """Settings of this process: its environment, overridden by `flags`; see `load_settings`."""
    return load_settings(os.environ, flags)


def load_settings(environ: Mapping[str, str], flags: Mapping[str, str]) -> AgentSettings:
    """Settings from the environment, overridden by command-line flags.

    Args:
        environ: Environment variables; other names than ours are ignored.
        flags: Raw values by field name.

    Raises:
        ConfigError: A value cannot be read, or a variable with our prefix names no setting.
    """
    known = _settings()
    _refuse_unknown(environ, known)
    values: dict[str, Any] = {}
    for name, setting in known.items():
        variable = PREFIX + name.upper()
        origin, raw = variable, environ.get(variable)
        if name in flags:
            origin, raw = "--" + name.replace("_", "-"), flags[name]
        if raw is None:
            continue
        try:
            values[name] = setting.parse(raw)
        except ValueError as error:
            shown = "***" if setting.secret else repr(raw)
            raise ConfigError(f"{origin}={shown}: {error}") from error
    return _checked(AgentSettings(**values))


def _refuse_unknown(environ: Mapping[str, str], known: Iterable[str]) -> None:
    variables = {PREFIX + name.upper() for name in known}
    for name in sorted(environ):
        if name.startswith(PREFIX) and name not in variables:
            raise ConfigError(
                f"{name}: no such setting. Remove or rename it; "
                "`gpuwarden-agent run --help` lists them."
            )


def _checked(settings: AgentSettings) -> AgentSettings:
    if settings.key and settings.key_file:
        raise ConfigError(f"{PREFIX}KEY and {PREFIX}KEY_FILE are both set: keep one of them.")
    if bool(settings.client_cert_file) != bool(settings.client_key_file):
        raise ConfigError(
            f"{PREFIX}CLIENT_CERT_FILE and {PREFIX}CLIENT_KEY_FILE belong together: set both."
        )
    if not _NODE_ID.fullmatch(settings.own_node_id):
        raise ConfigError(
            f"{PREFIX}NODE_ID={settings.own_node_id!r}: give 1 to 253 letters, digits, "
            "dots, dashes or underscores, a letter or digit first."
        )
    return settings


def _written(value: object) -> str:
    match value:
        case None | () | "":
            return ""
        case bool():
            return "on" if value else "off"
        case _:
            return str(value)
