"""`gpuwarden-run` as a process, against a real HTTP server: starts, refuses, ends, filters."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from gpuwarden_runtime.cache import SetCache
from gpuwarden_runtime.exits import ExitCode
from gpuwarden_runtime.records import Exclusion
from gpuwarden_wire.acknowledgement import Usable
from tests.fakes.api_server import FakeApi, serve
from tests.fakes.waiting import wait_for

GPU = Exclusion(
    entity_kind="gpu",
    entity="GPU-11111111",
    node_id="n1",
    gpu_uuid="GPU-11111111",
    gpu_index=3,
    since=1_700_000_000.0,
    reason="XID 79: fell off the bus",
    decision_id="dec-abc",
    decided_by="rule",
)
NOBODY = "http://127.0.0.1:9"  # discard: nothing listens there


@dataclass
class Launcher:
    """Starts gpuwarden-run for node n1."""

    folder: Path
    url: str

    @property
    def environ(self) -> dict[str, str]:
        return {
            **os.environ,
            "GPUWARDEN_URL": self.url,
            "GPUWARDEN_VERDICT_FILE": str(self.folder / "verdict.json"),
            "GPUWARDEN_CACHE_FOLDER": str(self.folder / "cache"),
        }

    def start(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "gpuwarden_runtime.launcher", "--node", "n1", *words]
        return subprocess.Popen(
            command,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str) -> tuple[int, str, str]:
        with self.start(*words) as process:
            out, err = process.communicate(timeout=100)
        return process.returncode, out, err

    def save_cache(self, api: FakeApi, at: float) -> None:
        SetCache(self.folder / "cache", self.url).save(api.current(), at)

    def write_verdict(self, api: FakeApi, written_at: float, node: str = "n1") -> None:
        content = json.loads(msgspec.json.encode(api.verdict(node)))
        content["written_at"] = written_at
        (self.folder / "verdict.json").write_text(json.dumps(content))


@pytest.fixture
def api() -> FakeApi:
    api = FakeApi()
    api.known_nodes.add("n1")
    return api


@pytest.fixture
def launcher(api: FakeApi, tmp_path: Path) -> Iterator[Launcher]:
    with serve(api) as url:
        yield Launcher(tmp_path, url)


@pytest.fixture
def alone(tmp_path: Path) -> Launcher:
    return Launcher(tmp_path, NOBODY)


def shell(text: str) -> tuple[str, ...]:
    return ("--", "sh", "-c", text)


def end_of(process: subprocess.Popen[str]) -> tuple[int, str]:
    with process:
        _, err = process.communicate(timeout=100)
    return process.returncode, err


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_command_keeps_its_output_and_exit_code(launcher: Launcher) -> None:
    assert launcher.run(*shell("echo out; echo err >&2; exit 7")) == (7, "out\n", "err\n")


def test_command_killed_by_a_signal_ends_as_in_a_shell(launcher: Launcher) -> None:
    assert launcher.run(*shell("kill -KILL $$"))[0] == 128 + signal.SIGKILL


def test_command_that_is_none(launcher: Launcher, tmp_path: Path) -> None:
    code, _, err = launcher.run("--", "no-such-command-here")
    assert (code, "no-such-command-here" in err) == (ExitCode.NOT_FOUND, True)
    (tmp_path / "plain").write_text("")
    assert launcher.run("--", str(tmp_path / "plain"))[0] == ExitCode.NOT_EXECUTABLE


def test_wrong_usage(launcher: Launcher) -> None:
    code, _, err = launcher.run("--gpus", "x", "--", "true")
    assert (code, "'x'" in err) == (ExitCode.USAGE, True)


def test_key_that_no_header_can_carry_is_a_wrong_setting_not_a_traceback(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUWARDEN_KEY", "gw_…")
    code, out, err = launcher.run(*shell("echo started"))
    assert (code, out) == (ExitCode.USAGE, "")
    assert err.startswith("gpuwarden-run: GPUWARDEN_KEY: character 4 of the key is … (U+2026)")
    assert err.count("\n") == 1


def test_excluded_place_is_refused_with_all_that_is_known(api: FakeApi, launcher: Launcher) -> None:
    api.exclude(GPU)
    code, out, err = launcher.run(*shell("echo started"))
    assert (code, out) == (ExitCode.REFUSED, "")
    for part in ("GPU-11111111", "2023-11-14", "rule", "XID 79", "decisions revoke dec-abc"):
        assert part in err


def test_other_gpus_of_the_node_do_not_matter_where_gpus_are_named(
    api: FakeApi, launcher: Launcher
) -> None:
    api.exclude(GPU)
    assert launcher.run("--gpus", "3", *shell("exit 0"))[0] == ExitCode.REFUSED
    code, _, err = launcher.run("--gpus", "0,1", *shell("exit 0"))
    assert (code, "other GPUs" in err) == (0, True)


def test_gpus_that_the_node_has_not_are_refused_with_what_it_has(
    api: FakeApi, launcher: Launcher
) -> None:
    for _ in ("all well", "another GPU is excluded"):
        code, out, err = launcher.run("--gpus", "0,99", *shell("echo started"))
        assert (code, out) == (ExitCode.USAGE, "")
        assert "--gpus 99: node n1 has no such GPU" in err and "7 (GPU-00000007)" in err
        api.exclude(GPU)
    api.known_nodes.clear()
    api.lift(GPU.key)
    assert launcher.run("--gpus", "99", *shell("exit 3"))[0] == 3  # nothing is known


def test_a_host_is_the_node_whatever_capitals_and_domain_its_name_has(
    api: FakeApi, launcher: Launcher
) -> None:
    api.exclude(GPU)
    code, _, err = launcher.run("--node", "N1.cluster", *shell("exit 0"))
    assert (code, "XID 79" in err) == (ExitCode.REFUSED, True)


def test_command_is_ended_when_its_place_becomes_excluded(api: FakeApi, launcher: Launcher) -> None:
    process = launcher.start("--grace", "20", "--", "sleep", "600")
    _wait_for_stream(api)
    began = time.monotonic()
    api.exclude(GPU)
    code, err = end_of(process)
    assert code == ExitCode.ENDED
    assert time.monotonic() - began < 15.0
    assert "XID 79" in err
    assert "dec-abc" in err


def test_whole_group_is_ended_and_gets_its_grace(api: FakeApi, launcher: Launcher) -> None:
    script = "trap 'sleep 0.3; echo saved; exit 0' TERM; sleep 600 & echo $!; wait"
    process = launcher.start("--grace", "20", *shell(script))
    child = int(first_line(process))
    _wait_for_stream(api)
    api.exclude(GPU)
    assert first_line(process) == "saved"
    assert end_of(process)[0] == ExitCode.ENDED
    assert not _runs(child)


def test_command_that_ignores_the_request_is_killed(api: FakeApi, launcher: Launcher) -> None:
    process = launcher.start("--grace", "0.3", *shell("trap '' TERM; echo up; sleep 600"))
    assert first_line(process) == "up"
    _wait_for_stream(api)
    api.exclude(GPU)
    code, err = end_of(process)
    assert (code, "was killed" in err) == (ExitCode.ENDED, True)


def test_exclusion_of_others_leaves_the_command_alone(api: FakeApi, launcher: Launcher) -> None:
    process = launcher.start("--gpus", "0", *shell("echo up; sleep 1; exit 5"))
    _wait_for_stream(api)
    api.exclude(GPU)
    api.exclude(Exclusion(entity_kind="node", entity="n2", node_id="n2"))
    assert end_of(process)[0] == 5


def test_signals_reach_the_command(launcher: Launcher) -> None:
    script = "trap 'echo usr1' USR1; trap 'exit 9' TERM; echo up; while :; do sleep 0.05; done"
    process = launcher.start(*shell(script))
    assert first_line(process) == "up"
    process.send_signal(signal.SIGUSR1)
    assert first_line(process) == "usr1"
    process.send_signal(signal.SIGTERM)
    assert end_of(process)[0] == 9


def test_server_that_goes_away_does_not_end_the_command(api: FakeApi, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    with serve(api) as url:
        script = f"until [ -e {seen} ]; do sleep 0.05; done; exit 4"
        process = Launcher(tmp_path, url).start(*shell(script))
        _wait_for_stream(api)
    assert process.stderr is not None
    while "exclusion feed lost" not in (line := process.stderr.readline()):
        assert line, "it ended without a word"
    seen.touch()
    assert end_of(process)[0] == 4


def test_nobody_answers(alone: Launcher) -> None:
    code, _, err = alone.run(*shell("exit 3"))
    assert (code, "starting all the same" in err) == (3, True)
    code, _, err = alone.run("--strict", *shell("exit 3"))
    assert (code, "--strict" in err) == (ExitCode.UNANSWERED, True)


def test_cached_set_answers_for_a_day(api: FakeApi, alone: Launcher) -> None:
    api.exclude(GPU)
    alone.save_cache(api, time.time() - 23 * 3600)
    code, _, err = alone.run("--strict", *shell("exit 0"))
    assert (code, "cached set of" in err) == (ExitCode.REFUSED, True)
    assert alone.run("--strict", "--gpus", "0", *shell("exit 3"))[0] == 3
    alone.save_cache(api, time.time() - 25 * 3600)
    assert alone.run(*shell("exit 3"))[0] == 3


def test_server_s_no_to_our_key_is_no_exclusion(api: FakeApi, launcher: Launcher) -> None:
    api.key = "gw_other"
    code, _, err = launcher.run(*shell("exit 3"))
    assert (code, "GPUWARDEN_KEY" in err) == (3, True)


def test_running_launcher_fills_the_cache(api: FakeApi, launcher: Launcher) -> None:
    api.exclude(Exclusion(entity_kind="node", entity="n2", node_id="n2"))
    assert launcher.run(*shell("sleep 0.5"))[0] == 0
    saved = SetCache(launcher.folder / "cache", launcher.url).path.read_bytes()
    assert b'"n2"' in saved


def test_fresh_verdict_file_is_enough(api: FakeApi, alone: Launcher) -> None:
    alone.write_verdict(api, time.time())
    assert alone.run("--strict", *shell("exit 3"))[0] == 3
    api.exclude(GPU)
    alone.write_verdict(api, time.time())
    code, _, err = alone.run(*shell("exit 3"))
    assert (code, "verdict file" in err) == (ExitCode.REFUSED, True)


def test_stale_or_foreign_verdict_file_is_not_used(api: FakeApi, alone: Launcher) -> None:
    alone.write_verdict(api, time.time() - 3600)
    assert alone.run("--strict", *shell("exit 3"))[0] == ExitCode.UNANSWERED
    alone.write_verdict(api, time.time(), node="n2")
    assert alone.run("--strict", *shell("exit 3"))[0] == ExitCode.UNANSWERED
    (alone.folder / "verdict.json").write_text("{")
    assert alone.run("--strict", *shell("exit 3"))[0] == ExitCode.UNANSWERED


def test_server_may_have_taken_back_what_the_file_says(api: FakeApi, launcher: Launcher) -> None:
    api.exclude(GPU)
    launcher.write_verdict(api, time.time())
    api.lift(GPU.key)
    assert launcher.run(*shell("exit 3"))[0] == 3


def test_host_list_is_filtered_before_the_command(api: FakeApi, launcher: Launcher) -> None:
    api.exclude(Exclusion(entity_kind="node", entity="n2", node_id="n2", reason="hot"))
    source, target = launcher.folder / "in", launcher.folder / "out"
    source.write_text("n1 slots=8\nn2 slots=8\n# end\n")
    lists = ("--hosts-in", str(source), "--hosts-out", str(target))
    code, out, err = launcher.run(*lists, "--", "cat", str(target))
    assert (code, out) == (0, "n1 slots=8\n# end\n")
    assert "hot" in err
    assert launcher.run(*lists)[0] == 0  # without a command it only filters
    assert launcher.run(*lists, "--min-hosts", "2")[0] == ExitCode.REFUSED


def test_host_list_without_an_answer(alone: Launcher) -> None:
    source, target = alone.folder / "in", alone.folder / "out"
    source.write_text("n1\nn2\n")
    lists = ("--hosts-in", str(source), "--hosts-out", str(target))
    assert alone.run("--strict", *lists)[0] == ExitCode.UNANSWERED
    assert not target.exists()
    assert alone.run(*lists)[0] == 0
    assert target.read_text() == "n1\nn2\n"
    source.write_text("n1\n\nn[1-\n")
    code, _, err = alone.run(*lists)
    assert code == ExitCode.NO_INPUT
    assert f"{source}: line 3: 'n[1-'" in err and "leaf[0-3,7]" in err
    source.write_bytes(b"n1\n\xff\n")
    code, _, err = alone.run(*lists)
    assert (code, "line 2 is no UTF-8 text" in err) == (ExitCode.NO_INPUT, True)
    missing = ("--hosts-in", str(alone.folder / "none"), "--hosts-out", str(target))
    assert alone.run(*missing)[0] == ExitCode.NO_INPUT


def test_usable_is_unknown_for_a_node_never_seen(api: FakeApi, launcher: Launcher) -> None:
    api.known_nodes.clear()
    assert api.verdict("n1").node.usable is Usable.UNKNOWN
    code, _, err = launcher.run("--strict", *shell("exit 3"))
    assert (code, "nothing is known about node n1" in err) == (3, True)


def _wait_for_stream(api: FakeApi) -> None:
    wait_for(lambda: api.streams, what="the launcher's stream")


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
