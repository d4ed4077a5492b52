"""The systemd units: what they start and set exists, and what the README names is there."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from gpuwarden_agent.config import PREFIX, setting_docs
from gpuwarden_cli.app import run
from gpuwarden_cli.exits import ExitCode
from gpuwarden_server.config import Settings

ROOT = Path(__file__).parents[2]
UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))


def directives(unit: Path) -> dict[str, list[str]]:
    """Values by name; a name may come more than once."""
    found: dict[str, list[str]] = {}
    for line in unit.read_text().splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def test_server_and_agent_have_a_unit_that_the_readme_names() -> None:
    assert [unit.stem for unit in UNITS] == ["gpuwarden-agent", "gpuwarden-server"]
    readme = (ROOT / "README.md").read_text()
    for unit in UNITS:
        assert f"deploy/systemd/{unit.name}" in readme


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_starts_a_command_of_ours_with_settings_that_exist(unit: Path) -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    found = directives(unit)
    (start,) = found["ExecStart"]
    assert Path(start.split()[0]).name in scripts
    known = {f"GPUWARDEN_{name.upper()}" for name in Settings.model_fields}
    known |= {f"{PREFIX}{doc.name.upper()}" for doc in setting_docs()}
    given = dict(word.split("=", 1) for line in found["Environment"] for word in line.split())
    assert set(given) <= known
    (folder,) = found["StateDirectory"]
    assert f"/var/lib/{folder}" in given.values(), "it writes where the unit lets it"


def test_a_server_that_cannot_start_is_not_started_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (unit,) = [unit for unit in UNITS if unit.stem == "gpuwarden-server"]
    (codes,) = directives(unit)["RestartPreventExitStatus"]
    monkeypatch.setenv("GPUWARDEN_STATE_FOLDER", str(tmp_path / "state"))
    monkeypatch.setenv("GPUWARDEN_POLICY_FILE", str(tmp_path / "none.toml"))
    assert run(["server"]) == ExitCode.USAGE == int(codes)
    assert "none.toml" in "".join(capsys.readouterr())
