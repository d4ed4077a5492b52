"""Settings of launcher and command line: the only place of both that reads the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from socket import gethostname
from urllib.parse import urlsplit

from gpuwarden_runtime.errors import SettingError
from gpuwarden_wire.keys import KEY_MEND, key_fault

DEFAULT_URL = "http://127.0.0.1:8750"
DEFAULT_VERDICT_FILE = Path("/run/gpuwarden/verdict.json")


@dataclass(frozen=True, slots=True)
class RuntimeSettings:
    """Where the server is, who we are to it, and what may be read and kept here.

    Attributes:
        url: GPUWARDEN_URL: address of the server, http or https.
        key: GPUWARDEN_KEY, else the content of GPUWARDEN_KEY_FILE; "" for none.
        verdict_file: GPUWARDEN_VERDICT_FILE: the verdict that the local agent keeps.
        cache_folder: GPUWARDEN_CACHE_FOLDER: last exclusion set, for when the server is away.
        ca_file: GPUWARDEN_CA_FILE: certificates that sign the server's, None for the usual ones.
    """

    url: str = DEFAULT_URL
    key: str = ""
    verdict_file: Path = DEFAULT_VERDICT_FILE
    cache_folder: Path = Path("~/.cache/gpuwarden")
    ca_file: Path | None = None


def read_settings(environ: Mapping[str, str] | None = None) -> RuntimeSettings:
    """The settings that the environment gives.

    Args:
        environ: Variables; None for those of this process.

    Raises:
        SettingError: The address is no http(s) address, the key cannot be one, or its file cannot
            be read.
    """
    variables = os.environ if environ is None else environ
    ca_file = variables.get("GPUWARDEN_CA_FILE", "")
    return RuntimeSettings(
        url=checked_url(variables.get("GPUWARDEN_URL", "") or DEFAULT_URL),
        key=_key_of(variables),
        verdict_file=Path(variables.get("GPUWARDEN_VERDICT_FILE", "") or DEFAULT_VERDICT_FILE),
        cache_folder=_cache_folder(variables),
        ca_file=Path(ca_file) if ca_file else None,
    )


@dataclass(frozen=True, slots=True)
class JobPlace:
    """A training process.

    Attributes:
        job: "KIND:ID" ("slurm:4711").
        rank: Its number, 0 where nobody numbers.
        node: Where it runs.
    """

    job: str
    rank: int
    node: str


def read_job_place(environ: Mapping[str, str] | None = None) -> JobPlace | None:
    """This process in its job; None where the environment names no job.

    GPUWARDEN_JOB ("kubernetes:POD-UID"), SLURM_JOB_ID or TORCHELASTIC_RUN_ID; RANK or SLURM_PROCID;
    GPUWARDEN_NODE, SLURMD_NODENAME or the host's name.

    Args:
        environ: Variables; None for those of this process.
    """
    variables = os.environ if environ is None else environ
    job = variables.get("GPUWARDEN_JOB", "")
    for kind, name in (("slurm", "SLURM_JOB_ID"), ("torchrun", "TORCHELASTIC_RUN_ID")):
        job = job or (f"{kind}:{variables[name]}" if variables.get(name) else "")
    if not job:
        return None
    rank = variables.get("RANK") or variables.get("SLURM_PROCID") or "0"
    node = variables.get("GPUWARDEN_NODE") or variables.get("SLURMD_NODENAME") or gethostname()
    return JobPlace(job, int(rank) if rank.isdigit() else 0, node)


def read_key_file(path: Path) -> str:
    """The key in a file: its first line, without surrounding blanks.

    Raises:
        SettingError: Unreadable, empty, or holding what cannot be a key.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(
            f"key file {path}: {error}", "point GPUWARDEN_KEY_FILE at a readable file with one key"
        ) from error
    key = lines[0].strip()
    if not key:
        raise SettingError(f"key file {path} is empty", "write the key into its first line")
    return _checked_key(key, f"key file {path}")


def checked_url(url: str) -> str:
    """The address without a trailing slash.

    Raises:
        SettingError: No http(s) address.
    """
    mend = "give an address such as http://127.0.0.1:8750 in GPUWARDEN_URL or --url"
    try:
        parts = urlsplit(url)
        port_is_valid = parts.port is None or parts.port > 0
    except ValueError as error:
        raise SettingError(f"server address {url!r}: {error}", mend) from error
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_valid:
        raise SettingError(f"server address {url!r} is no http or https address", mend)
    return url.rstrip("/")


def _key_of(variables: Mapping[str, str]) -> str:
    key = variables.get("GPUWARDEN_KEY", "").strip()
    file_name = variables.get("GPUWARDEN_KEY_FILE", "")
    if key or not file_name:
        return _checked_key(key, "GPUWARDEN_KEY")
    return read_key_file(Path(file_name))


def _checked_key(key: str, origin: str) -> str:
    """The key, where a header can carry it: httpx raises UnicodeEncodeError for what it cannot."""
    fault = key_fault(key)
    if fault:
        raise SettingError(f"{origin}: {fault}", KEY_MEND)
    return key


def _cache_folder(variables: Mapping[str, str]) -> Path:
    named = variables.get("GPUWARDEN_CACHE_FOLDER", "")
    if named:
        return Path(named)
    # XDG Base Directory Specification: $XDG_CACHE_HOME, else ~/.cache.
    base = variables.get("XDG_CACHE_HOME", "")
    if base:
        return Path(base) / "gpuwarden"
    home = variables.get("HOME", "")
    # A daemon without a home keeps its cache where a reboot may take it: it is only a cache.
    return Path(home) / ".cache" / "gpuwarden" if home else Path("/var/tmp/gpuwarden")
