"""What people and programs read: nodes, GPUs, verdicts, why, events, policy, the summary."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from math import log
from pathlib import Path

import pytest

from gpuwarden_server.api.verdicts import VerdictsView
from gpuwarden_server.learning.models import default_folder
from gpuwarden_wire.batches import pack_table
from gpuwarden_wire.events import EventKind
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import NotSupported, Reading, Unavailable
from gpuwarden_wire.schema import schema_for
from tests.builders.feed import exclusions_of, get, quick_settings, wait_sweeps, xid_event
from tests.builders.server import (
    GPU_METRICS,
    Feeder,
    Running,
    gpu_table,
    make_event,
    make_gpu,
    running_server,
    wait_until,
)

NODES = 5


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_server(quick_settings(tmp_path_factory.mktemp("api"))) as running:
        for number in range(NODES):
            introduce(running, f"gpu-{number}")
        yield running


def introduce(server: Running, name: str) -> None:
    node = Feeder(server, server.mint("agent", name), name)
    node.introduce([make_gpu(number, name) for number in range(2)])
    table, schema = gpu_table(
        {
            f"GPU-{name}-0": (61.0, 400.5, 1e9),
            f"GPU-{name}-1": (NotSupported(), Unavailable("x"), 1),
        }
    )
    node.telemetry([table], [schema])
    node.close()


def all_pages(server: Running, path: str, limit: int) -> list[dict[str, object]]:
    items: list[dict[str, object]] = []
    cursor: str | None = ""
    while cursor is not None:
        page = get(server, path, limit=limit, **({"cursor": cursor} if cursor else {}))
        assert len(page["items"]) <= limit
        items += page["items"]
        cursor = page["next_cursor"]
    return items


def test_nodes_come_in_pages_by_name(server: Running) -> None:
    nodes = all_pages(server, "/v1/nodes", 2)
    names = [node["node_id"] for node in nodes]
    assert names == [f"gpu-{number}" for number in range(NODES)]
    node = nodes[0]
    assert (node["pool"], node["state"], node["usable"], node["silent"]) == (
        "default",
        "healthy",
        "yes",
        False,
    )
    assert (node["gpus_visible"], node["gpus_expected"], node["open_incidents"]) == (2, 2, 0)


def test_a_node_without_any_gpu_says_why_none_is_read(tmp_path: Path) -> None:
    schema = schema_for(EntityKind.NODE, ["node_gpus_visible", "node_gpus_on_pci"])
    rows: dict[str, tuple[Reading, Reading] | None] = {
        "library": (NotSupported(), 0.0),
        "driver": (0.0, 0.0),
        "off": None,  # the agent's NVML is off: nobody looks for a GPU there
        "has": (2.0, 2.0),
    }
    with running_server(quick_settings(tmp_path)) as server:
        for name, row in rows.items():
            node = Feeder(server, server.mint("agent", name), name)
            node.introduce([make_gpu(0, name)] if name == "has" else [])
            if row is None:
                off = node
                continue
            node.telemetry([pack_table(schema, time.time(), {"": row})], [schema])
            node.close()
        nodes = {node["node_id"]: node for node in get(server, "/v1/nodes")["items"]}
        assert {name: node["gpus_unread"] for name, node in nodes.items()} == {
            "library": "no NVML, none on its PCI bus",
            "driver": "NVML counts none, none on its PCI bus",
            "off": None,
            "has": None,
        }
        assert {node["usable"] for node in nodes.values()} == {"yes"}, "not seen is no verdict"
        trouble = {"source": "nvml", "reason": "nvml_library_not_found"}
        off.events(make_event(kind=EventKind.COLLECTOR_TROUBLE, text="x", attributes=trouble))
        wait_until(
            lambda: get(server, "/v1/nodes/off")["gpus_unread"] == "nvml_library_not_found", "why"
        )
        off.close()


def test_gpus_come_in_pages_with_readings_or_the_reason(server: Running) -> None:
    gpus = all_pages(server, "/v1/gpus", 3)
    assert len(gpus) == 2 * NODES
    read, unread = (gpu["readings"] for gpu in gpus[:2])
    assert isinstance(read, dict)
    assert isinstance(unread, dict)
    assert read == {GPU_METRICS[0]: 61.0, GPU_METRICS[1]: 400.5, GPU_METRICS[2]: 1e9}
    assert unread[GPU_METRICS[0]]["missing"] == "not_supported"
    assert unread[GPU_METRICS[1]]["missing"] == "unavailable"


@pytest.mark.parametrize("cursor", ["garbage", "!!", "WzFd"])
def test_a_cursor_that_is_none_is_said(server: Running, cursor: str) -> None:
    for path in ("/v1/nodes", "/v1/gpus", "/v1/incidents", "/v1/decisions"):
        refused = server.admin.get(path, params={"cursor": cursor})
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid_value")
        assert refused.json()["mend"]


def test_incidents_and_decisions_come_in_pages_newest_first(tmp_path: Path) -> None:
    with running_server(quick_settings(tmp_path)) as server:
        node = Feeder(server, server.mint("agent", "many"), "many")
        node.introduce([make_gpu(number, "many") for number in range(7)])
        for number in range(7):
            node.events(xid_event(79, f"0000:{0x10 + number:02x}:00.0"))
        wait_until(lambda: exclusions_of(server)["count"] == 7, "all seven")
        for path, at in (("/v1/incidents", "opened_at"), ("/v1/decisions", "decided_at")):
            found = all_pages(server, path, 3)
            times = [float(str(item[at])) for item in found]
            assert times == sorted(times, reverse=True)
            assert len({item["id"] for item in found}) == 7
        node.close()


def test_verdicts_of_many_nodes_come_in_one_call(server: Running) -> None:
    names = [f"gpu-{number % 9}" for number in range(3000)] + [f"new-{n}" for n in range(2000)]
    began = time.monotonic()
    answer = server.admin.post("/v1/verdicts", json={"nodes": names})
    took = time.monotonic() - began
    assert answer.status_code == 200, answer.text
    verdicts = {one["node_id"]: one for one in answer.json()["verdicts"]}
    assert len(verdicts) == 9 + 2000
    assert verdicts["gpu-1"]["node"]["usable"] == "yes"
    assert [gpu["index"] for gpu in verdicts["gpu-1"]["gpus"]] == [0, 1]
    assert verdicts["new-7"]["node"]["usable"] == "unknown"
    assert took < 5.0
    everybody = get(server, "/v1/verdicts")["verdicts"]
    assert [one["node_id"] for one in everybody] == [f"gpu-{n}" for n in range(NODES)]


def test_an_agent_sees_its_own_verdict_only(server: Running) -> None:
    with server.client(server.mint("agent", "gpu-2")) as agent:
        own = agent.get("/v1/verdicts").json()["verdicts"]
        assert [one["node_id"] for one in own] == ["gpu-2"]
        assert agent.get("/v1/verdicts", params={"node": "gpu-1"}).status_code == 403
        other = agent.post("/v1/verdicts", json={"nodes": ["gpu-2", "gpu-1"]})
        assert (other.status_code, other.json()["code"]) == (403, "wrong_node")


def test_events_are_read_in_order_of_arrival(server: Running) -> None:
    first = get(server, "/v1/events", limit=3)
    rest = get(server, "/v1/events", limit=1000, after=first["next_after"])
    rows = [one["row"] for one in first["items"] + rest["items"]]
    assert rows == sorted(set(rows))
    own = get(server, "/v1/events", node="gpu-3")["items"]
    assert {one["node_id"] for one in own} == {"gpu-3"}
    assert own[0]["kind"] == EventKind.NODE_BOOT.value
    end = get(server, "/v1/events", after=rest["next_after"])
    assert (end["items"], end["next_after"]) == ([], rest["next_after"])


def test_the_summary_says_what_there_is_and_who_asks(server: Running) -> None:
    fleet = get(server, "/v1/fleet")
    assert (fleet["nodes"], fleet["gpus"], fleet["mode"]) == (NODES, 2 * NODES, "act")
    assert fleet["caller"]["role"] == "admin"
    with server.client(server.mint("reader", name="wall")) as reader:
        assert reader.get("/v1/fleet").json()["caller"] == {"name": "wall", "role": "reader"}


def test_unknown_names_are_404_with_the_mend(server: Running) -> None:
    for path in (
        "/v1/nodes/none",
        "/v1/gpus/none",
        "/v1/nodes/none/why",
        "/v1/gpus/none/why",
        "/v1/incidents/none",
        "/v1/decisions/none",
    ):
        refused = server.admin.get(path)
        assert (refused.status_code, refused.json()["code"]) == (404, "not_found")
        assert refused.json()["mend"]


def test_why_of_a_healthy_gpu_says_so(server: Running) -> None:
    case = get(server, "/v1/gpus/GPU-gpu-0-0/why")
    assert (case["verdict"]["usable"], case["incidents"], case["decisions"]) == ("yes", [], [])
    node = get(server, "/v1/nodes/gpu-0/why")
    assert node["risk"] is None and "no reading of this node" in node["risk_missing"]
    assert case["gate"]["open"] is False
    assert case["gate"]["missing"]


def test_the_document_describes_every_route_with_its_answer(server: Running) -> None:
    document = server.admin.get("/openapi.json").json()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            ok = next(a for code, a in operation["responses"].items() if code.startswith("2"))
            if path.startswith("/v1/"):
                assert ok.get("content"), f"{method} {path} does not say what it answers"
                assert operation["summary"], f"{method} {path} has no summary"


def promoted() -> Path:
    folder = default_folder() / "gpu"
    if not (folder / "PROMOTED").is_file():
        pytest.skip("no promoted model in this checkout")
    return folder / (folder / "PROMOTED").read_text().strip()


def test_a_model_that_was_altered_is_not_used_and_everybody_is_told(tmp_path: Path) -> None:
    folder = shutil.copytree(promoted(), tmp_path / "model")
    sheet = json.loads((folder / "features.json").read_text())
    sheet["calibration"]["offset"] += 1.0
    (folder / "features.json").write_text(json.dumps(sheet))
    with running_server(quick_settings(tmp_path, model_folder=folder)) as server:
        ready = server.admin.get("/readyz")
        assert ready.status_code == 200, "rules judge on"
        assert "features.json" in ready.json()["notes"]["model"]
        model = get(server, "/v1/fleet")["model"]
        assert model["version"] == ""
        assert "altered" in model["trouble"]
        assert server.figure("gpuwarden_model_loaded") == 0


def test_no_model_at_all_is_said_too(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with running_server(quick_settings(tmp_path, model_folder=tmp_path / "empty")) as server:
        trouble = get(server, "/v1/fleet")["model"]["trouble"]
        assert "GPUWARDEN_MODEL_FOLDER" in trouble
        assert server.admin.get("/readyz").json()["notes"]["model"] == trouble
        node = Feeder(server, server.mint("agent", "unscored"), "unscored")
        node.introduce([make_gpu(0, "unscored")])
        table, schema = gpu_table({"GPU-unscored-0": (50.0, 300.0, 1.0)})
        node.telemetry([table], [schema])
        case = get(server, "/v1/gpus/GPU-unscored-0/why")
        assert (case["risk"], case["risk_missing"]) == (None, trouble)
        node.close()


def test_any_gpu_with_readings_gets_its_score_when_asked_for(tmp_path: Path) -> None:
    promoted()
    with running_server(quick_settings(tmp_path, sweep_interval_s=600.0)) as server:
        node = Feeder(server, server.mint("agent", "fine"), "fine")
        node.introduce([make_gpu(number, "fine") for number in range(2)])
        table, schema = gpu_table({"GPU-fine-0": (50.0, 300.0, 1.0)})
        node.telemetry([table], [schema])
        began = time.time()
        case = get(server, "/v1/gpus/GPU-fine-0/why")
        assert case["risk_missing"] == ""
        risk = case["risk"]
        assert 0.0 < risk["probability"] < 0.1
        shares = sum(one["log_odds"] for one in risk["contributions"])
        odds = log(risk["probability"] / (1 - risk["probability"]))
        assert shares == pytest.approx(odds, abs=1e-6)
        assert began - 1 <= risk["scored_at"] <= time.time()
        again = get(server, "/v1/gpus/GPU-fine-0/why")["risk"]
        assert again["scored_at"] > risk["scored_at"], "made anew, not kept"
        mute = get(server, "/v1/gpus/GPU-fine-1/why")
        assert mute["risk"] is None
        assert mute["risk_missing"] == "no reading of this GPU has come in yet"
        node.close()


def test_the_learnt_score_names_a_gpu_and_explains_itself(tmp_path: Path) -> None:
    promoted()
    with running_server(quick_settings(tmp_path)) as server:
        node = Feeder(server, server.mint("agent", "sick"), "sick")
        node.introduce([make_gpu(number, "sick") for number in range(8)])
        metrics = ("gpu_ecc_corrected_volatile_total", "gpu_rows_remapped_correctable_total")
        began = time.time() - 3000
        for step in range(6):
            rows = {f"GPU-sick-{n}": (0.0, 0.0) for n in range(8)}
            rows["GPU-sick-1"] = (50_000.0 * step, 2.0 * step)
            table, schema = gpu_table(rows, began + 600 * step, metrics)
            node.telemetry([table], [schema])
        wait_until(lambda: get(server, "/v1/gpus/GPU-sick-1/why")["risk"], "a risk")
        wait_sweeps(server, 2)
        case = get(server, "/v1/gpus/GPU-sick-1/why")
        risk = case["risk"]
        shares = sum(one["log_odds"] for one in risk["contributions"])
        chance = risk["probability"]
        assert shares == pytest.approx(log(chance / (1 - chance)), abs=1e-6)
        told = case["explanation"]
        assert sum(line["log_odds"] for line in told["lines"]) == pytest.approx(shares, abs=1e-6)
        raised = told["without"][0]
        assert raised["probability"] < chance and "ecc corrected" in " ".join(
            one["sentence"] for one in told["leading"]
        )
        assert exclusions_of(server)["count"] == 0, "the score alone excludes nobody"
        assert "score_may_exclude is false" in " ".join(case["gate"]["missing"])
        node.close()


def test_trouble_of_an_agent_outlives_a_restart(tmp_path: Path) -> None:
    settings = quick_settings(tmp_path)
    with running_server(settings) as server:
        node = Feeder(server, server.mint("agent", "lame"), "lame")
        node.introduce([make_gpu(0, "lame")])
        node.events(
            make_event(
                kind=EventKind.COLLECTOR_TROUBLE,
                attributes={"source": "kernel_log", "reason": "permission_denied"},
            )
        )
        wait_until(lambda: get(server, "/v1/nodes/lame")["trouble"], "trouble")
        node.close()
    with running_server(settings) as server:
        (trouble,) = get(server, "/v1/nodes/lame")["trouble"]
        assert (trouble["source"], trouble["reason"]) == ("kernel_log", "permission_denied")


def test_verdicts_are_tagged_by_what_they_say_and_not_by_when(server: Running) -> None:
    first = server.admin.get("/v1/verdicts")
    tag = first.headers["etag"]
    again = server.admin.get("/v1/verdicts", headers={"If-None-Match": tag})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    one = server.admin.get("/v1/verdicts", params={"node": "gpu-0"})
    assert one.headers["etag"] != tag, "another question"


def test_notable_gpus_are_those_of_which_there_is_something_to_say(tmp_path: Path) -> None:
    with running_server(quick_settings(tmp_path)) as server:
        for name in ("first", "well"):
            introduce(server, name)
        before = server.admin.get("/v1/verdicts")
        all_well = server.admin.get("/v1/verdicts", params={"gpus": "notable"}).json()
        assert [verdict["gpus"] for verdict in all_well["verdicts"]] == [[], []]
        feeder = Feeder(server, server.mint("agent", "third"), "third")
        feeder.introduce([make_gpu(number, "third") for number in range(2)])
        feeder.events(xid_event(79, "0000:10:00.0"))
        feeder.close()
        wait_until(lambda: exclusions_of(server)["count"] == 1, "an exclusion")
        asked = {"nodes": ["well", "third", "never"], "gpus": "notable"}
        found = server.admin.post("/v1/verdicts", json=asked).json()["verdicts"]
        assert [[gpu["entity"] for gpu in verdict["gpus"]] for verdict in found] == [
            [],
            ["GPU-third-0"],
            [],
        ]
        assert [verdict["node"]["usable"] for verdict in found] == ["yes", "no", "unknown"]
        whole = server.admin.get("/v1/verdicts", headers={"If-None-Match": before.headers["etag"]})
        assert whole.status_code == 200
        told = {verdict["node_id"]: len(verdict["gpus"]) for verdict in whole.json()["verdicts"]}
        assert told == {"first": 2, "well": 2, "third": 2}
        whole_view = VerdictsView.model_validate(whole.json())
        assert {verdict.feed_id for verdict in whole_view.verdicts} == {whole_view.feed_id}
