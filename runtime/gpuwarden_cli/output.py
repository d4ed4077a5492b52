"""What sub-commands print: JSON for programs, tables for people."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable, Sequence

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpuwarden_runtime.place import utc

# Not a terminal: a table that is cut at 80 columns helps nobody who reads a log.
_WIDTH_OF_FILES = 200

_STYLES = {
    "healthy": "green",
    "yes": "green",
    "suspect": "yellow",
    "probation": "cyan",
    "draining": "magenta",
    "in_repair": "blue",
    "excluded": "red",
    "no": "red",
    "unknown": "dim",
    "critical": "red",
    "error": "red",
    "warning": "yellow",
    "in_force": "red",
    "held_back": "yellow",
    "proposed": "yellow",
    "open": "red",
    "acknowledged": "yellow",
    "mitigated": "cyan",
    "resolved": "green",
}

_SOME_OUT = re.compile(r"\d GPUs excluded$")  # "suspect, 1 of 8 GPUs excluded"

Cell = str | int | float | None


def console() -> Console:
    """Standard output for people."""
    return Console(width=None if sys.stdout.isatty() else _WIDTH_OF_FILES, highlight=False)


def print_json(value: object) -> None:
    """One JSON document, indented, a record's fields in the order of its type."""
    body = msgspec.json.encode(value, enc_hook=str)  # paths
    text = msgspec.json.format(body, indent=2).decode()
    sys.stdout.write(text + "\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Cell]], empty: str) -> None:
    """A table; words that name a state get its colour.

    Args:
        columns: Headings; the last column is the one that may wrap.
        rows: A cell a column.
        empty: Sentence that is printed where there are no rows.
    """
    table = Table(box=None, header_style="bold", pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, no_wrap=number < len(columns) - 1, overflow="fold")
    for row in rows:
        table.add_row(*(styled(cell) for cell in row))
    console().print(table if table.row_count else empty)


def styled(cell: Cell) -> Text:
    """A cell as text, coloured where it names a state."""
    text = "-" if cell is None or cell == "" else str(cell)
    return Text(text, style="red" if _SOME_OUT.search(text) else _STYLES.get(text, ""))


def moment(at: float | None) -> str:
    """Epoch seconds as a date, "-" where there is none."""
    return "-" if at is None else utc(at)


def age(at: float | None) -> str:
    """How long ago, in the largest unit that fits."""
    if at is None:
        return "-"
    seconds = max(time.time() - at, 0.0)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def number(value: float | None, digits: int = 2) -> str:
    """A number with few digits, "-" where there is none."""
    return "-" if value is None else f"{value:.{digits}f}"
