"""Reset, reboot and replacement through the signed hooks: asked by people, done once."""

from __future__ import annotations

import base64
import json
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpuwarden_server.actuators.parse import parse_actuators
from gpuwarden_verdict.policy.document import Mode
from tests.builders.feed import get, xid_event
from tests.builders.server import Feeder, Running, running_server
from tests.fakes.answering import answering
from tests.fakes.hook_receiver import HookReceiver
from tests.fakes.waiting import wait_for
from tests.integration.test_actuators import done, introduced, settings_of

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
HOOK = """
[[actuators]]
name = "hook"
kind = "webhook"
url = "{url}/hook"
secret_env = "HOOK_SECRET"
dry_run = {dry_run}
every_s = 0.3
remedies = ["reboot", "replace"]
"""


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> HookReceiver:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    return HookReceiver(SECRET)


@pytest.fixture
def url(receiver: HookReceiver) -> Iterator[str]:
    with answering(receiver.answer) as url:
        yield url


def ask(server: Running, act: str, node: str = "n1", **fields: Any) -> httpx.Response:
    body = {"act": act, "reason": "case 4711", **fields}
    return server.admin.post(f"/v1/nodes/{node}/remedies", json=body)


def code_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, str(answer.json()["code"])


def out(server: Running) -> Feeder:
    """A node with an excluded GPU, which the hook holds out."""
    node = introduced(server, "n1")
    node.events(xid_event(64, "0000:10:00.0"))
    wait_for(lambda: ("exclude", "done") in done(server, "n1"), 60, "held out")
    return node


def test_a_person_asks_and_the_hook_is_asked_once(
    tmp_path: Path, receiver: HookReceiver, url: str
) -> None:
    text = HOOK.format(url=url, dry_run="false")
    with running_server(settings_of(tmp_path / "s", text)) as server:
        other = introduced(server, "n2")
        assert code_of(ask(server, "reboot", "n2")) == (409, "not_excluded")
        node = out(server)
        assert code_of(ask(server, "reset")) == (409, "no_actuator"), "the file does not name it"
        assert code_of(ask(server, "reboot", actuator="none")) == (409, "no_actuator")
        assert ask(server, "burn").status_code == 422
        asked = ask(server, "reboot")
        assert (asked.status_code, asked.json()["phase"]) == (201, "asked")
        wait_for(lambda: ("reboot", "done") in done(server, "n1"), 60, "rebooted")
        (request,) = receiver.remedied
        assert request["gpus"] == ["GPU-n1-0"]
        assert (request["act"], request["node"]) == ("reboot", "n1")
        assert request["reason"].endswith(": case 4711")
        assert get(server, "/v1/gpus/GPU-n1-0/why")["verdict"]["state"] == "in_repair"
        receiver.jobs = ["4712"]
        ask(server, "replace").raise_for_status()
        wait_for(lambda: ("replace", "failed") in done(server, "n1"), 60, "somebody works there")
        failed = get(server, "/v1/actuations", node="n1")["items"][0]
        assert "these still run there: 4712" in failed["detail"]
        receiver.jobs = None
        ask(server, "replace").raise_for_status()
        failures = ("replace", "failed")
        wait_for(lambda: done(server, "n1").count(failures) == 2, 60, "nobody says what runs there")
        receiver.jobs = []
        receiver.refuses = True
        ask(server, "replace").raise_for_status()
        wait_for(lambda: done(server, "n1").count(failures) == 3, 60, "refused")
        receiver.refuses = False
        assert len(receiver.remedied) == 1, "nothing is tried again by itself"
        ask(server, "replace").raise_for_status()
        wait_for(lambda: ("replace", "done") in done(server, "n1"), 60, "replaced")
        audit = [one["action"] for one in get(server, "/v1/audit", limit=200)["items"]]
        assert (audit.count("ask_reboot"), audit.count("actuate_reboot")) == (1, 1)
        assert (audit.count("ask_replace"), audit.count("actuate_replace")) == (4, 1)
        held = [one for one in done(server, "n1") if one[0] in ("exclude", "release")]
        assert held == [("exclude", "done")], "what is held there is as before"
        node.close()
        other.close()


def test_a_dry_run_writes_down_and_observed_nodes_are_left_alone(
    tmp_path: Path, receiver: HookReceiver, url: str
) -> None:
    text = HOOK.format(url=url, dry_run="true")
    with running_server(settings_of(tmp_path / "s", text)) as server:
        node = introduced(server, "n1")
        node.events(xid_event(64, "0000:10:00.0"))
        wait_for(lambda: ("exclude", "dry_run") in done(server, "n1"), 60, "would be out")
        assert ask(server, "reboot").json()["phase"] == "dry_run"
        assert get(server, "/v1/gpus/GPU-n1-0/why")["verdict"]["state"] == "excluded"
        node.close()
    with running_server(settings_of(tmp_path / "o", text, mode=Mode.OBSERVE)) as server:
        node = introduced(server, "n1")
        node.events(xid_event(64, "0000:10:00.0"))
        wait_for(lambda: get(server, "/v1/decisions", entity="GPU-n1-0")["items"])
        assert code_of(ask(server, "reboot")) == (409, "not_excluded")
        node.close()
    assert receiver.remedied == []


def test_a_program_is_asked_too(tmp_path: Path, receiver: HookReceiver, url: str) -> None:
    program, log = tmp_path / "remedy", tmp_path / "asked"
    program.write_text(
        f"#!{sys.executable}\nimport json, sys\nr = json.load(sys.stdin)\n"
        "if r['act'] == 'read':\n"
        "    held = {'hold': 'ours', 'reason': 'gpuwarden: x', 'jobs': []}\n"
        "    print(json.dumps({n: held for n in r['nodes']}))\n"
        f"open({str(log)!r}, 'a').write(json.dumps(r) + '\\n')\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    command = (
        '[[actuators]]\nname = "own"\nkind = "command"\ndry_run = false\nevery_s = 0.3\n'
        f'command = ["{program}"]\nremedies = ["reset", "reboot"]\n'
    )
    text = command + HOOK.format(url=url, dry_run="false")
    with running_server(settings_of(tmp_path / "s", text)) as server:
        node = out(server)
        assert code_of(ask(server, "reboot")) == (409, "several_actuators")
        ask(server, "reset").raise_for_status()
        wait_for(lambda: ("reset", "done") in done(server, "n1"), 60, "reset")
        acts = [json.loads(line)["act"] for line in log.read_text().splitlines()]
        assert acts.count("reset") == 1
        node.close()


def test_only_what_may_be_asked_is_taken_from_the_file() -> None:
    for wrong in ('["burn"]', '"reset"', "true"):
        text = f'[[actuators]]\nname = "a"\nkind = "command"\ncommand = ["x"]\nremedies = {wrong}\n'
        with pytest.raises(ValueError, match="remedies"):
            parse_actuators(text, lambda _: None)
    with pytest.raises(ValueError, match="remedies"):
        parse_actuators(
            '[[actuators]]\nname = "a"\nkind = "slurm"\nremedies = ["reset"]\n', lambda _: None
        )
