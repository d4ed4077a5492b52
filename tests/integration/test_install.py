"""What is installed: the unit by systemd's own tools, the image's pins, and the page about them."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import socket
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.builders.agent import agent_settings
from tests.fakes.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "deploy" / "systemd" / "gpuwarden-agent.service"
IMAGE = ROOT / "deploy" / "images" / "agent.Dockerfile"
PAGE = ROOT / "docs" / "install.md"


def directives() -> dict[str, list[str]]:
    """Values of the unit's [Service] section by directive."""
    section = UNIT.read_text().partition("[Service]\n")[2].partition("\n[Install]")[0]
    found: dict[str, list[str]] = {}
    for line in section.splitlines():
        name, separator, value = line.partition("=")
        if separator and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with a program that is there on this machine."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    path = tmp_path / UNIT.name
    path.write_text(UNIT.read_text().replace("/opt/gpuwarden/bin/gpuwarden-agent", "/bin/true"))
    return path


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *arguments], capture_output=True, text=True, check=False, timeout=60
    )


def test_systemd_takes_the_unit_without_a_complaint(unit: Path) -> None:
    done = analyze("verify", "--man=no", str(unit))
    ours = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert (done.returncode, ours) == (0, [])


def test_its_exposure_stays_low(unit: Path) -> None:
    done = analyze("security", "--offline=true", "--threshold=30", "--no-pager", str(unit))
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze cannot judge a file (before version 250)")
    assert done.returncode == 0, done.stdout[-300:] + done.stderr


def test_it_has_what_was_promised() -> None:
    found = directives()
    assert found["Type"] == ["notify"]
    assert found["CapabilityBoundingSet"] == found["AmbientCapabilities"] == ["CAP_SYSLOG"]
    assert found["NoNewPrivileges"] == ["yes"]
    assert found["ProtectSystem"] == ["strict"]
    assert found["DevicePolicy"] == ["closed"]
    assert "/dev/kmsg r" in found["DeviceAllow"]
    assert int(found["WatchdogSec"][0]) > 0
    assert found["MemoryMax"] == ["256M"]
    assert found["KillMode"] == ["process"]  # the NVML child gets no signal inside a call
    assert found["RuntimeDirectoryPreserve"] == ["yes"]  # an order outlasts a restart
    assert found["User"] == ["gpuwarden-agent"]
    assert "u gpuwarden-agent " in UNIT.with_suffix(".sysusers").read_text()


UNEXPLAINED = {
    *("ExecStart", "EnvironmentFile", "Environment", "Restart", "RestartSec", "TimeoutStopSec"),
    *("Group", "StateDirectoryMode", "RuntimeDirectoryMode"),
}


def test_the_page_explains_each_permission() -> None:
    text = PAGE.read_text()
    named = set(re.findall(r"`?([A-Z][A-Za-z]+)=", text))
    assert sorted(set(directives()) - UNEXPLAINED - named) == []


@pytest.mark.serial
def test_the_agent_tells_systemd_that_it_is_ready_alive_and_ending(tmp_path: Path) -> None:
    (tmp_path / "kern.log").touch()
    settings = agent_settings(tmp_path)
    names = ("kmsg_path", "spool_folder", "verdict_file", "server_url", "key")
    flags = [f"--{name.replace('_', '-')}={getattr(settings, name)}" for name in names]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(30)
        environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "900000"}
        process = subprocess.Popen(
            [sys.executable, "-m", "gpuwarden_agent.cli", "run", "--nvml=off", *flags],
            env=os.environ | environment,
            stderr=subprocess.DEVNULL,
        )
        try:
            words = [manager.recv(4096) for _ in range(4)]
            assert words == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1", b"WATCHDOG=1"]
            process.terminate()
            assert wait_for(lambda: manager.recv(4096) == b"STOPPING=1")
            assert process.wait(15) == 0
        finally:
            process.kill()
            process.wait()


# the image


def test_the_image_installs_just_what_the_agent_needs() -> None:
    made = runpy.run_path(str(ROOT / "deploy" / "agent_requirements.py"))["agent_requirements"]
    pins = made((ROOT / "pyproject.toml").read_text(), (ROOT / "requirements.lock").read_text())
    names = re.findall(r"^([A-Za-z0-9._-]+)==", pins, re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert names == [Requirement(one).name for one in project["dependencies"]]
    assert pins.count("--hash=sha256:") >= len(names)
    # The filter takes no further step: what these need in turn would have to be there too.
    further = {
        requirement.name
        for name in names
        for requirement in map(Requirement, metadata.requires(name) or ())
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    }
    assert further == set()


def test_the_image_copies_and_runs_what_there_is() -> None:
    text = IMAGE.read_text()
    for path in ("deploy/agent_requirements.py", "pyproject.toml", "requirements.lock"):
        assert path in text
        assert (ROOT / path).exists()
    assert "USER gpuwarden-agent" in text
    assert 'ENTRYPOINT ["gpuwarden-agent"]' in text
    assert "agent.Dockerfile" in PAGE.read_text()
