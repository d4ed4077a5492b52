"""Verdicts of people, and labels from what repairs and checks showed, on a running server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpuwarden_verdict.policy.document import Mode
from gpuwarden_wire.events import EventKind
from gpuwarden_wire.metrics import EntityKind
from tests.builders.feed import get, quick_settings, xid_event
from tests.builders.server import (
    Feeder,
    Running,
    make_event,
    make_gpu,
    running_server,
    wait_until,
)

BOTH_STORES = True
PROGRAM_CODE, LOST_CODE = 31, 79


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, store_kind: object) -> Iterator[Running]:
    with running_server(quick_settings(tmp_path_factory.mktemp("labels"), Mode.ACT)) as running:
        yield running


def begin(server: Running, name: str, xid: int) -> tuple[Feeder, str]:
    """A node whose first GPU has an incident; the feeder and the incident's id."""
    node = Feeder(server, server.mint("agent", name), name)
    node.introduce([make_gpu(number, name) for number in range(2)])
    node.events(xid_event(xid, "0000:10:00.0"))
    wait_until(lambda: get(server, "/v1/incidents", node=name)["items"], "an incident", 30.0)
    return node, str(get(server, "/v1/incidents", node=name)["items"][0]["id"])


def label(server: Running, incident: str) -> dict[str, Any]:
    items = get(server, "/v1/labels", limit=1000)["items"]
    return next(one for one in items if one["incident_id"] == incident)


def judge(server: Running, incident: str, verdict: str, note: str = "") -> Any:
    return server.admin.post(
        f"/v1/incidents/{incident}/verdict", json={"verdict": verdict, "note": note}
    )


@pytest.mark.postgres
def test_a_verdict_is_kept_corrected_and_audited(server: Running) -> None:
    node, incident = begin(server, "said", PROGRAM_CODE)
    assert (label(server, incident)["needed"], label(server, incident)["excluded_at"]) == (
        None,
    ) * 2
    judge(server, incident, "hardware").raise_for_status()
    assert label(server, incident)["needed"] is True
    judge(server, incident, "application", "bug 12").raise_for_status()
    judge(server, incident, "application", "bug 12").raise_for_status()
    found = label(server, incident)
    assert (found["label"], found["source"], found["needed"]) == ("application", "verdict", False)
    assert (found["note"], found["author"]) == ("bug 12", "first admin")
    told = get(server, "/v1/audit", action="judge_incident", target=incident)["items"]
    said = [(one["before"] and one["before"]["verdict"], one["after"]["verdict"]) for one in told]
    assert sorted(said, key=str) == [("hardware", "application"), (None, "hardware")]
    assert server.figure("gpuwarden_incident_verdicts_total", verdict="application") == 1.0
    node.close()


@pytest.mark.postgres
def test_a_repair_that_a_check_ends_makes_it_hardware(server: Running) -> None:
    node, incident = begin(server, "mended", LOST_CODE)
    gpu = "GPU-mended-0"
    wait_until(lambda: get(server, f"/v1/gpus/{gpu}")["state"] == "excluded", "excluded", 30.0)
    found = label(server, incident)
    assert found["source"] == "evidence"
    assert found["excluded_at"] >= found["opened_at"]
    server.admin.post(f"/v1/gpus/{gpu}/repair", json={"reason": "new"}).raise_for_status()
    wait_until(lambda: "in repair" in label(server, incident)["note"], "in repair", 30.0)
    node.events(make_event(kind=EventKind.CHECK_PASSED, entity_kind=EntityKind.GPU, entity=gpu))
    wait_until(lambda: label(server, incident)["needed"], "repaired", 30.0)
    assert label(server, incident)["source"] == "repair"
    node.close()


@pytest.mark.postgres
@pytest.mark.parametrize("before", ["nothing", "boot", "reset", "node"])
def test_only_a_check_of_the_gpu_itself_before_any_boot_or_reset_clears_it(
    server: Running, before: str
) -> None:
    name = f"checked-{before}"
    node, incident = begin(server, name, PROGRAM_CODE)
    gpu = {"entity_kind": EntityKind.GPU, "entity": f"GPU-{name}-0"}
    if before == "boot":
        node.boot_id = f"boot-2-of-{name}"
        node.introduce([make_gpu(number, name) for number in range(2)])
    reset = [make_event(kind=EventKind.GPU_BACK, **gpu)] if before == "reset" else []
    checked = {} if before == "node" else gpu
    node.events(*reset, make_event(kind=EventKind.CHECK_PASSED, **checked))
    found = label(server, incident)
    cleared = ("false_alarm", "check", False)
    unsure = ("unknown", "none", None)
    told = (found["label"], found["source"], found["needed"])
    assert told == (cleared if before == "nothing" else unsure)
    node.close()


def test_an_unknown_incident_and_a_strange_verdict_are_named(server: Running) -> None:
    assert judge(server, "inc-none", "hardware").status_code == 404
    node, incident = begin(server, "strange", PROGRAM_CODE)
    assert judge(server, incident, "gremlins").status_code == 422
    with server.client(server.mint("reader")) as reader:
        path = f"/v1/incidents/{incident}/verdict"
        assert reader.post(path, json={"verdict": "hardware"}).status_code == 403
    node.close()


def test_labels_are_paged_and_narrowed(server: Running) -> None:
    nodes = [begin(server, name, PROGRAM_CODE)[0] for name in ("page-1", "page-2")]
    assert len(get(server, "/v1/labels", node="page-1")["items"]) == 1
    first = get(server, "/v1/labels", limit=1)
    second = get(server, "/v1/labels", limit=1, cursor=first["next_cursor"])
    assert first["items"][0]["incident_id"] != second["items"][0]["incident_id"]
    for node in nodes:
        node.close()
