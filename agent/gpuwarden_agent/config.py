"""Settings of the agent: the only place that reads its environment."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints
from urllib.parse import urlsplit

from gpuwarden_agent.setting_values import (
    Cloud,
    ExporterAddress,
    parse_byte_count,
    parse_cloud,
    parse_cloud_url,
    parse_command,
    parse_exporters,
    parse_fast_seconds,
    parse_gpm_seconds,
    parse_key,
    parse_log_level,
    parse_names,
    parse_optional_count,
    parse_optional_path,
    parse_path,
    parse_port,
    parse_seconds,
    parse_slow_seconds,
    parse_switch,
    parse_text,
    parse_url,
)

PREFIX = "GPUWARDEN_AGENT_"

_OWN_HOSTS = frozenset({"127.0.0.1", "::1", "localhost"})

# As host names, and as Slurm and Kubernetes name nodes; the server takes no other.
_NODE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


class ConfigError(Exception):
    """A setting that cannot be used; the message names the setting and the mend."""


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
        Setting(
            parse_url, "Address of the gpuwarden server, such as https://gpuwarden.example:8750."
        ),
    ] = ""
    key: Annotated[
        str,
        Setting(
            parse_key, "Bearer key of this node (role agent). Prefer the key file.", secret=True
        ),
    ] = ""
    key_file: Annotated[
        Path | None,
        Setting(
            parse_optional_path, "File that holds the bearer key; read again whenever it changes."
        ),
    ] = None
    ca_file: Annotated[
        Path | None,
        Setting(
            parse_optional_path,
            "PEM file of the authorities to trust for https, instead of the host's.",
        ),
    ] = None
    client_cert_file: Annotated[
        Path | None,
        Setting(
            parse_optional_path, "PEM client certificate for https, where the server asks for one."
        ),
    ] = None
    client_key_file: Annotated[
        Path | None, Setting(parse_optional_path, "PEM private key of the client certificate.")
    ] = None
    request_timeout_s: Annotated[
        float,
        Setting(parse_seconds, "Seconds to wait for the server to accept or answer one batch."),
    ] = 10.0
    backoff_max_s: Annotated[
        float,
        Setting(
            parse_seconds, "Longest pause between two tries, seconds; Retry-After may ask for more."
        ),
    ] = 15.0
    node_id: Annotated[
        str, Setting(parse_text, "Name of this node; the host name where empty.")
    ] = ""
    interval_s: Annotated[
        float, Setting(parse_seconds, "Cadence of collection and telemetry, seconds.")
    ] = 5.0
    fast_interval_s: Annotated[
        float,
        Setting(
            parse_fast_seconds,
            "Seconds between two looks at what announces a fault: recovery action, uncorrected "
            "ECC, row remapping, lost GPUs, state of ports. Where one changed, all of its "
            "collector is read and sent at once; 0 leaves it to the cadence of collection.",
        ),
    ] = 1.0
    gpm_interval_s: Annotated[
        float,
        Setting(
            parse_gpm_seconds,
            "Seconds between two samples of how busy SMs, tensor cores and memory of each GPU are "
            "(GPM, Hopper on), no fewer than the cadence of collection; 0 takes none: what a "
            "sample costs depends on the driver, so try it on one node first.",
        ),
    ] = 0.0
    deadline_s: Annotated[
        float,
        Setting(
            parse_seconds, "Seconds after which one collection counts as stuck (NVML has its own)."
        ),
    ] = 4.0
    proc_root: Annotated[Path, Setting(parse_path, "Where procfs is mounted.")] = Path("/proc")
    sys_root: Annotated[Path, Setting(parse_path, "Where sysfs is mounted.")] = Path("/sys")
    kmsg_path: Annotated[
        Path, Setting(parse_path, "Kernel log to follow: the device, or a log file that grows.")
    ] = Path("/dev/kmsg")
    kmsg_backlog_bytes: Annotated[
        int,
        Setting(
            parse_byte_count, "How much of a log file is read back at the very first start, bytes."
        ),
    ] = 1_048_576
    collectors: Annotated[
        tuple[str, ...],
        Setting(parse_names, "Names of the collectors to run, comma-separated; all where empty."),
    ] = ()
    checks: Annotated[
        Path | None,
        Setting(
            parse_optional_path,
            "Plug-in checks: a TOML or JSON file, or a folder of them; none if empty.",
        ),
    ] = None
    nvidia_smi: Annotated[
        str,
        Setting(
            parse_command,
            "Command that runs nvidia-smi, for nodes where NVML is off because the agent cannot "
            "load it, such as chroot /host nvidia-smi; none if empty.",
        ),
    ] = ""
    nvidia_smi_interval_s: Annotated[
        float, Setting(parse_slow_seconds, "Cadence of nvidia-smi, seconds.")
    ] = 60.0
    smart_interval_s: Annotated[
        float,
        Setting(parse_slow_seconds, "Cadence of NVMe health logs (nvme-cli or smartctl), seconds."),
    ] = 300.0
    hpc_job_folder: Annotated[
        Path | None,
        Setting(
            parse_optional_path,
            "Folder of files named by GPU index that hold Slurm job ids, as of dcgm-exporter's "
            "--hpc-job-mapping-dir.",
        ),
    ] = None
    spool_folder: Annotated[
        Path, Setting(parse_path, "Folder of the disk spool; one agent a folder.")
    ] = Path("/var/lib/gpuwarden-agent")
    spool_cap_bytes: Annotated[
        int,
        Setting(
            parse_byte_count, "Most bytes of batches kept in the spool; telemetry is shed first."
        ),
    ] = 268_435_456
    verdict_file: Annotated[Path, Setting(parse_path, "Local file with the node's verdict.")] = (
        Path("/run/gpuwarden/verdict.json")
    )
    metrics_host: Annotated[str, Setting(parse_text, "Address that /metrics listens on.")] = (
        "127.0.0.1"
    )
    metrics_port: Annotated[
        int, Setting(parse_port, "Port that /metrics listens on; 0 is off.")
    ] = 0
    gpus_expected: Annotated[
        int | None,
        Setting(
            parse_optional_count,
            "Number of GPUs built into this node, those bound to another driver (vfio-pci) "
            "included. The most ever seen where empty, over reboots too: set it once after GPUs "
            "were taken out for good.",
        ),
    ] = None
    nvml: Annotated[bool, Setting(parse_switch, "Read GPUs through NVML: on or off.")] = True
    nvml_library: Annotated[
        str, Setting(parse_text, "Path of libnvidia-ml.so.1; the loader's choice where empty.")
    ] = ""
    exporters: Annotated[
        tuple[ExporterAddress, ...],
        Setting(
            parse_exporters,
            "Exporters on this node to read, comma-separated: addresses such as "
            "http://127.0.0.1:9400/metrics, each with its kind before it where that is not to be "
            "found out: auto, dcgm, nvidia_smi, node or all_smi, as in dcgm=http://127.0.0.1:9400.",
        ),
    ] = ()
    exporter_interval_s: Annotated[
        float, Setting(parse_seconds, "Cadence at which exporters are read, seconds.")
    ] = 15.0
    exporter_deadline_s: Annotated[
        float, Setting(parse_seconds, "Seconds for one whole answer of an exporter.")
    ] = 4.0
    exporter_first: Annotated[
        tuple[str, ...],
        Setting(
            parse_names,
            "Metrics, or patterns such as gpu_*, that are taken from an exporter before a native "
            "source; the native source comes first elsewhere.",
        ),
    ] = ()
    exporter_token_file: Annotated[
        Path | None,
        Setting(
            parse_optional_path, "File with the bearer token for exporters; read again on change."
        ),
    ] = None
    exporter_ca_file: Annotated[
        Path | None,
        Setting(
            parse_optional_path, "PEM file of the authorities to trust for exporters over https."
        ),
    ] = None
    exporter_cert_file: Annotated[
        Path | None,
        Setting(parse_optional_path, "PEM client certificate for exporters over https."),
    ] = None
    exporter_cert_key_file: Annotated[
        Path | None, Setting(parse_optional_path, "PEM private key of that certificate.")
    ] = None
    cloud_events: Annotated[
        Cloud | None,
        Setting(
            parse_cloud,
            "Cloud whose metadata service is asked for coming maintenance, of which the server "
            "makes planned leaves: aws or azure; none if empty.",
        ),
    ] = None
    cloud_events_interval_s: Annotated[
        float,
        Setting(parse_seconds, "Cadence at which that service is asked, seconds."),
    ] = 15.0
    cloud_events_url: Annotated[
        str, Setting(parse_cloud_url, "Address of that service, http and without a path.")
    ] = "http://169.254.169.254"
    log_level: Annotated[
        str, Setting(parse_log_level, "Least severe log line: debug, info, warning, error.")
    ] = "info"

    @property
    def own_node_id(self) -> str:
        """The node's name: as set, else the host name."""
        return self.node_id or socket.gethostname()

    @property
    def run_folder(self) -> Path:
        """Where the verdict file lies: what a boot clears."""
        return self.verdict_file.parent


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


