"""What people may say about decisions, and that it holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from gpuwarden_server.app import create_app, run_server
from gpuwarden_server.core.errors import StartError
from gpuwarden_verdict.policy.document import Mode
from gpuwarden_wire.events import EventKind
from gpuwarden_wire.metrics import EntityKind
from tests.builders.feed import (
    exclusions_of,
    get,
    quick_settings,
    reading_feed,
    wait_sweeps,
    xid_event,
)
from tests.builders.server import (
    Feeder,
    Running,
    gpu_table,
    make_event,
    make_gpu,
    make_settings,
    running_server,
    wait_until,
)
from tests.builders.stores import StoreKind

BOTH_STORES = True

SLOTS = [f"0000:{0x10 + number:02x}:00.0" for number in range(8)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, store_kind: StoreKind) -> Iterator[Running]:
    with running_server(quick_settings(tmp_path_factory.mktemp("people"))) as running:
        yield running


@pytest.fixture
def node(server: Running, request: pytest.FixtureRequest) -> Iterator[Feeder]:
    feeder = introduced(
        server, request.node.name.replace("[", "-").rstrip("]").removeprefix("test_")[:60]
    )
    yield feeder
    feeder.close()


def introduced(server: Running, name: str) -> Feeder:
    feeder = Feeder(server, server.mint("agent", name), name)
    feeder.introduce([make_gpu(number, name) for number in range(8)])
    return feeder


def gpu_of(node: Feeder, number: int) -> str:
    return f"GPU-{node.node_id}-{number}"


def decided(server: Running, node: Feeder, phase: str) -> dict[str, str]:
    def find() -> list[dict[str, str]]:
        items: list[dict[str, str]] = get(server, "/v1/decisions", node=node.node_id, phase=phase)[
            "items"
        ]
        return items

    wait_until(find, f"a decision {phase}")
    return find()[0]


def say(server: Running, path: str, reason: str = "checked by hand") -> httpx.Response:
    return server.admin.post(path, json={"reason": reason})


def excluded_on(server: Running, node: Feeder) -> set[str]:
    found = exclusions_of(server)["exclusions"]
    return {one["entity"] for one in found if one["node_id"] == node.node_id}


def test_a_revoke_holds_against_sweeps_and_the_same_event(server: Running, node: Feeder) -> None:
    gpu = gpu_of(node, 1)
    with reading_feed(server) as feed:
        node.events(xid_event(79, SLOTS[1]))
        feed.wait_added(gpu)
        decision = decided(server, node, "in_force")
        answer = say(server, f"/v1/decisions/{decision['id']}/revoke", "reseated, answers again")
        assert answer.json()["phase"] == "revoked", answer.text
        feed.wait_removed(gpu)
        wait_sweeps(server, 5)
        node.events(xid_event(79, SLOTS[1]))
        wait_sweeps(server, 3)
        assert feed.added().count(gpu) == 1
    assert excluded_on(server, node) == set()
    case = get(server, f"/v1/gpus/{gpu}/why")
    assert (case["verdict"]["usable"], case["verdict"]["state"]) == ("yes", "healthy")
    (live,) = [one for one in case["incidents"] if one["phase"] != "resolved"]
    assert live["acquitted_until"] > live["opened_at"] + 86_000


def test_a_revoke_holds_against_a_reading_that_stays(server: Running, node: Feeder) -> None:
    def report() -> None:
        rows = {gpu_of(node, n): (1.0 if n == 4 else 0.0,) for n in range(8)}
        table, schema = gpu_table(rows, metrics=("gpu_row_remap_failure",))
        node.telemetry([table], [schema])

    report()
    decision = decided(server, node, "in_force")
    say(server, f"/v1/decisions/{decision['id']}/revoke").raise_for_status()
    for _ in range(4):
        report()
        wait_sweeps(server, 2)
    assert excluded_on(server, node) == set()


def test_another_class_of_fault_decides_again_after_a_revoke(server: Running, node: Feeder) -> None:
    node.events(xid_event(79, SLOTS[2]))
    decision = decided(server, node, "in_force")
    say(server, f"/v1/decisions/{decision['id']}/revoke").raise_for_status()
    rows = {gpu_of(node, n): (1.0 if n == 2 else 0.0,) for n in range(8)}
    table, schema = gpu_table(rows, metrics=("gpu_row_remap_failure",))
    node.telemetry([table], [schema])
    wait_until(lambda: gpu_of(node, 2) in excluded_on(server, node), "excluded for memory")
    assert decided(server, node, "in_force")["fault_class"] == "memory"


@pytest.mark.postgres
def test_every_word_is_in_the_history_and_in_the_audit(server: Running, node: Feeder) -> None:
    node.events(xid_event(79, SLOTS[3]))
    decision = decided(server, node, "in_force")
    incident = get(server, "/v1/incidents", node=node.node_id)["items"][0]
    with server.client(server.mint("operator", name="ana")) as ana:
        said = ana.post(f"/v1/incidents/{incident['id']}/acknowledge", json={"reason": "looking"})
        assert said.json()["phase"] == "acknowledged", said.text
        again = ana.post(f"/v1/incidents/{incident['id']}/acknowledge", json={"reason": "again"})
        assert (again.status_code, again.json()["code"]) == (409, "wrong_phase")
        revoked = ana.post(f"/v1/decisions/{decision['id']}/revoke", json={"reason": "sound"})
        assert revoked.status_code == 200
    moves = get(server, f"/v1/incidents/{incident['id']}")["moves"]
    assert [(m["after"], m["author"]) for m in moves[:2]] == [
        ("open", "gpuwarden"),
        ("acknowledged", "ana"),
    ]
    told = get(server, f"/v1/decisions/{decision['id']}")
    assert [(m["after"], m["author"], m["reason"]) for m in told["moves"]][-1] == (
        "revoked",
        "ana",
        "sound",
    )
    assert told["snapshot"]["incidents"][0]["id"] == incident["id"]
    audit = get(server, "/v1/audit", limit=1000)["items"]
    (entry,) = [one for one in audit if one["target"] == decision["id"]]
    assert (entry["author"], entry["action"], entry["reason"]) == (
        "ana",
        "revoke_decision",
        "sound",
    )
    assert (entry["before"]["phase"], entry["after"]["phase"]) == ("in_force", "revoked")
    own = [one for one in audit if one["target"] == f"gpu:{gpu_of(node, 3)}"]
    assert [(one["author"], one["action"]) for one in own] == [("gpuwarden", "exclude")]


def test_a_raised_exclusion_is_audited(server: Running, node: Feeder) -> None:
    gpu = gpu_of(node, 5)
    node.events(xid_event(79, SLOTS[5]))
    decided(server, node, "in_force")
    node.events(xid_event(95, SLOTS[5]))

    def told() -> list[tuple[str, str, str]]:
        audit = get(server, "/v1/audit", limit=1000)["items"]
        own = [one for one in audit if one["target"] == f"gpu:{gpu}"]
        return [(one["author"], one["action"], one["after"]["rung"]) for one in own]

    raised = ("gpuwarden", "raise_exclusion", "evict")
    wait_until(lambda: raised in told(), "the raise is audited")


def test_people_without_the_role_change_nothing(server: Running, node: Feeder) -> None:
    node.events(xid_event(79, SLOTS[5]))
    decision = decided(server, node, "in_force")
    paths = (
        f"/v1/decisions/{decision['id']}/revoke",
        f"/v1/gpus/{gpu_of(node, 5)}/repair",
        f"/v1/nodes/{node.node_id}/repair",
        f"/v1/nodes/{node.node_id}/retire",
    )
    for role in ("reader", "runtime"):
        with server.client(server.mint(role)) as client:
            for path in paths:
                refused = client.post(path, json={"reason": "please"})
                assert (refused.status_code, refused.json()["code"]) == (403, "role_not_allowed")
    assert excluded_on(server, node) == {gpu_of(node, 5)}


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/decisions/dec-none/revoke", 404),
        ("/v1/decisions/dec-none/approve", 404),
        ("/v1/incidents/inc-none/acknowledge", 404),
        ("/v1/gpus/GPU-none/repair", 404),
        ("/v1/nodes/none/repair", 404),
        ("/v1/nodes/none/retire", 404),
    ],
)
def test_what_is_not_there_is_said_with_the_mend(server: Running, path: str, status: int) -> None:
    refused = say(server, path)
    assert refused.status_code == status
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.json()["mend"]


def test_a_reason_is_asked_for(server: Running) -> None:
    refused = server.admin.post("/v1/decisions/dec-none/revoke", json={"reason": ""})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_value")


def test_what_has_ended_cannot_be_revoked_again(server: Running, node: Feeder) -> None:
    node.events(xid_event(79, SLOTS[0]))
    decision = decided(server, node, "in_force")
    say(server, f"/v1/decisions/{decision['id']}/revoke").raise_for_status()
    refused = say(server, f"/v1/decisions/{decision['id']}/revoke")
    assert (refused.status_code, refused.json()["code"]) == (409, "not_live")


def test_advice_waits_for_a_person(tmp_path: Path) -> None:
    with running_server(quick_settings(tmp_path, Mode.ADVISE)) as server:
        node = introduced(server, "advised")
        with reading_feed(server) as feed:
            node.events(xid_event(79, SLOTS[0]))
            decision = decided(server, node, "proposed")
            wait_sweeps(server)
            assert feed.added() == []
            with server.client(server.mint("operator", name="bo")) as bo:
                bo.post(
                    f"/v1/decisions/{decision['id']}/approve", json={"reason": "I agree"}
                ).raise_for_status()
            feed.wait_added(gpu_of(node, 0))
        wait_sweeps(server)
        (entry,) = exclusions_of(server)["exclusions"]
        assert (entry["decided_by"], entry["decision_id"]) == ("operator:bo", decision["id"])
        node.close()


def test_in_observe_mode_nothing_can_be_approved(tmp_path: Path) -> None:
    with running_server(quick_settings(tmp_path, Mode.OBSERVE)) as server:
        node = introduced(server, "observed")
        node.events(xid_event(79, SLOTS[0]))
        decision = decided(server, node, "proposed")
        refused = say(server, f"/v1/decisions/{decision['id']}/approve")
        problem = refused.json()
        assert (refused.status_code, problem["code"]) == (409, "observe_mode")
        assert 'mode = "advise"' in problem["mend"] and "'default'" in problem["mend"]
        wait_sweeps(server)
        assert exclusions_of(server)["exclusions"] == []
        assert decided(server, node, "proposed")["id"] == decision["id"]
        say(server, f"/v1/decisions/{decision['id']}/revoke").raise_for_status()
        node.close()


def test_an_exclusion_ends_by_itself_when_its_evidence_has_cleared_for_the_dwell(
    server: Running, node: Feeder
) -> None:
    gpu = gpu_of(node, 6)

    def told(kind: EventKind, **facts: object) -> None:
        node.events(
            make_event(kind=kind, entity_kind=EntityKind.GPU, entity=gpu, attributes=dict(facts))
        )

    with reading_feed(server) as feed:
        told(EventKind.GPU_LOST, probes=2)
        out = feed.wait_added(gpu)
        wait_sweeps(server, 8)
        assert excluded_on(server, node) == {gpu}, "that nothing new is seen resolves nothing"
        told(EventKind.GPU_BACK)
        back = feed.wait_removed(gpu)
    assert back.body["epoch"] > out.body["epoch"]
    wait_until(lambda: get(server, f"/v1/gpus/{gpu}")["state"] == "healthy", "after probation")
    (decision,) = get(server, "/v1/decisions", node=node.node_id)["items"]
    assert decision["phase"] == "lifted"


def test_a_policy_that_is_wrong_refuses_the_start_and_names_the_key(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text('[defaults]\nmode = "observ"\n')
    settings = make_settings(tmp_path, policy_file=file)
    with pytest.raises(StartError, match=r"defaults\.mode.*observ.*observe, advise, act"):
        create_app(settings)
    assert run_server(settings) == 2


def test_a_policy_file_that_is_not_there_refuses_the_start(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="GPUWARDEN_POLICY_FILE"):
        create_app(make_settings(tmp_path, policy_file=tmp_path / "none.toml"))


def test_the_mode_of_the_settings_is_for_nodes_that_the_file_does_not_name(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text('[[pools]]\nname = "train"\nnodes = ["gpu-*"]\nmode = "advise"\n')
    with running_server(make_settings(tmp_path, policy_file=file, mode=Mode.ACT)) as server:
        pools = get(server, "/v1/policy")["pools"]
    assert [(pool["name"], pool["mode"]) for pool in pools] == [
        ("train", "advise"),
        ("default", "act"),
    ]
