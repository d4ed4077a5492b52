"""The actuators' file."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuwarden_server.actuators.document import CommandTarget, FilesTarget, SlurmTarget
from gpuwarden_server.actuators.parse import load_actuators, parse_actuators
from gpuwarden_server.core.errors import StartError
from gpuwarden_verdict.actuation import Drift
from gpuwarden_verdict.entities import Rung

FILE = """
[[actuators]]
name = "slurm"
kind = "slurm"
nodes = ["gpu-*"]
dry_run = false
drift = "repair"
config = "/etc/slurm/slurm.conf"
move_from = "evict"

[[actuators]]
name = "lists"
kind = "files"
folder = "/var/lib/gpuwarden/exclusions"

[[actuators]]
name = "tickets"
kind = "command"
command = ["/opt/site/bin/gpu-ticket", "--queue", "hw"]
secret_env = "TICKET_SECRET"
"""


HOOK = "[[actuators]]\nname='a'\nkind='webhook'\n"


def variables(name: str) -> str | None:
    return {"TICKET_SECRET": "s3cret"}.get(name)


def test_a_whole_file() -> None:
    slurm, lists, tickets = parse_actuators(FILE, variables).targets
    assert isinstance(slurm, SlurmTarget)
    assert (slurm.common.dry_run, slurm.common.drift, slurm.move_from) == (
        False,
        Drift.REPAIR,
        Rung.EVICT,
    )
    assert slurm.config == Path("/etc/slurm/slurm.conf")
    assert isinstance(lists, FilesTarget)
    assert lists.common.dry_run, "nothing acts before it is told to"
    assert isinstance(tickets, CommandTarget)
    assert tickets.secret == "s3cret"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[[actuators]]\nname = 'a'\nkind = 'slurmm'", "slurmm"),
        ("[[actuators]]\nname = 'a'\nkind = 'slurm'\ndryrun = true", "dryrun"),
        ("[[actuators]]\nname = 'a'\nkind = 'files'", "folder"),
        ("[[actuators]]\nname = 'a'\nkind = 'files'\nfolder = 'here'", "is relative"),
        ("[[actuators]]\nname = 'A b'\nkind = 'slurm'", "A b"),
        ("[[actuators]]\nname = 'a'\nkind = 'slurm'\nmove_from = 'soon'", "soon"),
        ("[[actuators]]\nname = 'a'\nkind = 'slurm'\ntimeout_s = 0", "timeout_s"),
        ("[[actuators]]\nname = 'a'\nkind = 'command'\ncommand = []", "command"),
        (
            "[[actuators]]\nname='a'\nkind='command'\ncommand=['x']\nsecret_env='NO'",
            "NO is not set",
        ),
        (f"{HOOK}url='ftp://x'\nsecret_env='TICKET_SECRET'", "http"),
        (f"{HOOK}url='http://x'\nsecret_env='TICKET_SECRET'", "whsec_"),
        (f"{HOOK}url='http://x'", "secret_env"),
        ("[[actuators]]\nname='a'\nkind='slurm'\n" * 2, "two actuators"),
        ("actuators = 3", "actuators"),
        ("[[actuators", "actuators"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, text: str, named: str) -> None:
    file = tmp_path / "actuators.toml"
    file.write_text(text)
    with pytest.raises(StartError) as refused:
        load_actuators(file, variables)
    assert named in str(refused.value)
    assert "docs/actuators.md" in str(refused.value)


def test_without_a_file_nothing_outside_is_changed() -> None:
    assert load_actuators(None, variables).targets == ()


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="GPUWARDEN_ACTUATORS_FILE"):
        load_actuators(tmp_path / "none.toml", variables)
