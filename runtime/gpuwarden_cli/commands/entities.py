"""`gpuwarden nodes`, `why` and `repair`: what is, why it is so, and that somebody mends it."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import typer

from gpuwarden_cli.commands.jobs import is_job, print_job
from gpuwarden_cli.exits import CommandError, ExitCode
from gpuwarden_cli.output import age, print_json, print_table
from gpuwarden_cli.session import open_client
from gpuwarden_cli.why_page import print_why
from gpuwarden_runtime.client import Client
from gpuwarden_runtime.errors import Refused
from gpuwarden_runtime.job_records import JobWhy
from gpuwarden_runtime.records import EntryRecord, NodeRecord, Trouble, Why
from gpuwarden_wire.acknowledgement import Usable

Entity = Annotated[
    str, typer.Argument(help="GPU-UUID, NODE:INDEX (a GPU by its index), or a node's name.")
]
Subject = Annotated[
    str,
    typer.Argument(
        help="GPU-UUID, NODE:INDEX (a GPU by its index), a node's name, or a job: slurm:ID, "
        "kubernetes:POD-UID, torchrun:ID, or its id."
    ),
]
_NOT_THE_PROGRAM = frozenset({"hardware", "storage", "network", "place"})
_OUT_ITSELF = frozenset({"excluded", "draining", "in_repair"})
"""States in which the node's GPUs are out for its own sake."""
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    """Put the sub-commands into the app."""
    group = typer.Typer(help="The nodes: list them, rename one, or take one out of the fleet.")
    group.callback(invoke_without_command=True)(nodes)
    group.command("add")(add)
    group.command("retire")(retire)
    group.command("rename")(rename)
    app.add_typer(group, name="nodes")
    app.command()(why)
    app.command()(repair)


def nodes(
    context: typer.Context,
    as_json: AsJson = False,
    usable: Annotated[Usable | None, typer.Option(help="Only nodes with this verdict.")] = None,
) -> None:
    """List the nodes with their verdict, GPUs and open incidents; or act on one."""
    if context.invoked_subcommand is not None:
        return
    with open_client(context) as client:
        found = [node for node in client.all_nodes() if usable in (None, node.usable)]
    if as_json:
        print_json(found)
        return
    columns = ("NODE", "POOL", "USABLE", "STATE", "GPUS", "INCIDENTS", "SEEN", "AGENT", "REMARK")
    print_table(columns, map(_node_row, found), "no node has reported yet")
    versions = Counter(node.agent_version for node in found if node.agent_version)
    if len(versions) > 1:
        told = ", ".join(f"{count} x {version}" for version, count in sorted(versions.items()))
        print(f"\nAgents of different versions: {told}")


def add(
    context: typer.Context,
    node: Annotated[str, typer.Argument(help="Name, as its agent or remote write will say it.")],
    reason: Annotated[str, typer.Option(help="Why, for the record.")],
    rack: Annotated[str, typer.Option(help="Where it stands.")] = "",
    leaf: Annotated[str, typer.Option(help="Switch that it hangs on.")] = "",
    pool: Annotated[str, typer.Option(help="What it is used for.")] = "",
    gpus: Annotated[int | None, typer.Option(min=0, help="GPUs that it should have.")] = None,
) -> None:
    """Make a node known before it is heard of: it is listed, and silent until it speaks."""
    entry = EntryRecord(node_id=node, rack=rack, leaf=leaf, pool=pool, gpus_expected=gpus)
    with open_client(context) as client:
        client.add_node(entry, reason)
    print(f"{node} is known; it is silent until its agent, or remote write, sends")


def retire(
    context: typer.Context,
    node: Annotated[str, typer.Argument(help="A node that is switched off for good.")],
    reason: Annotated[str, typer.Option(help="Why, for the record.")],
) -> None:
    """Take a silent node out of the fleet: it counts nowhere, and its exclusions end."""
    with open_client(context) as client:
        client.retire_node(node, reason)
    print(f"{node} is retired; it comes back by itself when its agent sends again")


def rename(
    context: typer.Context,
    old: Annotated[str, typer.Argument(help="What it is called now.")],
    new: Annotated[str, typer.Argument(help="What it is to be called.")],
    reason: Annotated[str, typer.Option(help="Why, for the record.")],
) -> None:
    """Call a node something else: history, incidents, exclusions and its key go with it."""
    with open_client(context) as client:
        client.rename_node(old, new, reason)
    print(f"{old} is called {new} now; give its agent that name too, where it is not the host's")