def read_settings(flags: Mapping[str, str], env_file: Path | None = None) -> AgentSettings:
    """Settings of this process: a file's, its environment's and `flags`; the last one counts.

    Raises:
        ConfigError: As `load_settings`, or the file cannot be read.
    """
    return load_settings({**read_env_file(env_file), **os.environ}, flags)


def read_env_file(path: Path | None) -> dict[str, str]:
    """Variables of a file as systemd's EnvironmentFile= takes it: NAME=VALUE lines, # comments.

    Raises:
        ConfigError: It cannot be read, or a line is no such line.
    """
    if path is None:
        return {}
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}. Give a readable file of NAME=VALUE lines.") from error
    found: dict[str, str] = {}
    for number, line in enumerate(map(str.strip, lines), start=1):
        if not line or line[0] in "#;":
            continue
        name, separator, value = line.partition("=")
        if not separator or not name.strip().isidentifier():
            raise ConfigError(f"{path}: line {number} is not NAME=VALUE. Mend or remove it.")
        value = value.strip()
        quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
        found[name.strip()] = value[1:-1] if quoted else value
    return found


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
    _check_exporters(settings)
    if settings.nvidia_smi and settings.nvml:
        raise ConfigError(
            f"{PREFIX}NVIDIA_SMI: NVML is on and reads the same GPUs: set {PREFIX}NVML=off, "
            "or leave nvidia-smi out."
        )
    if not _NODE_ID.fullmatch(settings.own_node_id):
        raise ConfigError(
            f"{PREFIX}NODE_ID={settings.own_node_id!r}: give 1 to 253 letters, digits, "
            "dots, dashes or underscores, a letter or digit first."
        )
    return settings


def _check_exporters(settings: AgentSettings) -> None:
    if bool(settings.exporter_cert_file) != bool(settings.exporter_cert_key_file):
        raise ConfigError(
            f"{PREFIX}EXPORTER_CERT_FILE and {PREFIX}EXPORTER_CERT_KEY_FILE belong together: "
            "set both."
        )
    if settings.exporter_token_file is None:
        return
    for exporter in settings.exporters:
        parts = urlsplit(exporter.url)
        if parts.scheme == "http" and parts.hostname not in _OWN_HOSTS:
            raise ConfigError(
                f"{PREFIX}EXPORTER_TOKEN_FILE: the token would go to {parts.hostname} unprotected; "
                "use https, or the loopback address."
            )


def _written(value: object) -> str:
    match value:
        case None | () | "":
            return ""
        case bool():
            return "on" if value else "off"
        case _:
            return str(value)
