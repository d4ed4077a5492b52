from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from gpuwarden_cli.demo.pace import BRISK
from gpuwarden_cli.demo.screen import PlainScreen, drawn
from gpuwarden_cli.demo.sight import Sight
from gpuwarden_cli.demo.story import story
from gpuwarden_cli.demo.telling import Outcome, Progress, Told
from gpuwarden_runtime.records import Exclusion, GpuLine, IncidentRecord, NodeRecord

PAGE = "http://127.0.0.1:8750/#key=gw_x"
GPU = "GPU-1"


def sight() -> Sight:
    gpus = tuple(
        GpuLine(gpu_uuid=f"GPU-{index}", index=index, state="excluded" if index == 1 else "healthy")
        for index in range(8)
    )
    incident = IncidentRecord(
        id="inc-1",
        entity_kind="gpu",
        entity=GPU,
        node_id="gpu-0001",
        fault_class="bus",
        severity="critical",
        why="XID 79 [off the bus]",
        opened_at=0.0,
    )
    return Sight(
        nodes={
            "gpu-0001": NodeRecord(node_id="gpu-0001", state="healthy", gpus=gpus),
            "host-1": NodeRecord(node_id="host-1", silent=True),
        },
        incidents=(incident,),
        decisions=(),
        exclusions=(Exclusion(entity_kind="gpu", entity=GPU, node_id="gpu-0001"),),
        epoch=7,
    )


def progress(outcome: Outcome, seen: str = "") -> Progress:
    steps = story(BRISK)
    told = (Told(steps[0], outcome, seen, 1.5), *(Told(step) for step in steps[1:]))
    return Progress(told, sight(), ("node x is excluded",), 12.0)


def text_of(shown: Progress, sentence: str = "") -> str:
    console = Console(file=StringIO(), width=150, height=45)
    console.print(drawn(shown, PAGE, sentence))
    out = console.file
    assert isinstance(out, StringIO)
    return out.getvalue()


def test_screen_shows_fleet_story_incidents_and_page() -> None:
    text = text_of(progress(Outcome.AS_TOLD, "17 nodes"))
    for part in (
        *(PAGE, "epoch 7", "gpu-0001 · X · · · · · ·", "host-1", "no GPU"),
        *("✓ Quiet", "17 nodes", "must not be: node x is excluded"),
        *("critical", "bus", "open", "XID 79 [off the bus]"),
    ):
        assert part in text


def test_screen_before_the_first_look() -> None:
    assert "no incident" in text_of(Progress(tuple(Told(step) for step in story(BRISK))))


def test_last_line_is_the_sentence() -> None:
    assert text_of(progress(Outcome.RUNNING), "Ctrl-C ends").rstrip().endswith("Ctrl-C ends")


def test_plain_lines_come_once(capsys: pytest.CaptureFixture[str]) -> None:
    with PlainScreen(PAGE) as screen:
        for shown in (progress(Outcome.RUNNING), progress(Outcome.RUNNING)):
            screen.show(shown)
        screen.show(progress(Outcome.NOT_AS_TOLD, "not seen within 20 s"))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"page: {PAGE}"
    assert lines[1].startswith("▸ Quiet")
    assert lines[2] == "✗ must not be: node x is excluded"
    assert lines[3].startswith("✗ Quiet")
    assert lines[4:] == ["    not seen within 20 s (1.5 s)"]
