"""`gpuwarden inventory`: where nodes are and what they should have, from files and schedulers."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from gpuwarden_cli.exits import CommandError, ExitCode
from gpuwarden_cli.inventory_files import (
    InventoryFault,
    InventorySource,
    read_inventory,
    read_kubernetes,
    read_slurm,
)
from gpuwarden_cli.output import print_json, print_table
from gpuwarden_cli.session import open_client
from gpuwarden_runtime.errors import GpuwardenError
from gpuwarden_runtime.records import EntryRecord, InventoryChanges

COMMAND_S = 60.0
SHOWN = 50
_FIELDS = ("rack", "leaf", "pool", "mounts", "gpus_expected", "labels")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    """Put the sub-commands into the app."""
    group = typer.Typer(help="Racks, leaves, pools, mounts and expected GPUs of the nodes.")
    group.command("import")(import_inventory)
    group.command("list")(list_inventory)
    app.add_typer(group, name="inventory", no_args_is_help=True)


def list_inventory(
    context: typer.Context,
    as_json: AsJson = False,
    unheard: Annotated[
        bool, typer.Option("--unheard", help="Only nodes that were never heard of.")
    ] = False,
) -> None:
    """List the inventory as all its sources together have it."""
    with open_client(context) as client:
        items = [one for one in client.all_inventory() if not (unheard and one.known)]
    if as_json:
        print_json(items)
        return
    columns = ("NODE", "RACK", "LEAF", "POOL", "GPUS", "MOUNTS", "LABELS", "SOURCES", "HEARD OF")
    rows = (
        (
            *(one.node_id, one.rack, one.leaf, one.pool),
            "-" if one.gpus_expected is None else str(one.gpus_expected),
            " ".join(one.mounts),
            _words(one.labels),
            ", ".join(one.sources),
            "yes" if one.known else "never",
        )
        for one in items
    )
    print_table(columns, rows, "no node is known, and no source names one")


def import_inventory(
    context: typer.Context,
    file: Annotated[
        Path | None,
        typer.Argument(
            help="CSV, TOML, or what `kubectl get nodes -o json` or `scontrol show node -o` writes."
        ),
    ] = None,
    slurm: Annotated[bool, typer.Option("--slurm", help="Ask scontrol.")] = False,
    kubernetes: Annotated[bool, typer.Option("--kubernetes", help="Ask kubectl.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would change.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before it is changed.")] = False,
) -> None:
    """Replace what one source (file, slurm, kubernetes) says; what changes is shown first.

    A node that the source names no more keeps its history; retire it where it is gone.
    """
    if sum((file is not None, slurm, kubernetes)) != 1:
        raise CommandError(
            ExitCode.USAGE, "which inventory?", "name a FILE, or give --slurm or --kubernetes"
        )
    source, entries = _read(file, slurm=slurm)
    with open_client(context) as client:
        changes = client.put_inventory(entries, source, dry_run=True)
        _show(changes)
        if dry_run or not changes.changes:
            return
        if not yes:
            typer.confirm("Take it over?", abort=True)
        client.put_inventory(entries, source)
    print(f"inventory {source}: {_counts(changes)}")


def _read(file: Path | None, *, slurm: bool) -> tuple[InventorySource, Sequence[EntryRecord]]:
    try:
        if file is not None:
            return read_inventory(file.read_text(encoding="utf-8"), file.name)
        if slurm:
            nodes = _output("scontrol", "show", "node", "-o")
            topology = _output("scontrol", "show", "topology", optional=True)
            return InventorySource.SLURM, read_slurm(nodes, topology)
        listed = _output("kubectl", "get", "nodes", "-o", "json")
        return InventorySource.KUBERNETES, read_kubernetes(listed)
    except (InventoryFault, GpuwardenError) as error:
        raise CommandError(ExitCode.USAGE, str(error), "docs/inventory.md has the forms") from error
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(
            ExitCode.LOCAL, f"cannot read {file}: {error}", "name a text file"
        ) from error


def _output(*command: str, optional: bool = False) -> str:
    """What a program writes.

    Raises:
        CommandError: It is not there, fails or does not end; says how to go on without it.
    """
    mend = f"run `{' '.join(command)} > FILE` where it works, and import FILE"
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=COMMAND_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandError(ExitCode.LOCAL, f"cannot run {command[0]}: {error}", mend) from error
    if done.returncode == 0:
        return done.stdout
    if optional:
        return ""
    said = done.stderr.strip()[:300]
    raise CommandError(ExitCode.LOCAL, f"{command[0]} failed ({done.returncode}): {said}", mend)


def _show(changes: InventoryChanges) -> None:
    rows = [
        (change.node_id, *_told(change.before, change.after)) for change in changes.changes[:SHOWN]
    ]
    print_table(("NODE", "CHANGE", "WHAT"), rows, f"inventory {changes.source}: nothing changes")
    if len(changes.changes) > SHOWN:
        print(f"… and {len(changes.changes) - SHOWN} more")
    if changes.changes:
        print(_counts(changes))


def _told(before: EntryRecord | None, after: EntryRecord | None) -> tuple[str, str]:
    if before is None or after is None:
        one = after or before
        said = [f"{name} {_text(one, name)}" for name in _FIELDS if _text(one, name)]
        return ("new" if before is None else "no longer named"), ", ".join(said)
    moved = (name for name in _FIELDS if getattr(before, name) != getattr(after, name))
    return "changed", ", ".join(
        f"{name} {_text(before, name) or '-'} -> {_text(after, name) or '-'}" for name in moved
    )


def _text(entry: EntryRecord | None, name: str) -> str:
    value = getattr(entry, name, None)
    if isinstance(value, dict):
        return _words(value)
    if isinstance(value, Iterable) and not isinstance(value, str):
        return " ".join(value)
    return "" if value is None else str(value)


def _words(labels: dict[str, str]) -> str:
    return " ".join(f"{key}={value}" for key, value in sorted(labels.items()))


def _counts(changes: InventoryChanges) -> str:
    return f"{changes.added} new, {changes.changed} changed, {changes.removed} no longer named"
