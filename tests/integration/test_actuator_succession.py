"""Two servers on one PostgreSQL, the leader killed in the middle of a step outside."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.builders.feed import exclusions_of, get, xid_event
from tests.builders.pair import leading, server_pair
from tests.builders.server import Feeder, Running, make_event, make_gpu
from tests.fakes.waiting import wait_for

pytestmark = [pytest.mark.serial, pytest.mark.timeout(300)]
REMAP_FAILED = 64
SLOT = "0000:10:00.0"

# Counts what it changes. `hold-ACT.before` keeps a call from taking effect until it is gone,
# `hold-ACT.after` keeps its answer back.
HOOK = """#!{python}
import fcntl, json, os, sys, time
from pathlib import Path
here = Path({folder!r})
request = json.loads(sys.stdin.buffer.read())
act, node = request["act"], request.get("node")

def wait_at(when):
    hold = here / f"hold-{{act}}.{{when}}"
    if act != "read" and hold.exists():
        (here / f"at-{{act}}.{{when}}").open("a").write(f"{{os.getpid()}}\\n")
        while hold.exists():
            time.sleep(0.02)

wait_at("before")
with (here / "lock").open("a") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    state = here / "state.json"
    held = json.loads(state.read_text()) if state.exists() else {{}}
    before = dict(held)
    if act == "read":
        answer = {{
            name: {{"hold": "ours" if name in held else "free", "reason": held.get(name, "")}}
            for name in {{*request["nodes"], *held}}
        }}
        print(json.dumps(answer))
    elif act == "exclude":
        held[node] = request["reason"]
    elif act == "release":
        held.pop(node, None)
    if held.keys() != before.keys():
        (here / "effects").open("a").write(f"{{act}} {{node}}\\n")
    fresh = here / "state.new"
    fresh.write_text(json.dumps(held))
    fresh.replace(state)
wait_at("after")
"""


def _is_gone(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return words.rpartition(")")[2].split()[0] == "Z"


@pytest.mark.parametrize("when", ["before", pytest.param("after", marks=pytest.mark.long)])
def test_a_step_takes_effect_once_whoever_is_killed_in_it(tmp_path: Path, when: str) -> None:
    """The call outlives the leader that made it: held before, or after, it takes effect."""
    folder = tmp_path / "consumer"
    folder.mkdir()
    hook = folder / "hook"
    hook.write_text(HOOK.format(python=sys.executable, folder=str(folder)))
    hook.chmod(0o755)
    file = tmp_path / "actuators.toml"
    file.write_text(
        f'[[actuators]]\nname = "hook"\nkind = "command"\ncommand = ["{hook}"]\n'
        "dry_run = false\nevery_s = 0.3\ntimeout_s = 3\n"
    )
    (folder / f"hold-exclude.{when}").write_text("")
    with server_pair(tmp_path, actuators_file=file) as pair:
        leader = leading(pair.start(0))
        other = pair.start(1)
        key = leader.mint("agent", "n1")
        node = Feeder(leader, key, "n1")
        node.introduce([make_gpu(0, "n1")])
        node.events(xid_event(REMAP_FAILED, SLOT))
        mark = folder / f"at-exclude.{when}"
        wait_for(lambda: mark.exists() and mark.read_text(), 60, "the call is under way")
        (call,) = map(int, mark.read_text().split())
        pair.processes[0].kill()
        node.close()
        leading(other)
        wait_for(lambda: _is_gone(call), 60, "no call outlives its time limit")
        assert mark.read_text().split() == [str(call)], "what may still act is waited for"
        (folder / f"hold-exclude.{when}").unlink()
        wait_for(lambda: _done(other) == ["exclude"], 60, "the new leader knows it done")
        assert _effects(folder) == ["exclude n1"]
        _repair(other, key, node)
        wait_for(lambda: _done(other) == ["exclude", "release"], 60, "released")
        assert _effects(folder) == ["exclude n1", "release n1"]
        assert json.loads((folder / "state.json").read_text()) == {}
        assert exclusions_of(other)["count"] == 0
        audit = pair.rows(
            "SELECT action, count(*) FROM audit WHERE action LIKE 'actuate%' OR action LIKE"
            " '%exclu%' GROUP BY action ORDER BY action"
        )
        assert dict(audit) == {
            "actuate_exclude": 1,
            "actuate_release": 1,
            "end_exclusion": 1,
            "exclude": 1,
        }


def _repair(server: Running, key: str, former: Feeder) -> None:
    """What a person and then the node's check say."""
    again = Feeder(server, key, "n1", spool_id=former.spool_id, seqs=dict(former.seqs))
    gpu = "GPU-n1-0"
    server.admin.post(f"/v1/gpus/{gpu}/repair", json={"reason": "swapped"}).raise_for_status()
    again.events(make_event(kind="check_passed", text="dcgm r3"))
    again.close()


def _effects(folder: Path) -> list[str]:
    return (folder / "effects").read_text().splitlines()


def _done(server: Running) -> list[str]:
    items = get(server, "/v1/actuations", node="n1")["items"]
    return [one["act"] for one in reversed(items) if one["phase"] == "done"]
