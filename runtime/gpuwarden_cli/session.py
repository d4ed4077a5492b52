"""The connection that sub-commands share, from settings and the options before the sub-command."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import typer

from gpuwarden_runtime.client import Client
from gpuwarden_runtime.config import RuntimeSettings, checked_url, read_key_file, read_settings
from gpuwarden_runtime.exchange import Retry

# A person waits: long enough for a lost connection or a busy second, not for a server that is away.
_PATIENCE = Retry(attempts=3, first_wait_s=0.2, longest_wait_s=5.0)


@dataclass(frozen=True, slots=True)
class Connection:
    """What the options before the sub-command say.

    Attributes:
        url: --url, None to take GPUWARDEN_URL.
        key_file: --key-file, None to take GPUWARDEN_KEY or GPUWARDEN_KEY_FILE.
    """

    url: str | None = None
    key_file: Path | None = None


def settings_of(context: typer.Context) -> RuntimeSettings:
    """The environment's settings, overridden by the options.

    Raises:
        SettingError: One of them cannot be used.
    """
    connection = context.find_object(Connection) or Connection()
    settings = read_settings()
    if connection.url is not None:
        settings = dataclasses.replace(settings, url=checked_url(connection.url))
    if connection.key_file is not None:
        settings = dataclasses.replace(settings, key=read_key_file(connection.key_file))
    return settings


def open_client(context: typer.Context) -> Client:
    """A client for the server that the options name."""
    return Client(settings_of(context), retry=_PATIENCE)
