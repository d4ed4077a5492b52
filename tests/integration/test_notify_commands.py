"""Endpoints and silences by API and command; what is audited, what is hidden."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpuwarden_cli.app import run
from gpuwarden_cli.exits import ExitCode
from gpuwarden_server.app import create_app
from gpuwarden_server.core.errors import StartError
from tests.builders.feed import get, quick_settings, xid_event
from tests.builders.server import Feeder, Running, ServerProcess, make_gpu, running_server
from tests.builders.stores import query
from tests.fakes.answering import Posted, Reply, answering
from tests.fakes.waiting import wait_for

TOKEN = "in-the-path-a-token"
SECRET = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
FILE = """
[[endpoints]]
name = "hook"
kind = "webhook"
url = "{url}/{token}"
secret = "{secret}"

[[endpoints]]
name = "watch"
kind = "heartbeat"
url = "{url}/beat"
repeat_s = 1
"""


class Told:
    """What a receiver took, and what it answers."""

    def __init__(self) -> None:
        self.code = 204
        self.ids: list[str] = []
        self.beats = 0

    def __call__(self, posted: Posted) -> Reply:
        if posted.path == "/beat":
            self.beats += 1
            return Reply(204)
        if self.code == 204:
            self.ids.append(posted.headers["webhook-id"])
        return Reply(self.code)


@pytest.fixture
def told() -> Iterator[tuple[Told, str]]:
    made = Told()
    with answering(made) as url:
        yield made, url


def written(folder: Path, url: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "notify.toml"
    file.write_text(FILE.format(url=url, token=TOKEN, secret=SECRET))
    return file


@dataclass(frozen=True)
class Command:
    """The command against one server."""

    server: Running
    key_file: Path
    capture: pytest.CaptureFixture[str]

    def __call__(self, *words: str) -> tuple[int, str]:
        code = run(["--url", self.server.url, "--key-file", str(self.key_file), *words])
        captured = self.capture.readouterr()
        return code, captured.out + captured.err


def test_people_look_test_silence_and_replay(
    tmp_path: Path, told: tuple[Told, str], capsys: pytest.CaptureFixture[str]
) -> None:
    receiver, url = told
    settings = quick_settings(tmp_path, notify_file=written(tmp_path, url), webhook_retry_s=0.001)
    with running_server(settings) as server:
        key_file = tmp_path / "key"
        key_file.write_text(server.mint("operator"))
        key_file.chmod(0o600)
        command = Command(server, key_file, capsys)
        _test_button(command, receiver)
        _silence(command, receiver, server)
        _replay(command, receiver, server)
        wait_for(lambda: receiver.beats, what="a heartbeat while sweeps run")
        shown = server.admin.get("/v1/notifications/endpoints").text
        shown += server.admin.get("/v1/audit").text + server.admin.get("/metrics").text
        assert TOKEN not in shown
        assert SECRET not in shown
    actions = {row[0] for row in query(tmp_path / "state", "SELECT action FROM audit")}
    wanted = {"test_endpoint", "create_silence", "expire_silence", "replay_messages"}
    assert wanted | {"enable_endpoint"} <= actions


def _test_button(command: Command, receiver: Told) -> None:
    code, shown = command("notify", "test", "hook")
    assert (code, "taken" in shown) == (ExitCode.DONE, True)
    receiver.code = 500
    code, shown = command("notify", "test", "hook")
    assert (code, "HTTP 500" in shown) == (ExitCode.NEGATIVE, True)
    receiver.code = 204
    code, shown = command("notify", "test", "nobody")
    assert (code, "no notification endpoint" in shown) == (ExitCode.REFUSED, True)


def _silence(command: Command, receiver: Told, server: Running) -> None:
    code, shown = command(
        *("silence", "create", "node=told", "--for", "1h", "--reason", "new switches")
    )
    assert code == ExitCode.DONE
    silence_id = shown.split()[0]
    node = Feeder(server, server.mint("agent", "told"), "told")
    node.introduce([make_gpu(0, "told")])
    node.events(xid_event(79, "0000:10:00.0"))
    figure = "gpuwarden_notify_held_back_total"
    wait_for(lambda: server.figure(figure, why="silenced"), what="it is silenced")
    assert not [one for one in receiver.ids if "incident" in one]
    assert silence_id in command("silence", "list")[1]
    assert command("silence", "expire", silence_id, "--reason", "done")[0] == ExitCode.DONE
    wait_for(
        lambda: [one for one in receiver.ids if "incident_opened" in one],
        what="what outlasts its silence is told",
    )
    assert command("silence", "expire", silence_id, "--reason", "x")[0] == ExitCode.REFUSED
    assert "no silence" in command("silence", "list")[1]
    assert silence_id in command("silence", "list", "--all")[1]
    node.close()


def _replay(command: Command, receiver: Told, server: Running) -> None:
    receiver.code = 410
    node = Feeder(server, server.mint("agent", "gone"), "gone")
    node.introduce([make_gpu(0, "gone")])
    node.events(xid_event(79, "0000:10:00.0"))
    wait_for(lambda: "disabled" in server.admin.get("/readyz").text, what="it is shown as disabled")
    node.close()
    receiver.code = 204
    before = len(receiver.ids)
    assert "410" in command("notify", "endpoints")[1]
    assert command("notify", "enable", "hook", "--reason", "it is back")[0] == ExitCode.DONE
    wait_for(lambda: len(receiver.ids) > before, what="what waited is told")
    code, shown = command("notify", "replay", "hook", "--reason", "all of it")
    assert (code, "0 messages" in shown) == (ExitCode.DONE, True)
    assert "410" in command("notify", "log", "--name", "hook")[1]
    code, shown = command("notify", "given-up", "--json")
    assert (code, json.loads(shown)) == (ExitCode.DONE, [])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["silence", "create", "node=a", "--for", "soon", "--reason", "x"], "write 90s, 30m"),
        (
            ["silence", "create", "node=a", "--for", "1h", "--reason", "x", "--from", "2030-01-01"],
            "has no zone",
        ),
        (["notify", "check", "/no/such/file"], "cannot read"),
    ],
)
def test_wrong_input_is_named_before_the_server_is_asked(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--url", "http://127.0.0.1:9", *words]) in (ExitCode.USAGE, ExitCode.LOCAL)
    assert says in capsys.readouterr().err


def test_a_file_is_checked_without_a_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, "https://x.example")
    assert run(["notify", "check", str(file)]) == ExitCode.DONE
    assert "webhook" in capsys.readouterr().out
    file.write_text(file.read_text().replace("heartbeat", "pager"))
    assert run(["notify", "check", str(file)]) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert "endpoints[1].kind: 'pager'" in said
    assert "mend: write one of webhook" in said


def test_a_matcher_that_is_none_and_a_reader_are_refused(tmp_path: Path) -> None:
    with running_server(quick_settings(tmp_path)) as server:
        body: dict[str, Any] = {"matchers": ["rack"], "duration_s": 60, "reason": "x"}
        answer = server.admin.post("/v1/silences", json=body)
        assert (answer.status_code, "body.matchers.0" in answer.text) == (422, True)
        with server.client(server.mint("reader")) as reader:
            assert reader.post("/v1/silences", json=body).status_code == 403
            assert reader.get("/v1/silences").json() == {"items": []}
            assert reader.get("/v1/notifications/messages").json()["items"] == []


def test_apprise_that_is_missing_is_named_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "notify.toml"
    file.write_text('[[endpoints]]\nname = "m"\nkind = "apprise"\ntarget = "mailto://x"\n')
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(StartError, match=r"pip install 'gpuwarden\[notify\]'"):
        create_app(quick_settings(tmp_path, notify_file=file))


@pytest.mark.serial
def test_a_killed_server_tells_everything_and_twice_only_by_the_same_id(
    tmp_path: Path, told: tuple[Told, str]
) -> None:
    receiver, url = told
    receiver.code = 503
    settings = quick_settings(tmp_path, notify_file=written(tmp_path, url), webhook_retry_s=0.05)
    process = ServerProcess(settings)
    try:
        with process.start().admin as admin:
            server = Running(process.url, admin)
            for name in ("a", "b", "c"):
                node = Feeder(server, server.mint("agent", name), name)
                node.introduce([make_gpu(0, name)])
                node.events(xid_event(79, "0000:10:00.0"))
                node.close()
        process.kill()
        receiver.code = 204
        with running_server(settings) as server:
            wait_for(lambda: _opened(receiver) == 3, what="three incidents told")
            found = get(server, "/v1/incidents")["items"]
        told_of = {one.removeprefix("msg_incident_opened_") for one in receiver.ids}
        assert told_of >= {one["id"] for one in found}
    finally:
        process.close()


def _opened(receiver: Told) -> int:
    return len({one for one in receiver.ids if "incident_opened" in one})
