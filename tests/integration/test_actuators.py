"""Exclusions carried into files, commands and a real Slurm, by a real server."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwarden_server.config import Settings
from gpuwarden_wire.events import EventKind
from tests.builders.feed import get, quick_settings, wait_sweeps, xid_event
from tests.builders.server import (
    Feeder,
    Running,
    ServerProcess,
    make_event,
    make_gpu,
    running_server,
    wait_until,
)
from tests.builders.slurm import NODES, SlurmCluster
from tests.fakes.waiting import wait_for

SLOT = "0000:10:00.0"
REMAP_FAILED = 64  # NVIDIA's catalogue: row remapping failed; acts alone

SLURM = """
[[actuators]]
name = "slurm"
kind = "slurm"
dry_run = {dry_run}
every_s = 0.3
config = "{config}"
programs = "{programs}"
move_from = "exclude"
"""


def settings_of(folder: Path, actuators: str, **overrides: Any) -> Settings:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "actuators.toml"
    file.write_text(actuators)
    return quick_settings(folder, actuators_file=file, **overrides)


def introduced(server: Running, name: str) -> Feeder:
    feeder = Feeder(server, server.mint("agent", name), name)
    feeder.introduce([make_gpu(0, name)])
    return feeder


def repair(server: Running, node: Feeder) -> None:
    """What a person and then the node's check say."""
    gpu = f"GPU-{node.node_id}-0"
    server.admin.post(f"/v1/gpus/{gpu}/repair", json={"reason": "swapped"}).raise_for_status()
    node.events(make_event(kind=EventKind.CHECK_PASSED, text="dcgm r3"))


def standing(server: Running, actuator: str, node: str) -> str:
    """How a node stands there, "" where it stands nowhere."""
    for one in get(server, "/v1/actuators", node=node)["items"]:
        if one["name"] == actuator and one["nodes"]:
            return str(one["nodes"][0]["standing"])
    return ""


def done(server: Running, node: str) -> list[tuple[str, str]]:
    """Steps at a node, oldest first."""
    items = get(server, "/v1/actuations", node=node)["items"]
    return [(one["act"], one["phase"]) for one in reversed(items)]


def text_of(path: Path) -> str:
    """What a file holds, "" while it is not there."""
    return path.read_text() if path.exists() else ""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "exclusions"


def test_files_hold_what_is_excluded_and_lose_it_with_the_exclusion(
    tmp_path: Path, folder: Path
) -> None:
    text = f"""
[[actuators]]
name = "lists"
kind = "files"
folder = "{folder}"
dry_run = false
every_s = 0.3
"""
    (folder / "exclude").mkdir(parents=True)
    (folder / "exclude" / "n9").write_text("ann: bad riser\n")
    with running_server(settings_of(tmp_path / "s", text)) as server:
        one, other = introduced(server, "n1"), introduced(server, "n9")
        for node in (one, other):
            node.events(xid_event(REMAP_FAILED, SLOT))
        wait_for((folder / "exclude" / "n1").exists, what="the node's file")
        wait_for(lambda: standing(server, "lists", "n9") == "already_out", what="ann's file")
        wait_for(lambda: text_of(folder / "hosts.txt") == "n1\nn9\n", what="the list")
        wait_for(lambda: done(server, "n1") == [("exclude", "done")], what="all lists written")
        assert (folder / "slurm-exclude.txt").read_text() == "n1,n9\n"
        record = json.loads((folder / "exclude" / "n1").read_text())
        assert record["gpus"] == ["GPU-n1-0"]
        assert record["reason"].startswith("gpuwarden: dec-")
        targets = json.loads((folder / "file_sd.json").read_text())
        assert [one["targets"] for one in targets] == [["n1"], ["n9"]]
        for node in (one, other):
            repair(server, node)
        wait_for(lambda: not (folder / "exclude" / "n1").exists(), what="its end")
        wait_for(lambda: done(server, "n1") == [("exclude", "done"), ("release", "done")])
        assert (folder / "exclude" / "n9").read_text() == "ann: bad riser\n"
        assert done(server, "n9") == []
        audit = server.admin.get("/v1/audit").json()["items"]
        told = [(a["action"], a["target"]) for a in audit if a["action"].startswith("actuate_")]
        assert told == [("actuate_exclude", "lists:n1"), ("actuate_release", "lists:n1")]
        assert server.figure("gpuwarden_actuator_up", actuator="lists") == 1
        one.close()
        other.close()


COMMAND = """#!{python}
import hashlib, hmac, json, os, sys
from pathlib import Path
here = Path({folder!r})
body = sys.stdin.buffer.read()
wanted = hmac.new(b"s3cret-of-the-test", body, hashlib.sha256).hexdigest()
assert hmac.compare_digest(wanted, os.environ["GPUWARDEN_SIGNATURE"]), "not signed"
assert not any(name.startswith("GPUWARDEN_ADMIN") for name in os.environ), "keys of the server"
request = json.loads(body)
(here / "asked").open("a").write(request["act"] + "\\n")
if (here / "broken").exists():
    sys.exit("the ticket system is away")
state = here / "state.json"
held = json.loads(state.read_text()) if state.exists() else {{}}
if request["act"] == "read":
    print(json.dumps({{
        node: {{"hold": "ours" if node in held else "free", "reason": held.get(node, "")}}
        for node in {{*request["nodes"], *held}}
    }}))
elif request["act"] == "exclude":
    held[request["node"]] = request["reason"]
elif request["act"] == "release":
    held.pop(request["node"], None)
state.write_text(json.dumps(held))
"""


