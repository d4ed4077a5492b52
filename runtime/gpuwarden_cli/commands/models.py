"""`gpuwarden models`: which models judge, and changing that without a restart."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gpuwarden_cli.exits import CommandError, ExitCode
from gpuwarden_cli.learnt_store import fetch
from gpuwarden_cli.output import moment, print_json, print_table
from gpuwarden_cli.session import open_client
from gpuwarden_runtime.learning_records import ModelRecord, VersionRecord

LARGEST_BYTES = 3 << 20
"""Of one file of a model; one of ours has about 1 MB in all."""


class Kind(StrEnum):
    """What a model may judge."""

    GPU = "gpu"
    NODE = "node"
    NIC = "nic"


Version = Annotated[str, typer.Argument(help="As `gpuwarden models` lists it.")]
Reason = Annotated[str, typer.Option(help="Why, for the audit.")]
Of = Annotated[Kind, typer.Option(help="Which model: gpu, node or nic.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    """Put the sub-commands into the app."""
    group = typer.Typer(help="The learnt scores: which version judges, which challenges it.")
    group.callback(invoke_without_command=True)(_root)
    group.command("list")(list_models)
    group.command("add")(add)
    group.command("promote")(promote)
    group.command("rollback")(rollback)
    group.command("challenge")(challenge)
    group.command("unchallenge")(unchallenge)
    group.command("costs")(costs)
    group.command("fetch")(fetch_rows)
    app.add_typer(group, name="models")


def _root(context: typer.Context, as_json: AsJson = False) -> None:
    """List models, or change which one judges."""
    if context.invoked_subcommand is None:
        list_models(context, as_json)


def list_models(context: typer.Context, as_json: AsJson = False) -> None:
    """List versions and their roles."""
    with open_client(context) as client:
        items = client.models()
    if as_json:
        print_json(items)
        return
    columns = ("KIND", "VERSION", "ROLE", "SINCE", "BY", "FROM")
    print_table(columns, [row for item in items for row in _rows(item)], "no model")
    for item in items:
        if item.trouble:
            print(f"{item.kind}: {item.trouble}")
        if item.drift is not None and item.drift.warning:
            print(f"{item.kind}: {item.drift.warning}")


def add(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(help="A version's folder, as `gpuwarden train` wrote.")],
    reason: Reason = "trained",
) -> None:
    """Bring a version to the server, which keeps it in its database; it judges nothing yet."""
    files = _files(folder)
    with open_client(context) as client:
        added = client.add_model(files, reason)
    print(f"{added.kind} model {added.version} is at the server")
    print(f"  next: gpuwarden models challenge {added.version} --kind {added.kind} --reason …")


def promote(context: typer.Context, version: Version, reason: Reason, kind: Of = Kind.GPU) -> None:
    """Let a version judge from now on; no restart is needed."""
    with open_client(context) as client:
        model = client.promote_model(kind.value, version, reason)
    print(f"{model.kind} model {model.in_use} judges now")


def rollback(context: typer.Context, reason: Reason, kind: Of = Kind.GPU) -> None:
    """Let the version judge that did before."""
    with open_client(context) as client:
        model = client.roll_back_model(kind.value, reason)
    print(f"{model.kind} model {model.in_use} judges again")


def challenge(
    context: typer.Context, version: Version, reason: Reason, kind: Of = Kind.GPU
) -> None:
    """Score a version in shadow beside the promoted one; it never acts."""
    with open_client(context) as client:
        client.challenge_model(kind.value, version, reason)
    print(f"{kind.value} model {version} is scored in shadow")


def unchallenge(context: typer.Context, kind: Of = Kind.GPU) -> None:
    """End scoring in shadow."""
    with open_client(context) as client:
        client.end_challenger(kind.value)
    print(f"no {kind.value} model is scored in shadow any more")


def costs(context: typer.Context, as_json: AsJson = False) -> None:
    """What mistakes cost by the policy, and from which probability a score should speak."""
    with open_client(context) as client:
        said, items = client.policy().learning, client.models()
    if as_json:
        print_json(said)
        return
    print(f"an hour of a sound GPU that is excluded costs {said.gpu_hour_false_exclusion:g},")
    print(f"an hour of a faulty one that is not costs {said.gpu_hour_missed_fault:g}:")
    print(f"a calibrated score should speak from a probability of {said.operating_point:.3f}")
    for item in items:
        if item.operating_point is not None:
            print(f"  {item.kind} model {item.in_use} speaks from {item.operating_point:.3f}")
    print("set [learning] in the policy; `gpuwarden train` takes it up and records it")


def fetch_rows(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(help="New or empty.")],
    kind: Of = Kind.GPU,
) -> None:
    """Fetch what the server has to learn from: labels, features as they served, the model."""
    with open_client(context) as client:
        found = fetch(client, kind.value, folder)
    print(f"{folder}: {found.rows} rows of features, {found.labels} labelled incidents,")
    print(f"  of which {found.settled} say whether action was needed")


def _files(folder: Path) -> dict[str, bytes]:
    try:
        paths = [path for path in sorted(folder.iterdir()) if path.is_file()]
        large = next((path for path in paths if path.stat().st_size > LARGEST_BYTES), None)
        if large is not None:
            said = f"{large} is larger than {LARGEST_BYTES} bytes: not a model's"
            raise CommandError(ExitCode.LOCAL, said)
        return {path.name: path.read_bytes() for path in paths}
    except OSError as error:
        mend = "Name the folder of one version: that with MANIFEST.json in it."
        raise CommandError(ExitCode.LOCAL, f"{folder}: {error.strerror}", mend) from error


def _rows(item: ModelRecord) -> list[tuple[str, ...]]:
    return [(item.kind, one.version, *_role(item, one), one.source) for one in item.versions]


def _role(item: ModelRecord, one: VersionRecord) -> tuple[str, str, str]:
    """Its role, since when, and who said so."""
    promoted, challenger = item.promoted, item.challenger
    if promoted is not None and promoted.version == one.version:
        role = "judges" if item.in_use == one.version else "promoted, not in use"
        return role, moment(promoted.since or None), promoted.author
    if one.version == item.in_use:
        return "judges instead", "-", ""
    if challenger is not None and challenger.version == one.version:
        return "challenger", moment(challenger.since), challenger.author
    former = any(one.version == before.version for before in item.former)
    return "former" if former else "", moment(one.added_at), one.author
