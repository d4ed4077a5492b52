"""Alarms on public telemetry that nobody called broken: a rate with its exact upper 95 % bound.

    GPUWARDEN_PUBLIC_DATA=FOLDER .venv/bin/python bench/healthy.py [--model]

Unlabelled series: an alarm may be right, so the rate is an upper bound of the false ones.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gpuwarden_models.backtest.flags import Flag
from gpuwarden_models.backtest.report import word
from gpuwarden_models.backtest.running import backtest
from gpuwarden_models.backtest.scores import Rate
from gpuwarden_verdict.entities import Rung
from gpuwarden_verdict.fusion import FusionModels
from gpuwarden_verdict.policy.parse import parse_policy
from tests.builders.public_series import (
    FOLDER,
    PublicHistory,
    alibaba_pods,
    fleet_snapshot,
    h100_runs,
    nab_series,
)
from tests.builders.simulated import shipped_models


def main() -> None:
    """Print the table and every alarm."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", action="store_true", help="With the learnt scores.")
    arguments = parser.parse_args()
    if not FOLDER.is_dir():
        sys.exit("GPUWARDEN_PUBLIC_DATA names no folder; see docs/public-data.md")
    models = shipped_models() if arguments.model else {}
    print(f"{'series':<24}{'days':>10}{'alarms':>8}{'a day':>10}{'at most':>10}{'excluded':>10}")
    show("H100 runs, 1 s", "GPU", h100_runs(), models)
    show("Alibaba pods, 57 s", "pod", [alibaba_pods()], models)
    show("NAB, 5 min", "series", [nab_series()], models)
    show("fleet snapshot, 10 min", "GPU", [fleet_snapshot()], models)


def show(name: str, unit: str, histories: Sequence[PublicHistory], models: FusionModels) -> None:
    """One line, and what was flagged."""
    flags = [flag for history in histories for flag in flagged(history, models)]
    rate = Rate(len(flags), sum(history.days for history in histories))
    excluded = sum(flag.rung >= Rung.EXCLUDE for flag in flags)
    print(
        f"{name:<24}{rate.days:>10.2f}{rate.count:>8}{rate.a_day:>10.3f}{rate.bound_a_day:>10.3f}"
        f"{excluded:>10}  {unit}-days"
    )
    tell(flags)


def flagged(history: PublicHistory, models: FusionModels) -> Sequence[Flag]:
    """What a backtest flags."""
    return backtest(history, history.name, parse_policy(""), models).flags


def tell(flags: Iterable[Flag]) -> None:
    """One line a flag."""
    for flag in flags:
        why = flag.reasons[0] if flag.reasons else ""
        print(f"    {flag.name.kind} {flag.name.entity}: {word(flag.rung)}, {why}")


if __name__ == "__main__":
    main()
