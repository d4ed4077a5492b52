"""`gpuwarden job` and `gpuwarden why JOB`: how jobs ended, and what ended them."""

from __future__ import annotations

from typing import Annotated

import typer

from gpuwarden_cli.exits import CommandError, ExitCode
from gpuwarden_cli.output import moment, number, print_table
from gpuwarden_cli.session import open_client
from gpuwarden_runtime.job_records import JobWhy

KINDS = ("slurm", "kubernetes", "torchrun")

Job = Annotated[
    str, typer.Argument(help="KIND:ID (slurm:4711, kubernetes:POD-UID, torchrun:ID), or the id.")
]


def register(app: typer.Typer) -> None:
    """Put the sub-commands into the app."""
    group = typer.Typer(help="Training jobs: tell how they ended.")
    group.callback()(_root)
    group.command("end")(end)
    app.add_typer(group, name="job", no_args_is_help=True)


def _root() -> None:
    """Training jobs: tell how they ended."""


def end(
    context: typer.Context,
    job: Job,
    state: Annotated[
        str, typer.Option(help="In Slurm's or Kubernetes' words: COMPLETED, FAILED, CANCELLED …")
    ],
    exit_code: Annotated[int | None, typer.Option(help="Of the job.")] = None,
    user: Annotated[str, typer.Option(help="Whose it was.")] = "",
    node: Annotated[
        list[str] | None, typer.Option(help="Where it ran; else where the agents saw it.")
    ] = None,
) -> None:
    """Tell how a job ended, from an epilog: evidence about its nodes, never a verdict."""
    with open_client(context) as client:
        told = client.end_job(job, state, exit_code, user=user, nodes=node or ())
    for item in told.items:
        if item.outcome == "refused":
            raise CommandError(ExitCode.REFUSED, item.detail, item.mend)
        known = ", as was known already" if item.outcome == "duplicate" else ""
        print(f"{job} ended {state}{known}")


def is_job(text: str) -> bool:
    """Whether a person names a job by its kind."""
    kind, _, job_id = text.partition(":")
    return kind in KINDS and bool(job_id)


def print_job(answer: JobWhy, *, whole: bool) -> None:
    """The line; with all that it rests on."""
    print(answer.line)
    if not whole:
        return
    print(f"\nOn {answer.nodes} nodes and {answer.gpus} GPUs since {moment(answer.since)}", end="")
    print("" if answer.until is None else f" until {moment(answer.until)}")
    for told in answer.ends:
        code = "" if told.exit_code is None else f", exit code {told.exit_code}"
        print(f"Ended {told.state}{code} at {moment(told.ended_at)}")
    rows = (
        (
            one.incident.id,
            one.cause,
            one.incident.severity,
            number(one.incident.confidence),
            moment(one.first_at),
            one.incident.entity,
            one.sentence,
        )
        for one in answer.findings
    )
    columns = ("INCIDENT", "SPEAKS FOR", "SEVERITY", "CONF.", "FIRST", "ENTITY", "EVIDENCE")
    print_table(columns, rows, "no incident bears upon it")
    for blind in answer.blind:
        print(f"not seen: {blind}")
