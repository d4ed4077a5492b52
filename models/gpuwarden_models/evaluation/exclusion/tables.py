"""Reads gzipped tables of public data."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Sequence
from pathlib import Path


class PublicRecordsError(Exception):
    """Public data that is not there or of another form; names the file and the mend."""


def read_table(path: Path, wanted: Sequence[str]) -> list[dict[str, str]]:
    """All rows of a gzipped CSV.

    Args:
        path: The file.
        wanted: Columns that must be there.

    Raises:
        PublicRecordsError: It is missing, cut short, or lacks a column.
    """
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            table = csv.DictReader(file)
            missing = [name for name in wanted if name not in (table.fieldnames or ())]
            if missing:
                raise PublicRecordsError(
                    f"{path}: no column {', '.join(missing)}; docs/public-data.md says which file"
                )
            return list(table)
    except FileNotFoundError as error:
        raise PublicRecordsError(
            f"{path}: no such file; docs/public-data.md says where public data come from"
        ) from error
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise PublicRecordsError(f"{path}: cannot be read ({error}); fetch it again") from error
