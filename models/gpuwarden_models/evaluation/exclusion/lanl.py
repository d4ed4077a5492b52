"""LANL's node outages of 1996 to 2005, by system, public data."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gpuwarden_models.evaluation.exclusion.rows import (
    DAY_S,
    HORIZON_DAYS,
    EventLog,
    Rows,
    Seating,
    make_rows,
    snapshot_times,
)
from gpuwarden_models.evaluation.exclusion.tables import read_table

FOLDER = "lanl_failures"
_FILE = "lanl_failures_1996_2005.csv.gz"
_FEWEST_NODES, _FEWEST_OUTAGES, _FEWEST_DAYS = 16, 100, 365.0
_WARM_DAYS = 90.0


@dataclass(frozen=True, slots=True, eq=False)
class LanlSystem:
    """One cluster. Nodes stay where they are, so a node is its own part and place.

    Attributes:
        name: As LANL numbers it.
        log: Outages of any cause that people wrote down.
    """

    name: str
    log: EventLog

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.log.part_names)

    def all_rows(self) -> Rows:
        """Snapshots of its whole time, but for the first months."""
        return self._rows(float(self.log.at.min()) + _WARM_DAYS * DAY_S)

    def later_rows(self) -> Rows:
        """Snapshots of the second half of its time."""
        return self._rows(0.5 * float(self.log.at.min() + self.log.at.max()))

    def _rows(self, first: float) -> Rows:
        last = float(self.log.at.max()) - HORIZON_DAYS * DAY_S
        node = np.arange(self.nodes)
        nothing: NDArray[np.float64] = np.empty((self.nodes, 0))
        seatings = [Seating(at, node, node, nothing) for at in snapshot_times(first, last)]
        return make_rows(self.log, seatings)


def read_lanl(public: Path) -> list[LanlSystem]:
    """Systems that are big and busy enough to learn from, most outages first.

    Args:
        public: Folder that GPUWARDEN_PUBLIC_DATA names.

    Raises:
        PublicRecordsError: The file is missing or of another form; names it.
    """
    wanted = ("System", "nodes", "nodenum", "Prob Started")
    outages: dict[str, list[tuple[float, str]]] = defaultdict(list)
    sizes: dict[str, int] = defaultdict(int)
    for row in read_table(public / FOLDER / _FILE, wanted):
        outages[row["System"]].append((_time(row["Prob Started"]), row["nodenum"]))
        sizes[row["System"]] = max(sizes[row["System"]], int(row["nodes"] or 0))
    found = [_system(name, rows, sizes[name]) for name, rows in outages.items()]
    big = [one for one in found if _is_worth_it(one)]
    return sorted(big, key=lambda one: (-one.log.at.size, one.name))


def _system(name: str, outages: list[tuple[float, str]], size: int) -> LanlSystem:
    names = sorted({node for _, node in outages})
    # Nodes that never had an outage are in no row; they were there all the same.
    names += [f"never-{number}" for number in range(size - len(names))]
    number = {node: index for index, node in enumerate(names)}
    node = np.array([number[node] for _, node in outages])
    at = np.array([when for when, _ in outages])
    return LanlSystem(name, EventLog(node, node, at, tuple(names), tuple(names)))


def _is_worth_it(system: LanlSystem) -> bool:
    at = system.log.at
    days = float(at.max() - at.min()) / DAY_S
    return system.nodes >= _FEWEST_NODES and at.size >= _FEWEST_OUTAGES and days >= _FEWEST_DAYS


def _time(text: str) -> float:
    return datetime.strptime(text, "%m/%d/%Y %H:%M").replace(tzinfo=UTC).timestamp()
