"""Write the next migration from what the tables and the migrations differ in; then read it through.

Usage: python migrations/revise.py MESSAGE [REVISION_ID]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from alembic import command

from gpuwarden_server.store.engines import Synchronous, writing_engine
from gpuwarden_server.store.versions import alembic_config


def revise(message: str, revision: str | None) -> None:
    """Compare a database at head with the tables and write the difference."""
    with tempfile.TemporaryDirectory() as folder:
        engine = writing_engine(Path(folder) / "state.db", Synchronous.NORMAL)
        with engine.begin() as connection:
            config = alembic_config(connection)
            command.upgrade(config, "head")
            command.revision(config, message, autogenerate=True, rev_id=revision)
        engine.dispose()


if __name__ == "__main__":
    revise(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
