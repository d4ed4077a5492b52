"""`gpuwarden evaluate --quick`: a whole evaluation in small, stopped and gone on with."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from gpuwarden_cli.app import build_app, run

QUICK = ["evaluate", "--quick", "--seed", "3"]


@pytest.mark.timeout(600)
def test_a_quick_evaluation_can_be_stopped_and_gives_the_same_report_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("GPUWARDEN_PUBLIC_DATA", raising=False)
    state = ["--state", str(tmp_path / "state")]
    stopped = CliRunner().invoke(
        build_app(), [*QUICK, *state, "--out", str(tmp_path / "a"), "--minutes", "0.001"]
    )
    assert stopped.exit_code == 0, stopped.output
    assert "steps are left" in stopped.output
    assert not (tmp_path / "a" / "report.md").exists()
    for out in ("a", "b"):
        done = CliRunner().invoke(build_app(), [*QUICK, *state, "--out", str(tmp_path / out)])
        assert done.exit_code == 0, done.output
    page = (tmp_path / "a" / "report.md").read_text(encoding="utf-8")
    assert page == (tmp_path / "b" / "report.md").read_text(encoding="utf-8")
    assert "--quick --seed 3" in page
    assert "simulated" in page and "too few faults" in page
    figures = msgspec.json.decode((tmp_path / "a" / "report.json").read_bytes())
    contests = [one for one in figures["scores"]["contests"] if one["budget"] == 0.03]
    assert [one["set"] for one in contests] == ["other seeds", "second generator"]
    for contest in contests:
        oracle = contest["entrants"]["oracle (knows the faults)"]
        assert oracle["incidents"] > 0
        assert (oracle["recall"], oracle["false"]) == (1.0, 0)
    assert not list((tmp_path / "state" / "recordings").iterdir())
    assert run([*QUICK[:2], "--seed", "4", *state, "--out", str(tmp_path / "c")]) == 2
    assert "other arguments" in capsys.readouterr().err
