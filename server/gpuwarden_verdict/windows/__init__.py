"""Columnar state of the fleet: what is kept of every series between batches and sweeps."""

from gpuwarden_verdict.windows.checkpoint import CheckpointError, encode_checkpoint
from gpuwarden_verdict.windows.joined import (
    JoinedTables,
    Missing,
    TableLayout,
    join_as,
    join_tables,
    layout_of,
)
from gpuwarden_verdict.windows.planes import (
    FAST_S,
    NEVER,
    NOT_SUPPORTED,
    NUMBER,
    SLOW_S,
    STALE,
    UNAVAILABLE,
)
from gpuwarden_verdict.windows.snapshot import Columns, FleetReading, FleetSnapshot
from gpuwarden_verdict.windows.state import FleetState
from gpuwarden_verdict.windows.update import ReadTable
from gpuwarden_verdict.windows.view import KindView

__all__ = [
    "FAST_S",
    "NEVER",
    "NOT_SUPPORTED",
    "NUMBER",
    "SLOW_S",
    "STALE",
    "UNAVAILABLE",
    "CheckpointError",
    "Columns",
    "FleetReading",
    "FleetSnapshot",
    "FleetState",
    "JoinedTables",
    "KindView",
    "Missing",
    "ReadTable",
    "TableLayout",
    "encode_checkpoint",
    "join_as",
    "join_tables",
    "layout_of",
]