# Seen once in a whole run: a connection of a server that had ended, collected during this test.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_command_is_asked_signed_and_asked_again_when_it_fails(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.mkdir()
    program = folder / "hook"
    program.write_text(COMMAND.format(python=sys.executable, folder=str(folder)))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("HOOK_SECRET", "s3cret-of-the-test")
    text = f"""
[[actuators]]
name = "hook"
kind = "command"
command = ["{program}"]
secret_env = "HOOK_SECRET"
dry_run = false
every_s = 0.3
"""
    (folder / "broken").write_text("")
    with running_server(settings_of(tmp_path / "s", text)) as server:
        node = introduced(server, "n1")
        node.events(xid_event(REMAP_FAILED, SLOT))
        trouble = wait_for(lambda: get(server, "/v1/actuators")["items"][0]["trouble"])
        assert "the ticket system is away" in trouble
        ready = server.admin.get("/readyz").text
        assert "in trouble: hook" in ready
        assert "ticket" not in ready, "what a program says is not for everybody"
        assert done(server, "n1") == [], "what cannot be read is not written"
        (folder / "broken").unlink()
        wait_for(lambda: done(server, "n1") == [("exclude", "done")], 60, "excluded")
        assert "n1" in json.loads((folder / "state.json").read_text())
        wait_for(lambda: get(server, "/v1/actuators")["items"][0]["trouble"] == "")
        repair(server, node)
        wait_for(lambda: done(server, "n1")[1:] == [("release", "done")], what="released")
        node.close()


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    with SlurmCluster() as cluster:
        yield cluster


@pytest.fixture
def programs(slurm: SlurmCluster, tmp_path: Path) -> Path:
    """Slurm's clients, held before or after the steps that a test names."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in ("scontrol", "squeue"):
        (folder / name).write_text(WRAPPER.format(name=name, folder=folder))
        (folder / name).chmod(0o755)
    return folder


# `hold-STEP.before` keeps a call from happening until it is gone, and the call is given up where
# `abandon` is there by then; `hold-STEP.after` keeps its answer back.
WRAPPER = """#!/bin/sh
case "$*" in
    *state=drain*) step=drain ;;
    requeue*) step=requeue ;;
    *state=resume*|*state=undrain*) step=resume ;;
    *) exec {name} "$@" ;;
