"""`gpuwarden train --from-store`: a new version from what a server saw and people said of it."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import typer

from gpuwarden_cli.exits import CommandError, ExitCode
from gpuwarden_cli.extras import load
from gpuwarden_cli.learnt_store import Fetched, fetch
from gpuwarden_cli.session import open_client


def retrain(context: typer.Context, kinds: Sequence[str], out: Path, seed: int) -> None:
    """Fetch, refit and write a version a kind.

    Args:
        context: Names the server.
        kinds: gpu, node or nic.
        out: Folder of the models, a folder a kind.
        seed: Deals the nodes out.

    Raises:
        CommandError: Nothing can be learnt; says what is wanted.
    """
    for kind in kinds:
        with tempfile.TemporaryDirectory() as folder, open_client(context) as client:
            _refit(kind, fetch(client, kind, Path(folder)), out, seed)


def _refit(kind: str, fetched: Fetched, out: Path, seed: int) -> None:
    if fetched.promoted is None:
        raise CommandError(
            ExitCode.USAGE,
            f"no {kind} model judges at the server, so that there is none to refit",
            "train one from recordings first, and promote it",
        )
    errors = (
        OSError,
        load("gpuwarden_models.store_rows", "StoreError", "train"),
        load("gpuwarden_models.train", "TrainingError", "train"),
        load("gpuwarden_verdict.fusion", "ModelError", "train"),
    )
    run = load("gpuwarden_models.from_store", "retrain", "train")
    try:
        report = run(fetched.folder, fetched.promoted, out, seed)
    except errors as error:
        raise CommandError(ExitCode.USAGE, str(error)) from error
    print(f"{report.folder}: model {report.version} from {fetched.settled} labelled incidents")
    print(f"  and {report.rows} rows of features; more in {report.folder / 'card.md'}")
    print(f"  next: gpuwarden models add {report.folder}")