def why(
    context: typer.Context,
    entity: Subject,
    as_json: AsJson = False,
    exit_code: Annotated[
        bool,
        typer.Option(
            "--exit-code", help="Exit with 1 where it may not be used, or it was not the program."
        ),
    ] = False,
    whole: Annotated[
        bool, typer.Option("--all", help="Of a job: with the evidence, not in one line.")
    ] = False,
) -> None:
    """Explain a verdict with its evidence; or, in one line, whether a job's end was its code's."""
    with open_client(context) as client:
        answer = client.why_job(entity) if is_job(entity) else _find(client, entity)
    if isinstance(answer, JobWhy):
        if as_json:
            print_json(answer)
        else:
            print_job(answer, whole=whole)
        if exit_code and answer.cause in _NOT_THE_PROGRAM:
            raise typer.Exit(ExitCode.NEGATIVE)
        return
    if as_json:
        print_json(answer)
    else:
        print_why(answer)
    if exit_code and answer.verdict.usable is Usable.NO:
        raise typer.Exit(ExitCode.NEGATIVE)


def repair(
    context: typer.Context,
    entity: Entity,
    reason: Annotated[str, typer.Option(help="What is being done, for the record.")],
) -> None:
    """Say that an excluded GPU or node is in repair; a passed check then brings it back."""
    with open_client(context) as client:
        if _is_gpu(entity):
            client.repair_gpu(gpu_of(client, entity), reason)
        else:
            client.repair_node(entity, reason)
    print(f"{entity} is in repair; a passed check brings it back")


def gpu_of(client: Client, entity: str) -> str:
    """The UUID of a GPU named by it or as NODE:INDEX.

    Raises:
        CommandError: The node has no GPU of that index.
    """
    if entity.startswith("GPU-"):
        return entity
    node_id, _, index = entity.rpartition(":")
    node = client.node(node_id)
    for gpu in node.gpus:
        if gpu.index == int(index):
            return gpu.gpu_uuid
    have = ", ".join(str(gpu.index) for gpu in node.gpus) or "none"
    raise CommandError(
        ExitCode.USAGE, f"node {node_id} has no GPU {index}", f"GPUs of this node: {have}"
    )


def _find(client: Client, entity: str) -> Why | JobWhy:
    if _is_gpu(entity):
        return client.why_gpu(gpu_of(client, entity))
    try:
        return client.why_node(entity)
    except Refused as error:
        if error.problem.status != 404:
            raise
    try:
        return client.why_job(entity)
    except Refused as error:
        if error.problem.status != 404:
            raise
        raise CommandError(
            ExitCode.REFUSED,
            f"no node and no job {entity!r} is known",
            "`gpuwarden nodes` lists the nodes; name a GPU by its UUID or as NODE:INDEX, a job as "
            "slurm:ID",
        ) from error


def _is_gpu(entity: str) -> bool:
    node_id, colon, index = entity.rpartition(":")
    return entity.startswith("GPU-") or bool(colon and node_id and index.isdecimal())


def _node_row(node: NodeRecord) -> tuple[str | int, ...]:
    expected = node.gpus_expected
    gpus = "-" if node.gpus_visible is None else str(node.gpus_visible)
    if expected is not None and expected != node.gpus_visible:
        gpus = f"{gpus} of {expected}"
    return (
        node.node_id,
        node.pool,
        node.usable,
        _state(node),
        gpus,
        node.open_incidents,
        age(node.last_seen_at),
        node.agent_version or "-",
        _remark(node),
    )


def _state(node: NodeRecord) -> str:
    """The node's own state; beside it how many of its GPUs are why it may not be used."""
    out = sum(gpu.usable is Usable.NO for gpu in node.gpus)
    if not out or node.state in _OUT_ITSELF:
        return node.state
    excluded = f"{out} of {len(node.gpus)} GPUs excluded"
    return excluded if node.state == "healthy" else f"{node.state}, {excluded}"


def _remark(node: NodeRecord) -> str:
    remarks = ["silent"] if node.silent else []
    remarks += [f"GPU {gpu.index} {gpu.state}" for gpu in node.gpus if gpu.state != "healthy"]
    if node.gpus_unread is not None:
        remarks.append(f"no GPU read: {node.gpus_unread}")
    remarks += [
        _told(trouble)
        for trouble in node.trouble
        if (trouble.source, trouble.reason) != ("nvml", node.gpus_unread)
    ]
    return "; ".join(remarks)


def _told(trouble: Trouble) -> str:
    since = "" if trouble.since is None else f" for {age(trouble.since)}"
    mend = f" ({trouble.mend})" if trouble.mend else ""
    return f"{trouble.source}{since}: {trouble.reason}{mend}"
