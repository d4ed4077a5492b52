"""`gpuwarden policy`: check a policy, see what differs, and what it would have done."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gpuwarden_cli.commands import policy_simulating
from gpuwarden_cli.extras import load
from gpuwarden_cli.output import moment, print_json, print_table
from gpuwarden_cli.policy_files import SERVER, parse_file, read_file
from gpuwarden_cli.session import open_client

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
File = Annotated[Path, typer.Argument(help="Policy file.")]
Side = Annotated[str, typer.Argument(help="Policy file, or `server` for the one in force there.")]


def register(app: typer.Typer) -> None:
    """Put the sub-commands into the app."""
    group = typer.Typer(help="What may be done, where, and how much of it.", no_args_is_help=True)
    group.callback()(_group)
    group.command()(check)
    group.command()(diff)
    group.command()(policy_simulating.simulate)
    group.command()(versions)
    group.command()(show)
    app.add_typer(group, name="policy")


def _group() -> None:
    """What may be done, where, and how much of it."""


def check(file: File, as_json: AsJson = False) -> None:
    """Look at a policy file as the server would, and start nothing.

    Ends with 2 where the server would not start with it; names the key and what to write instead.
    """
    document = parse_file(file)
    pools = [
        {"pool": pool.name, "mode": pool.mode.value, "rules": len(pool.rules)}
        for pool in document.pools
    ]
    if as_json:
        print_json({"file": str(file), "version": document.version, "pools": pools})
        return
    print(f"{file}: valid, version {document.version}")
    rows = ((one["pool"], one["mode"], one["rules"]) for one in pools)
    print_table(("POOL", "MODE", "RULES"), rows, "no pool")


def diff(context: typer.Context, before: Side, after: Side, as_json: AsJson = False) -> None:
    """What differs: pools, classes of fault and rungs, in words.

    Where one of the two is `server`, nodes of its fleet that would change their pool are named too.
    """
    form = _diff_here(Path(before), Path(after))
    if SERVER in (before, after):
        form = _diff_there(context, before, after)
    if as_json:
        print_json(form)
        return
    print(f"{before} ({form['before']}) against {after} ({form['after']})")
    rows = (
        (one["pool"] or "all", one["what"], one["before"] or "-", one["after"] or "-")
        for one in form["changes"]
    )
    print_table(("POOL", "WHAT", "BEFORE", "AFTER"), rows, "nothing differs")
    if form["nodes"] is None:
        print("nodes that change their pool: compare with `server`")
        return
    moved = ((one["node_id"], one["before"], one["after"]) for one in form["nodes"])
    print_table(("NODE", "POOL BEFORE", "POOL AFTER"), moved, "no node changes its pool")


def versions(context: typer.Context, as_json: AsJson = False) -> None:
    """Policies that the server has begun with, the newest first."""
    with open_client(context) as client:
        items = client.raw("/v1/policy/versions")["items"]
    if as_json:
        print_json(items)
        return
    rows = (
        (one["version"], "yes" if one["in_force"] else "", one["mode"], moment(one["last_at"]))
        for one in items
    )
    print_table(("VERSION", "IN FORCE", "GPUWARDEN_MODE", "LAST BEGUN"), rows, "none is kept")


def show(
    context: typer.Context,
    version: Annotated[str | None, typer.Argument(help="Else the one in force.")] = None,
) -> None:
    """Print the text of a policy as the server read it."""
    with open_client(context) as client:
        wanted = version or client.policy().version
        kept = client.raw(f"/v1/policy/versions/{wanted}")
    print(kept["text"], end="")


def _diff_here(before: Path, after: Path) -> dict[str, Any]:
    if SERVER in (str(before), str(after)):
        return {}
    old, new = parse_file(before), parse_file(after)
    changes = load("gpuwarden_verdict.policy.diff", "changes_between", "server")(old, new)
    told = [
        {"pool": one.pool, "what": one.what, "before": one.before, "after": one.after}
        for one in changes
    ]
    return {"before": old.version, "after": new.version, "changes": told, "nodes": None}


def _diff_there(context: typer.Context, before: str, after: str) -> dict[str, Any]:
    texts = {
        name: None if one == SERVER else read_file(Path(one))
        for name, one in (("before", before), ("after", after))
    }
    with open_client(context) as client:
        answer: dict[str, Any] = client.raw_ask("/v1/policy/diff", texts)
    return answer
