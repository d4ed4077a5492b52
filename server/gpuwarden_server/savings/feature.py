"""The ledger of costs as a part of the app."""

from __future__ import annotations

from pathlib import Path

from gpuwarden_server.core.clock import Clock
from gpuwarden_server.core.errors import StartError
from gpuwarden_server.fleet.directory import FleetDirectory
from gpuwarden_server.history.reading import HistoryReader
from gpuwarden_server.savings.desk import SavingsDesk
from gpuwarden_server.savings.energy import EnergyMeter
from gpuwarden_server.store.database import Database
from gpuwarden_verdict.savings import Assumptions, SavingsError, parse_savings


def make_savings(
    file: Path | None,
    state: Database,
    directory: FleetDirectory,
    reader: HistoryReader,
    clock: Clock,
) -> SavingsDesk:
    """The ledger by the operator's prices and assumptions.

    Args:
        file: TOML, None for the defaults, without prices.
        state: state.db.
        directory: Nodes and GPUs.
        reader: Of history, for energy counters.
        clock: Time.

    Raises:
        StartError: The file cannot be used; names the key and the mend.
    """
    return SavingsDesk(state, directory, EnergyMeter(reader), _load(file), clock)


def _load(file: Path | None) -> Assumptions:
    if file is None:
        return Assumptions()
    try:
        return parse_savings(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise StartError(
            f"savings file {file} cannot be read: {error}",
            "Set GPUWARDEN_SAVINGS_FILE to a TOML file that the server may read, or unset it.",
        ) from error
    except SavingsError as error:
        raise StartError(
            f"savings file {file}: {error.key} = {error.value!r} cannot be used",
            f"Correct it: {error.mend}.",
        ) from error
