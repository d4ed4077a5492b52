"""How the demo tells its story: what makes a step as told, and what does not."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from gpuwarden_cli.demo import stage as cast
from gpuwarden_cli.demo.command import conclude
from gpuwarden_cli.demo.fleet import PlayedFleet
from gpuwarden_cli.demo.folder import DemoFolder
from gpuwarden_cli.demo.installation import Installation
from gpuwarden_cli.demo.pace import BRISK
from gpuwarden_cli.demo.sight import Sight
from gpuwarden_cli.demo.stage import Stage, Step
from gpuwarden_cli.demo.summary import AgentSummary, DemoSummary, EventCounts, step_summaries
from gpuwarden_cli.demo.telling import Outcome, Progress, Teller
from gpuwarden_cli.exits import ExitCode
from gpuwarden_runtime.client import Client
from gpuwarden_runtime.config import RuntimeSettings
from gpuwarden_runtime.records import Exclusion
from gpuwarden_wire.acknowledgement import Problem
from tests.fakes.api_server import FakeApi, serve


class Idle:
    """A player that plays nothing."""

    def start(self) -> None:
        raise NotImplementedError

    def stop(self, drain_s: float = 5.0) -> bool:
        raise NotImplementedError

    def inject(self, fault: Any) -> None:
        raise NotImplementedError

    def repair(self, entity: str) -> int:
        raise NotImplementedError

    def event_ids(self) -> tuple[str, ...]:
        return ()

    def acknowledged_event_ids(self) -> frozenset[str]:
        return frozenset()

    def counters(self) -> Any:
        raise NotImplementedError


class Still(Installation):
    """An installation whose server is the fake."""

    @property
    def fleet(self) -> PlayedFleet:
        places = (cast.WORN, cast.LOST, cast.HOT)
        uuids = {place: f"GPU-{place[0]}-{place[1]}" for place in places}
        return PlayedFleet(Idle(), (), uuids)


@pytest.fixture
def api() -> FakeApi:
    api = FakeApi()
    for path in ("/v1/nodes", "/v1/incidents", "/v1/decisions"):
        api.answers["GET", path] = {"items": []}
    api.answers["GET", "/v1/standby"] = {}
    return api


@pytest.fixture
def stage(api: FakeApi, tmp_path: Path) -> Iterator[Stage]:
    pace = dataclasses.replace(BRISK, pause_s=0.0)
    with serve(api) as url, Client(RuntimeSettings(url=url)) as client:
        yield Stage(Still(DemoFolder(tmp_path, ""), pace, 0), client, pace)


def step(
    name: str,
    seen: Callable[[Stage, Sight], str],
    begin: Callable[[Stage], None] = lambda stage: None,
    deadline_s: float = 1.0,
    hold_s: float = 0.0,
    steady_s: float = 0.0,
) -> Step:
    return Step(name, name, name, begin, seen, deadline_s, hold_s, steady_s)


def tell(stage: Stage, *steps: Step) -> Progress:
    shown: list[Progress] = []
    progress = Teller(stage, steps, shown.append).tell()
    assert shown[-1].told == progress.told
    return progress


def outcomes(progress: Progress) -> list[Outcome]:
    return [item.outcome for item in progress.told]


def test_step_that_is_seen_is_as_told(stage: Stage) -> None:
    progress = tell(stage, step("a", lambda stage, sight: f"epoch {sight.epoch}"))
    assert outcomes(progress) == [Outcome.AS_TOLD]
    assert progress.told[0].seen == "epoch 1"
    assert progress.as_told


def test_step_that_is_not_seen_is_not_as_told_and_the_story_goes_on(stage: Stage) -> None:
    progress = tell(stage, step("a", lambda *_: ""), step("b", lambda *_: "there"))
    assert outcomes(progress) == [Outcome.NOT_AS_TOLD, Outcome.AS_TOLD]
    assert progress.told[0].seen == "not seen within 1 s"
    assert not progress.as_told


def test_what_is_only_seen_for_a_moment_is_not_steady(stage: Stage) -> None:
    looks = iter(["there", "", "there", "", "there", ""])
    flickers = step("a", lambda *_: next(looks, ""), steady_s=0.4)
    assert outcomes(tell(stage, flickers)) == [Outcome.NOT_AS_TOLD]
    stays = step("a", lambda *_: "there", steady_s=0.4)
    assert outcomes(tell(stage, stays)) == [Outcome.AS_TOLD]


def test_step_with_a_hold_looks_at_least_so_long(stage: Stage) -> None:
    progress = tell(stage, step("a", lambda *_: "there", hold_s=0.6))
    assert progress.told[0].seconds >= 0.6


def test_exclusion_that_nobody_told_of_is_forbidden(api: FakeApi, stage: Stage) -> None:
    api.exclude(Exclusion(entity_kind="gpu", entity=stage.uuid(cast.LOST), node_id=cast.LOST[0]))
    assert tell(stage, step("a", lambda *_: "there")).as_told
    api.exclude(Exclusion(entity_kind="gpu", entity="GPU-x", node_id="gpu-0003", reason="why"))
    progress = tell(stage, step("a", lambda *_: "there"))
    assert progress.forbidden == ("gpu GPU-x of gpu-0003 is excluded: why",)
    assert outcomes(progress) == [Outcome.AS_TOLD]
    assert not progress.as_told


def test_rule_that_speaks_about_the_hot_gpu_is_forbidden(api: FakeApi, stage: Stage) -> None:
    evidence = [
        {"detector": cast.LEARNED, "sentence": "learnt"},
        {"detector": "temperature_peers", "sentence": "is hot"},
    ]
    incident = {"id": "inc-1", "entity": stage.uuid(cast.HOT), "evidence": evidence}
    api.answers["GET", "/v1/incidents"] = {"items": [incident]}
    (sentence,) = tell(stage, step("a", lambda *_: "there")).forbidden
    assert "temperature_peers" in sentence


def test_server_that_cannot_answer_is_named(api: FakeApi, stage: Stage) -> None:
    busy = Problem(type="urn:x", title="Busy", status=503, code="busy")
    api.problems["GET", "/v1/nodes"] = busy
    progress = tell(stage, step("a", lambda *_: "there"))
    assert outcomes(progress) == [Outcome.NOT_AS_TOLD]
    assert "busy" in progress.told[0].seen


def test_step_that_cannot_begin_is_not_as_told(stage: Stage) -> None:
    def begin(stage: Stage) -> None:
        stage.client.repair_gpu("GPU-none", "x")

    progress = tell(stage, step("a", lambda *_: "there", begin))
    assert outcomes(progress) == [Outcome.NOT_AS_TOLD]
    assert "404" in progress.told[0].seen


@pytest.mark.parametrize("outcome", [Outcome.AS_TOLD, Outcome.NOT_AS_TOLD])
def test_exit_code_and_summary_follow_the_story(
    stage: Stage, outcome: Outcome, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = "there" if outcome is Outcome.AS_TOLD else ""
    progress = tell(stage, step("a", lambda *_: seen, deadline_s=0.1))
    summary = DemoSummary(
        outcome=Outcome.AS_TOLD if progress.as_told else Outcome.NOT_AS_TOLD,
        seconds=1.0,
        steps=step_summaries(progress),
        forbidden=progress.forbidden,
        events=EventCounts(made=1, acknowledged=1, stored=1),
        agent=AgentSummary(node="n", gpus_visible=0, kernel_log="read", trouble={}),
        nodes=0,
        gpus=0,
        epoch=1,
        url="",
        folder="",
    )
    if outcome is Outcome.AS_TOLD:
        conclude(summary, as_json=True)
    else:
        with pytest.raises(typer.Exit) as caught:
            conclude(summary, as_json=True)
        assert caught.value.exit_code == ExitCode.NEGATIVE
    assert json.loads(capsys.readouterr().out)["outcome"] == outcome
