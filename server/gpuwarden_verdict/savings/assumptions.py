"""The numbers that the ledger of costs assumes, each with its default and where that is from."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any


class SavingsError(Exception):
    """A file of prices and assumptions that cannot be used; names key, value and mend."""

    def __init__(self, key: str, value: object, mend: str) -> None:
        super().__init__(f"{key} = {value!r}: {mend}")
        self.key = key
        self.value = value
        self.mend = mend


@dataclass(frozen=True, slots=True)
class Assumption:
    """A number that is assumed until the operator says otherwise.

    Attributes:
        name: Key of the file.
        default: What holds without it.
        unit: Of the number.
        what: What it stands for.
        source: Where the default is from.
    """

    name: str
    default: float
    unit: str
    what: str
    source: str


ASSUMPTIONS = (
    Assumption(
        "hang_s",
        1800.0,
        "seconds",
        "how long all GPUs of a job wait before its own time-out notices a member that is gone",
        "time-outs of collectives are 10 to 30 minutes in common frameworks",
    ),
    Assumption(
        "restart_s",
        388.0,
        "seconds",
        "how long all GPUs of a job stand still while it is started anew",
        "6.47 minutes at 8,192 GPUs: stop, reschedule, checkpoint, NCCL, warm-up (TrainMover)",
    ),
    Assumption(
        "failures",
        1.0,
        "1",
        "failures of the job that a faulty part would still have caused",
        "one: a job that is placed on it again would fail again, which is not counted",
    ),
    Assumption(
        "job_gpus",
        8.0,
        "GPUs",
        "size of the job where no inventory tells what ran there",
        "a job of one node of eight GPUs: the least that a training job uses",
    ),
)


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What is assumed, and what things cost.

    Attributes:
        hang_s: See ASSUMPTIONS, as the next three.
        restart_s: Seconds.
        failures: Of the job.
        job_gpus: GPUs.
        currency: Of the prices, "" where there are none.
        gpu_hour_prices: Price of an hour by pattern of the GPU's model; the first that fits.
        kwh_price: Of a kWh that is paid beside the hour, None where the hour holds it.
    """

    hang_s: float = 1800.0
    restart_s: float = 388.0
    failures: float = 1.0
    job_gpus: float = 8.0
    currency: str = ""
    gpu_hour_prices: tuple[tuple[str, float], ...] = ()
    kwh_price: float | None = None

    def price_of(self, model: str) -> float | None:
        """Price of an hour of a GPU, None where no pattern fits its model."""
        fits = (price for pattern, price in self.gpu_hour_prices if fnmatchcase(model, pattern))
        return next(fits, None)


def parse_savings(text: str) -> Assumptions:
    """The assumptions of a TOML file; "" gives the defaults, without prices.

    Raises:
        SavingsError: Not TOML, an unknown key, a number out of its range, prices without currency.
    """
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SavingsError("file", str(error), "write valid TOML") from error
    _refuse_unknown("", tree, ("assumptions", "prices"))
    assumed, prices = _table(tree, "assumptions"), _table(tree, "prices")
    _refuse_unknown("assumptions.", assumed, tuple(one.name for one in ASSUMPTIONS))
    _refuse_unknown("prices.", prices, ("currency", "kwh", "gpu_hour"))
    hours = _table(prices, "gpu_hour", "prices.")
    listed = [(model, _number(f"prices.gpu_hour.{model}", one)) for model, one in hours.items()]
    currency = prices.get("currency", "")
    if not isinstance(currency, str) or (prices and not currency.strip()):
        raise SavingsError("prices.currency", currency, 'name it, such as "USD"')
    return Assumptions(
        **{key: _number(f"assumptions.{key}", value) for key, value in assumed.items()},
        currency=currency,
        gpu_hour_prices=tuple(listed),
        kwh_price=_number("prices.kwh", prices["kwh"]) if "kwh" in prices else None,
    )


def _refuse_unknown(where: str, tree: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key, value in tree.items():
        if key not in known:
            mend = f"unknown key; known are {', '.join(known)}"
            raise SavingsError(f"{where}{key}", value, mend)


def _table(tree: Mapping[str, Any], key: str, where: str = "") -> Mapping[str, Any]:
    value = tree.get(key, {})
    if not isinstance(value, dict):
        raise SavingsError(f"{where}{key}", value, f"write a table [{where}{key}]")
    return value


def _number(where: str, value: Any) -> float:
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    if not fits or not math.isfinite(value) or not 0 <= value <= 1e9:
        raise SavingsError(where, value, "write a number from 0 to 1e9")
    return float(value)
