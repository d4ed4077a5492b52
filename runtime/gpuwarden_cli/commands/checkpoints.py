"""`gpuwarden checkpoints`: what jobs saved, how quickly, and what that cost them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from gpuwarden_cli.output import console, moment, print_json, print_table
from gpuwarden_cli.session import open_client

_HEAD = ("BEGAN", "JOB", "MOUNT", "NODES", "GB", "S", "GB/S", "OF BEST", "QUEUE", "TRIP", "LOST")
_DAY_S = 86_400.0


def register(app: typer.Typer) -> None:
    """Put the command into the app."""
    app.command()(checkpoints)


def checkpoints(
    context: typer.Context,
    job: Annotated[
        str | None, typer.Argument(help="KIND:ID (slurm:4711) or the id; without one, all jobs.")
    ] = None,
    mount: Annotated[str | None, typer.Option(help="Only those on this mount point.")] = None,
    days: Annotated[float, typer.Option(min=0.01, max=400, help="How far back.")] = 28.0,
    last: Annotated[int, typer.Option(min=1, max=500, help="How many are printed.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show checkpoints of jobs: size, duration, throughput, where requests waited, time lost."""
    with open_client(context) as client:
        asked = {"job": job, "mount": mount, "begin": time.time() - days * _DAY_S, "limit": 500}
        told = client.raw("/v1/checkpoints", {k: v for k, v in asked.items() if v is not None})
    if as_json:
        print_json(told)
        return
    best = {(one["job"], one["mount"]): one["best_bytes_per_second"] for one in told["profiles"]}
    rows = [_row(one, best[one["job"], one["mount"]]) for one in told["items"][:last]]
    print_table(_HEAD, rows, "no checkpoint was seen")
    for one in told["profiles"]:
        console().print(_profile(one), markup=False, soft_wrap=True)


def _row(one: Mapping[str, Any], best: float) -> tuple[str | int, ...]:
    return (
        moment(one["begin"]),
        one["job"],
        one["mount"],
        one["nodes"],
        f"{one['size_bytes'] / 1e9:.1f}",
        f"{one['duration_s']:.0f}",
        f"{one['bytes_per_second'] / 1e9:.2f}",
        f"{one['bytes_per_second'] / best:.0%}",
        _share(one["queue_share"]),
        _share(one["round_trip_share"]),
        "-" if one["lost_s"] is None else f"{one['lost_s']:.0f} s",
    )


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _profile(one: Mapping[str, Any]) -> str:
    trend = one["trend_per_week"]
    changes = "" if trend is None else f", throughput {trend:+.1%} a week"
    best = f"{one['best_bytes_per_second'] / 1e9:.3g} GB/s"
    return (
        f"{one['job']} on {one['mount']}: {one['count']} checkpoints of"
        f" {one['size_bytes'] / 1e9:.3g} GB, {one['duration_s']:.0f} s each, the latest at"
        f" {one['latest_of_best']:.0%} of the best ({best}){changes};"
        f" {one['lost_s'] / 60:.0f} min of the job lost"
    )
