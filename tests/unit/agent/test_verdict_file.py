from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from gpuwarden_agent.verdict_file import VerdictFile
from gpuwarden_wire.acknowledgement import Acknowledgement, EntityVerdict, NodeVerdict, Usable
from gpuwarden_wire.batches import Stream


def acknowledgement(usable: Usable | None) -> Acknowledgement:
    verdict = None
    if usable is not None:
        node = EntityVerdict(entity_kind="node", entity="n", usable=usable)
        verdict = NodeVerdict(
            node_id="n", node=node, gpus=(), feed_id="f", epoch=3, issued_at=900.0
        )
    return Acknowledgement(
        stream=Stream.EVENTS, applied_seq=1, durable_seq=1, feed_id="f", epoch=3, verdict=verdict
    )


class Rig:
    def __init__(self, path: Path) -> None:
        self.now = 1000.0
        self.path = path
        self.file = VerdictFile(path, lambda: self.now)

    def note(self, usable: Usable | None) -> None:
        self.file.note(acknowledgement(usable))

    @property
    def written(self) -> tuple[str, float]:
        content = json.loads(self.path.read_text())
        return content["node"]["usable"], content["written_at"]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path / "run" / "verdict.json")


def test_a_verdict_is_written_for_everybody_to_read(rig: Rig) -> None:
    former = os.umask(0o077)
    try:
        rig.note(Usable.NO)
    finally:
        os.umask(former)
    assert rig.written == ("no", 1000.0)
    assert stat.S_IMODE(rig.path.stat().st_mode) == 0o644


def test_before_the_first_verdict_there_is_no_file(rig: Rig) -> None:
    rig.note(None)
    assert not rig.path.exists()


def test_a_changed_verdict_is_written_at_once(rig: Rig) -> None:
    rig.note(Usable.YES)
    rig.now += 0.1
    rig.note(Usable.NO)
    assert rig.written == ("no", 1000.1)


def test_an_unchanged_verdict_is_confirmed_now_and_then(rig: Rig) -> None:
    rig.note(Usable.YES)
    rig.now += 10
    rig.note(None)
    assert rig.written == ("yes", 1000.0)
    rig.now += 30
    rig.note(None)
    assert rig.written == ("yes", 1040.0)


def test_a_folder_that_takes_nothing_is_no_crash_and_tried_again(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file where the folder should be")
    rig = Rig(tmp_path / "run" / "verdict.json")
    rig.note(Usable.YES)
    (tmp_path / "run").unlink()
    rig.now += 1
    rig.note(Usable.NO)
    assert rig.written == ("no", 1001.0)


def test_a_reader_never_sees_half_a_file(rig: Rig) -> None:
    rig.note(Usable.YES)
    with rig.path.open() as held:
        rig.note(Usable.NO)
        assert json.loads(held.read())["node"]["usable"] == "yes"
    assert [path.name for path in rig.path.parent.iterdir()] == ["verdict.json"]
