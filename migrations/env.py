"""Alembic's environment: migrates the connection that the server hands over.

By hand, for a new revision: `.venv/bin/python migrations/revise.py "What changes"`.
"""

from __future__ import annotations

from alembic import context

from gpuwarden_server.store.schema import STATE

connection = context.config.attributes["connection"]
if connection is None:
    raise RuntimeError("migrations run through gpuwarden_server.store.versions, with a connection")
context.configure(connection=connection, target_metadata=STATE, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