esac
wait_at() {{
    [ -e {folder}/hold-$step.$1 ] || return 0
    : > {folder}/at-$step.$1
    while [ -e {folder}/hold-$step.$1 ]; do sleep 0.05; done
}}
wait_at before
[ -e {folder}/abandon ] && exit 1
{name} "$@"; code=$?
wait_at after
exit $code
"""


def slurm_settings(folder: Path, slurm: SlurmCluster, programs: Path, **overrides: Any) -> Settings:
    dry_run = overrides.pop("dry_run", "false")
    text = SLURM.format(config=slurm.config, programs=programs, dry_run=dry_run)
    return settings_of(folder, text, **overrides)


@pytest.mark.serial
def test_a_dry_run_says_what_it_would_do_and_touches_nothing(
    tmp_path: Path, slurm: SlurmCluster, programs: Path
) -> None:
    settings = slurm_settings(tmp_path / "s", slurm, programs, dry_run="true")
    with running_server(settings) as server:
        node = introduced(server, "n1")
        node.events(xid_event(REMAP_FAILED, SLOT))
        wait_for(lambda: done(server, "n1") == [("exclude", "dry_run")], what="said")
        looked_at = get(server, "/v1/actuators")["items"][0]["looked_at"]
        wait_for(lambda: get(server, "/v1/actuators")["items"][0]["looked_at"] > looked_at + 0.5)
        assert done(server, "n1") == [("exclude", "dry_run")], "said once"
        assert slurm.state("n1") == "IDLE"
        node.close()


STEPS = ("drain", "requeue", "resume")


@pytest.mark.serial
@pytest.mark.timeout(600)  # up to seven starts of a server
@pytest.mark.parametrize(
    "killed_at",
    [
        pytest.param(tuple(f"{step}.after" for step in STEPS), id="after"),
        pytest.param(
            tuple(f"{step}.{when}" for step in STEPS for when in ("before", "after")),
            id="before-and-after",
            marks=pytest.mark.long,
        ),
    ],
)
def test_slurm_drains_moves_and_returns_whatever_kills_us(
    tmp_path: Path, slurm: SlurmCluster, programs: Path, killed_at: tuple[str, ...]
) -> None:
    """A failed row remap: the node is drained, its job goes on elsewhere, a check brings it back.

    The server is killed at each step and started again; a node that a person drained stays so.
    """
    job, node_id = slurm.submit()
    drained_by_hand = next(one for one in reversed(NODES) if one != node_id)
    slurm.drain(drained_by_hand, "bad dimm, ask Ann")
    settings = slurm_settings(tmp_path / "s", slurm, programs)
    story = _Story(ServerProcess(settings), programs)
    try:
        server = story.start()
        node, by_hand = introduced(server, node_id), introduced(server, drained_by_hand)
        for step in killed_at:
            (programs / f"hold-{step}").write_text("")
        for feeder in (node, by_hand):
            feeder.events(xid_event(REMAP_FAILED, SLOT))
        server = story.kill_at([one for one in killed_at if not one.startswith("resume")])
        wait_for(lambda: slurm.job_node(job) not in ("", node_id), 60, "the job elsewhere")
        wait_for(lambda: standing(server, "slurm", node_id) == "in_place", 60, "drained")
        assert slurm.state(node_id).endswith("+DRAIN")
        assert slurm.reason(node_id).startswith("gpuwarden: dec-")
        wait_for(lambda: standing(server, "slurm", drained_by_hand) == "already_out", 60)
        for feeder in (node, by_hand):
            feeder.close()
            feeder.server, feeder.client = server, server.admin
        repair(server, node)
        repair(server, by_hand)
        server = story.kill_at([one for one in killed_at if one.startswith("resume")])
        wait_for(lambda: slurm.state(node_id) == "IDLE", 60, "back")
        wait_for(lambda: _closed(server, node_id), 60, "no step left open")
        acts = [act for act, phase in done(server, node_id) if phase == "done"]
        assert acts == ["exclude", "move", "release"], done(server, node_id)
        assert slurm.reason(drained_by_hand).startswith("bad dimm, ask Ann")
        assert slurm.state(drained_by_hand).endswith("+DRAIN")
        assert done(server, drained_by_hand) == []
        node.close()
        by_hand.close()
    finally:
        story.end()
        slurm.resume(drained_by_hand)
        slurm.command("scancel", job)
        wait_for(lambda: {slurm.state(one) for one in NODES} == {"IDLE"}, 60, "idle again")


@pytest.mark.long
@pytest.mark.serial
@pytest.mark.timeout(300)
def test_slurm_takes_a_node_on_probation_out_at_its_first_symptom(
    tmp_path: Path, slurm: SlurmCluster, programs: Path
) -> None:
    settings = slurm_settings(tmp_path / "s", slurm, programs, dwell_s=600.0)
    with running_server(settings) as server:
        node = introduced(server, "n2")
        node.events(xid_event(REMAP_FAILED, SLOT))
        wait_for(lambda: slurm.state("n2") == "IDLE+DRAIN", 60, "drained")
        server.admin.post("/v1/gpus/GPU-n2-0/repair", json={"reason": "swap"}).raise_for_status()
        wait_sweeps(server, 5)
        assert slurm.state("n2") == "IDLE+DRAIN", "only a check brings it back"
        node.events(make_event(kind=EventKind.CHECK_PASSED, text="dcgm r3"))
        wait_for(lambda: slurm.state("n2") == "IDLE", 60, "back")
        assert get(server, "/v1/gpus/GPU-n2-0")["state"] == "probation"
        node.events(xid_event(REMAP_FAILED, SLOT))
        wait_for(lambda: slurm.state("n2") == "IDLE+DRAIN", 60, "out again")
        assert get(server, "/v1/gpus/GPU-n2-0")["state"] in ("excluded", "draining")
        repair(server, node)
        wait_for(lambda: slurm.state("n2") == "IDLE", 60, "and back")
        node.close()


def _closed(server: Running, node_id: str) -> bool:
    phases = [phase for _, phase in done(server, node_id)]
    return "begun" not in phases and done(server, node_id)[-1] == ("release", "done")


class _Story:
    """A server that is killed at steps, and started again."""

    def __init__(self, server: ServerProcess, programs: Path) -> None:
        self._server, self._programs = server, programs
        self._running: Running | None = None

    def start(self) -> Running:
        self._running = self._server.start()
        return self._running

    def kill_at(self, steps: list[str]) -> Running:
        """Kill it as it comes to each step, in order; returns the last that was started."""
        for step in steps:
            mark = self._programs / f"at-{step}"
            wait_for(mark.exists, 60, f"it came to {step}")
            self.end()
            if step.endswith("before"):
                (self._programs / "abandon").write_text("")
            (self._programs / f"hold-{step}").unlink()
            wait_until(lambda: not _wrappers(self._programs), "the held call ended", 30)
            (self._programs / "abandon").unlink(missing_ok=True)
            self.start()
        assert self._running is not None
        return self._running

    def end(self) -> None:
        """kill -9."""
        self._server.close()
        if self._running is not None:
            self._running.admin.close()


def _wrappers(programs: Path) -> list[int]:
    """Held calls that still run."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if os.fsencode(programs) in words and int(entry.name) != os.getpid():
                found.append(int(entry.name))
    return found
