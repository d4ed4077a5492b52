"""`gpuwarden enrolment`: tokens with which nodes fetch keys of their own."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from gpuwarden_cli.output import moment, print_json, print_table
from gpuwarden_cli.session import open_client

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    """Put the sub-commands into the app."""
    group = typer.Typer(help="Tokens with which nodes fetch keys of their own.")
    group.command("create")(create)
    group.command("list")(list_tokens)
    group.command("delete")(delete)
    app.add_typer(group, name="enrolment", no_args_is_help=True)


def create(
    context: typer.Context,
    nodes: Annotated[str, typer.Option(help="Pattern of the nodes that may enrol.")] = "*",
    uses: Annotated[int, typer.Option(min=1, help="How often it may be used.")] = 1,
    expires_in_hours: Annotated[float, typer.Option(min=0.01, help="Hours it is good.")] = 24.0,
    re_enrol: Annotated[
        bool, typer.Option("--re-enrol", help="It may replace the key that a node has.")
    ] = False,
    name: Annotated[str, typer.Option(help="What it is for, for the audit.")] = "",
    as_json: AsJson = False,
) -> None:
    """Make a token and print it, this once; a node uses it by `gpuwarden-agent enrol`."""
    with open_client(context) as client:
        made = client.create_enrolment_token(
            nodes, uses, expires_in_hours * 3600, re_enrol=re_enrol, name=name
        )
    if as_json:
        print_json(made)
        return
    # The token alone on standard output, so that `> token-file` holds just it.
    print(made.token)
    sys.stderr.write(
        f"token {made.id} for {uses} of the nodes {nodes!r}, until {moment(made.expires_at)}; "
        "it is not shown again\n"
    )


def list_tokens(context: typer.Context, as_json: AsJson = False) -> None:
    """List the tokens, without their secrets."""
    with open_client(context) as client:
        items = client.enrolment_tokens()
    if as_json:
        print_json(items)
        return
    rows = [
        (
            *(item.id, item.nodes, f"{item.used}/{item.uses}", "yes" if item.re_enrol else "-"),
            *(moment(item.created_at), moment(item.expires_at), moment(item.revoked_at)),
            item.name,
        )
        for item in items
    ]
    heads = ("TOKEN", "NODES", "USED", "RE-ENROL", "MADE", "ENDS", "ENDED", "NAME")
    print_table(heads, rows, "no token")


def delete(
    context: typer.Context,
    token_id: Annotated[str, typer.Argument(help="Id from `enrolment list`.")],
) -> None:
    """End a token at once; keys that were made with it stay."""
    with open_client(context) as client:
        client.delete_enrolment_token(token_id)
    print(f"token {token_id} is deleted")
