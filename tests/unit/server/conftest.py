from __future__ import annotations

from pathlib import Path

import pytest

from gpuwarden_server.store.database import Database, connect_store


@pytest.fixture
def unused_database(tmp_path: Path) -> Database:
    """A database that is never opened: connections are made at first use."""
    return connect_store(tmp_path).state
