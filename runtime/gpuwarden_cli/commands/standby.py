"""`gpuwarden standby`: spares, who works for whom, and who should."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gpuwarden_cli.output import age, console, print_json, print_table
from gpuwarden_cli.session import open_client
from gpuwarden_runtime.standby_records import Lease, Proposal, Spare

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
NodeId = Annotated[str, typer.Argument(help="Name of the node.")]
Reason = Annotated[str, typer.Option(help="Why, for the record.")]


def register(app: typer.Typer) -> None:
    """Put the sub-commands into the app."""
    group = typer.Typer(help="Spares: nodes that stand by, and work for those that leave.")
    group.callback(invoke_without_command=True)(_root)
    group.command("list")(list_standby)
    group.command("add")(add)
    group.command("remove")(remove)
    group.command("promote")(promote)
    group.command("release")(release)
    group.command("leases")(leases)
    group.command("advice")(advice)
    app.add_typer(group, name="standby")


def _root(context: typer.Context, as_json: AsJson = False) -> None:
    """Show the book of spares."""
    if context.invoked_subcommand is None:
        list_standby(context, as_json)


def list_standby(context: typer.Context, as_json: AsJson = False) -> None:
    """Show spares, leases that hold, and nodes that nobody replaces yet."""
    with open_client(context) as client:
        book = client.standby()
    if as_json:
        print_json(book)
        return
    columns = ("SPARE", "POOL", "STATE", "RACK", "LEAF", "PROVEN", "MAY NOT BE TAKEN FOR")
    print_table(columns, map(_spare, book.spares), "no spare: gpuwarden standby add NODE")
    if book.leases:
        print_table(_LEASE_COLUMNS, map(_lease, book.leases), "")
    if book.proposals:
        print_table(_PROPOSAL_COLUMNS, map(_proposal, book.proposals), "")


def leases(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most so many.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List leases, newest first, those that ended too."""
    with open_client(context) as client:
        found = client.standby_leases(limit)
    if as_json:
        print_json(found)
        return
    print_table(_LEASE_COLUMNS, map(_lease, found), "no lease so far")


def advice(context: typer.Context, as_json: AsJson = False) -> None:
    """Show how many spares each pool wants by what it showed, beside how many it has."""
    with open_client(context) as client:
        items = client.raw("/v1/standby/advice")["items"]
    if as_json:
        print_json(items)
        return
    columns = (
        "POOL",
        "NODES",
        "LEAVES",
        "NODE-DAYS",
        "OUT",
        "WANTED",
        "AT THE BOUND",
        "HAS",
        "READY",
    )
    print_table(columns, map(_advice, items), "no pool has nodes with GPUs")
    for one in items:
        for said in one["says"]:
            console().print(f"{one['pool']}: {said}", markup=False, soft_wrap=True)


def add(
    context: typer.Context,
    node_id: NodeId,
    reason: Reason,
    pool: Annotated[
        str | None, typer.Option(help="Pool whose nodes it may replace; else its own.")
    ] = None,
    state: Annotated[str, typer.Option(help="cold, warming or warm.")] = "cold",
    proven: Annotated[
        bool, typer.Option("--proven", help="You vouch for its health as of now.")
    ] = False,
) -> None:
    """Let a node stand by, or say how far a spare is."""
    with open_client(context) as client:
        spare = client.add_standby(node_id, reason, pool=pool, state=state, proven=proven)
    print(f"{spare.node_id} stands by for pool {spare.pool}, {spare.state}")


def remove(context: typer.Context, node_id: NodeId, reason: Reason) -> None:
    """Let a node stand by no more."""
    with open_client(context) as client:
        client.remove_standby(node_id, reason)
    print(f"{node_id} stands by no more")


def promote(
    context: typer.Context,
    leaver: Annotated[str, typer.Argument(help="Node that leaves.")],
    reason: Reason,
    joiner: Annotated[
        str | None, typer.Option(help="The spare; else the best that may be taken.")
    ] = None,
    lease_s: Annotated[
        float | None,
        typer.Option(min=0, help="Seconds; else as the policy says, 0: until it is released."),
    ] = None,
) -> None:
    """Lease a spare for a node; where its exclusion waits for approval, that is given."""
    with open_client(context) as client:
        lease = client.promote_standby(leaver, reason, joiner=joiner, lease_s=lease_s)
    print(f"{lease.joiner} works for {lease.leaver} (lease {lease.epoch}: {lease.reason})")


def release(
    context: typer.Context,
    node_id: Annotated[str, typer.Argument(help="The leased spare.")],
    keep: Annotated[str, typer.Option(help="Who goes on in service: leaver or joiner.")],
    reason: Reason,
) -> None:
    """End a lease: the node that left returns to service, or becomes the spare."""
    with open_client(context) as client:
        lease = client.release_standby(node_id, keep, reason)
    stands_by = lease.joiner if keep == "leaver" else lease.leaver
    print(f"lease {lease.epoch} has ended; {stands_by} stands by")


def _advice(one: dict[str, Any]) -> tuple[str, ...]:
    upper = "unknown" if one["wanted_upper"] is None else str(one["wanted_upper"])
    return (
        *(one["pool"], str(one["nodes"]), str(one["leaves"]), f"{one['node_days']:.0f}"),
        *(f"{one['mean_out_s'] / 3600:.1f} h", str(one["wanted"]), upper),
        *(str(one["spares"]), str(one["ready"])),
    )


_PROPOSAL_COLUMNS = ("WITHOUT REPLACEMENT", "POOL", "EXCLUSION", "SPARE", "WHY")
_LEASE_COLUMNS = ("LEASE", "JOINER", "LEAVER", "POOL", "SINCE", "ENDED", "BY", "WHY")


def _spare(one: Spare) -> tuple[str, ...]:
    proven = "never" if one.proof_at is None else age(one.proof_at)
    lemon = (f"lemon {one.lemon:.1f}",) if one.lemon else ()
    against = ", ".join((*one.obstacles, *lemon)) or "-"
    return (one.node_id, one.pool, one.state, one.rack, one.leaf, proven, against)


def _lease(one: Lease) -> tuple[str, ...]:
    ended = "-" if one.ended_at is None else f"{age(one.ended_at)}: {one.ended_why}"
    return (
        *(str(one.epoch), one.joiner, one.leaver, one.pool, age(one.begun_at), ended),
        *(one.author, one.reason),
    )


def _proposal(one: Proposal) -> tuple[str, ...]:
    exclusion = f"{one.decision_id} {'waits' if one.waiting else 'in force'}"
    joiner = one.joiner or "none"
    return (one.leaver, one.pool, exclusion, joiner, one.why)
