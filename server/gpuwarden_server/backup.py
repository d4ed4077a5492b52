"""`gpuwarden backup` and `gpuwarden restore`: the settings' store, copied and brought back."""

from __future__ import annotations

import time
from pathlib import Path

from gpuwarden_server.config import Settings
from gpuwarden_server.store.backup import Copied, backup_store, restore_store
from gpuwarden_server.store.places import Place, parse_url


def run_backup(settings: Settings, to: str | None) -> Copied:
    """Copy the store of the settings; the server may run.

    Args:
        settings: Name the store.
        to: A folder, or a PostgreSQL URL; None makes a folder here, named by the time.

    Raises:
        StoreError: It cannot be copied; names the mend.
    """
    named = to or time.strftime("gpuwarden-backup-%Y%m%dT%H%M%SZ", time.gmtime())
    return backup_store(settings.store_place, _place_of(named))


def run_restore(settings: Settings, source: str, *, force: bool) -> Copied:
    """Bring a backup back into the store of the settings; no server may run.

    Args:
        settings: Name the store.
        source: A folder, or a PostgreSQL URL.
        force: Whether what is in the store may be lost.

    Raises:
        StoreError: It cannot be restored; names the mend.
    """
    return restore_store(_place_of(source), settings.store_place, time.time(), force=force)


def _place_of(text: str) -> Place:
    return parse_url(text) if "://" in text else Path(text)
