"""Public telemetry of machines that nobody called broken: nobody is excluded, few are suspected."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from gpuwarden_models.backtest.flags import Flag
from gpuwarden_models.backtest.running import backtest
from gpuwarden_models.backtest.scores import Rate
from gpuwarden_verdict.entities import Rung
from gpuwarden_verdict.policy.parse import parse_policy
from tests.builders.public_series import (
    ALIBABA,
    FOLDER,
    H100,
    NAB,
    SNAPSHOT,
    PublicHistory,
    alibaba_pods,
    fleet_snapshot,
    h100_runs,
    nab_series,
)

FOLDERS = (H100, ALIBABA, NAB, SNAPSHOT)
pytestmark = pytest.mark.skipif(
    not all((FOLDER / name).is_dir() for name in FOLDERS),
    reason=f"GPUWARDEN_PUBLIC_DATA names no folder with {', '.join(FOLDERS)}: not shipped",
)


def flagged(history: PublicHistory) -> Sequence[Flag]:
    return backtest(history, history.name, parse_policy(""), {}).flags


def test_the_fleet_snapshot_shows_the_absent_gpu_and_the_hosts_that_hang_and_nothing_else() -> None:
    """A regression case, not accuracy: nobody knows what was wrong there."""
    flags = flagged(fleet_snapshot())
    assert {flag.name.node for flag in flags} == {"gpunode-007", "gpunode-011", "gpunode-030"}
    (absent,) = (flag for flag in flags if flag.name.kind == "node")
    assert absent.name.entity == "gpunode-011" and "7 of 8" in absent.reasons[0]
    for flag in flags:
        assert flag.rung is Rung.SUSPECT
        assert flag is absent or any(" draws " in one for one in flag.reasons)


SERIES: list[tuple[str, Callable[[], list[PublicHistory]]]] = [
    ("H100 runs", h100_runs),
    ("a part of the Alibaba pods", lambda: [alibaba_pods(step=4, share=0.2)]),
    ("the begin of NAB", lambda: [nab_series(most=288)]),
]
LONG: list[tuple[str, Callable[[], list[PublicHistory]]]] = [
    ("all Alibaba pods", lambda: [alibaba_pods()]),
    ("all of NAB", lambda: [nab_series()]),
]


@pytest.mark.parametrize(
    ("name", "made"),
    [*SERIES, *(pytest.param(*one, marks=pytest.mark.long) for one in LONG)],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.timeout(900)
def test_nobody_is_excluded(name: str, made: Callable[[], list[PublicHistory]]) -> None:
    histories = made()
    flags = [flag for history in histories for flag in flagged(history)]
    rate = Rate(len(flags), sum(history.days for history in histories))
    unit = histories[0].unit
    print(
        f"{name}: {rate.count} alarms in {rate.days:.2f} {unit}-days, {rate.a_day:.3f} a day,"
        f" at most {rate.bound_a_day:.3f} with 95 % confidence"
    )
    assert [flag for flag in flags if flag.rung >= Rung.EXCLUDE] == []
    assert rate.a_day < 1.0
