"""The actuators' file: TOML in, a validated document out."""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec

from gpuwarden_server.actuators.document import (
    ActuatorsDocument,
    CommandTarget,
    Common,
    FilesTarget,
    SlurmTarget,
    Target,
    WebhookTarget,
)
from gpuwarden_server.core.errors import StartError
from gpuwarden_verdict.actuation import Act, Drift
from gpuwarden_verdict.entities import Rung

MOST_ACTUATORS = 16
"""Each has a thread."""
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_RUNGS = {"exclude": Rung.EXCLUDE, "drain": Rung.DRAIN, "evict": Rung.EVICT, "never": None}

Seconds = Annotated[float, msgspec.Meta(gt=0, le=3600)]
Patterns = Annotated[list[str], msgspec.Meta(min_length=1)]
_Remedy = Literal["reset", "reboot", "replace"]
Variables = Callable[[str], str | None]


class _Entry(msgspec.Struct, forbid_unknown_fields=True, tag_field="kind", kw_only=True):
    name: str
    nodes: Patterns = msgspec.field(default_factory=lambda: ["*"])
    dry_run: bool = True
    drift: Drift = Drift.SHOW
    every_s: Seconds = 30.0
    timeout_s: Seconds = 10.0

    def common(self) -> Common:
        return Common(
            self.name, tuple(self.nodes), self.dry_run, self.drift, self.every_s, self.timeout_s
        )


class _Slurm(_Entry, tag="slurm"):
    programs: str = ""
    config: str = ""
    move_from: str = "never"


class _Files(_Entry, tag="files"):
    folder: str


class _Command(_Entry, tag="command"):
    command: Annotated[list[str], msgspec.Meta(min_length=1)]
    secret_env: str = ""
    move_from: str = "never"
    remedies: list[_Remedy] = msgspec.field(default_factory=list)


class _Webhook(_Entry, tag="webhook"):
    url: str
    secret_env: str
    read_url: str = ""
    move_from: str = "never"
    remedies: list[_Remedy] = msgspec.field(default_factory=list)


_Any = _Slurm | _Files | _Command | _Webhook


class _File(msgspec.Struct, forbid_unknown_fields=True):
    actuators: list[_Any] = msgspec.field(default_factory=list)


def load_actuators(file: Path | None, variables: Variables) -> ActuatorsDocument:
    """The document of a file; without one nothing outside is changed.

    Args:
        file: TOML, None for none.
        variables: Value of an environment variable, for `secret_env`.

    Raises:
        StartError: The file cannot be read or used; names the key and the mend.
    """
    if file is None:
        return ActuatorsDocument()
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StartError(
            f"actuators' file {file} cannot be read: {error}",
            "Set GPUWARDEN_ACTUATORS_FILE to a TOML file that the server may read, or unset it.",
        ) from error
    try:
        return parse_actuators(text, variables)
    except ValueError as error:
        raise StartError(
            f"actuators' file {file}: {error}",
            "Correct it; docs/actuators.md lists the keys of each kind.",
        ) from None


def parse_actuators(text: str, variables: Variables) -> ActuatorsDocument:
    """Parse and validate.

    Raises:
        ValueError: Not TOML, an unknown key or kind, a value that cannot be used, a name used
            twice; names where.
    """
    file = msgspec.toml.decode(text, type=_File)
    if len(file.actuators) > MOST_ACTUATORS:
        raise ValueError(f"{len(file.actuators)} actuators, at most {MOST_ACTUATORS} are run")
    targets = []
    for number, entry in enumerate(file.actuators):
        where = f"actuators[{number}]"
        if not _NAME.fullmatch(entry.name):
            raise ValueError(f"{where}.name: {entry.name!r}: use a-z, 0-9, - and _")
        targets.append(_target(where, entry, variables))
    counts = Counter(target.common.name for target in targets)
    for name, times in counts.items():
        if times > 1:
            raise ValueError(f"two actuators are called {name!r}: give each a name of its own")
    return ActuatorsDocument(tuple(targets))


def _target(where: str, entry: _Any, variables: Variables) -> Target:
    common = entry.common()
    if isinstance(entry, _Slurm):
        config = Path(entry.config) if entry.config else None
        return SlurmTarget(common, entry.programs, config, _rung(where, entry.move_from))
    if isinstance(entry, _Files):
        folder = Path(entry.folder)
        if not folder.is_absolute():
            raise ValueError(f"{where}.folder: {entry.folder!r} is relative: write it from /")
        # Who takes a file of ours away has `gpuwarden decisions revoke`; a folder that was lost and
        # made again must fill itself.
        return FilesTarget(replace(common, drift=Drift.REPAIR), folder)
    if isinstance(entry, _Webhook):
        return _webhook(where, entry, common, variables)
    secret = _secret(where, entry.secret_env, variables) if entry.secret_env else ""
    return CommandTarget(
        *(common, tuple(entry.command), secret, _rung(where, entry.move_from)),
        frozenset(map(Act, entry.remedies)),
    )


def _webhook(where: str, entry: _Webhook, common: Common, variables: Variables) -> WebhookTarget:
    for key, url in (("url", entry.url), ("read_url", entry.read_url)):
        if (url or key == "url") and urlsplit(url).scheme not in ("http", "https"):
            raise ValueError(f"{where}.{key}: it is no http or https address")
    secret = _secret(where, entry.secret_env, variables)
    if not _is_signing_secret(secret):
        mend = "echo whsec_$(openssl rand -base64 32)"
        raise ValueError(f"{where}.secret_env: not whsec_ and base64 of 24 bytes or more: {mend}")
    return WebhookTarget(
        *(common, entry.url, secret, entry.read_url, _rung(where, entry.move_from)),
        frozenset(map(Act, entry.remedies)),
    )


def _secret(where: str, name: str, variables: Variables) -> str:
    secret = variables(name) or ""
    if not secret:
        raise ValueError(f"{where}.secret_env: {name} is not set: export it")
    return secret


def _is_signing_secret(text: str) -> bool:
    try:
        decoded = base64.b64decode(text.removeprefix("whsec_"), validate=True)
    except ValueError:
        return False
    return text.startswith("whsec_") and len(decoded) >= 24


def _rung(where: str, word: str) -> Rung | None:
    if word not in _RUNGS:
        known = ", ".join(_RUNGS)
        raise ValueError(f"{where}.move_from: {word!r}: use one of {known}")
    return _RUNGS[word]
