"""Policies by version on a server, decisions judged again, and who may approve."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from sqlalchemy import Connection

from gpuwarden_cli.app import run
from gpuwarden_cli.exits import ExitCode
from gpuwarden_server.decisions.repository import write_decision_moves
from gpuwarden_server.judging.repository import read_returns
from gpuwarden_server.store.tables_policies import decision_snapshots
from gpuwarden_verdict.engine.book import Book, Kept
from gpuwarden_verdict.engine.domain import Outcome, key_of
from gpuwarden_verdict.entities import EntityRef, FaultClass, Rung
from gpuwarden_verdict.policy.document import Decision, DecisionMove, DecisionPhase, Mode
from gpuwarden_wire.metrics import EntityKind
from tests.builders.feed import get, quick_settings, reading_feed, xid_event
from tests.builders.server import Feeder, Running, make_gpu, running_server, wait_until
from tests.builders.stores import StoreKind

BOTH_STORES = True
NODE = "policy-1"
POLICY = """
[defaults]
mode = "act"
approvers = ["ana", "role:admin"]
cap = { max_nodes = 50, max_percent = 100 }
[[defaults.rules]]
classes = ["memory"]
mode = "advise"
"""
OTHER = POLICY.replace('"act"', '"observe"') + '[[pools]]\nname = "p"\nnodes = ["policy-*"]\n'
SLOTS = [f"0000:{0x10 + number:02x}:00.0" for number in range(4)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, store_kind: StoreKind) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("policies")
    settings = quick_settings(folder)
    assert settings.policy_file is not None
    settings.policy_file.write_text(POLICY)
    with running_server(settings) as running:
        yield running


@pytest.fixture(scope="module")
def node(server: Running) -> Iterator[Feeder]:
    feeder = Feeder(server, server.mint("agent", NODE), NODE)
    feeder.introduce([make_gpu(number, NODE) for number in range(4)])
    yield feeder
    feeder.close()


@pytest.fixture(scope="module")
def excluded(server: Running, node: Feeder) -> str:
    """A decision in force."""
    with reading_feed(server) as feed:
        node.events(xid_event(79, SLOTS[1]))
        feed.wait_added(f"GPU-{NODE}-1")
    (found,) = get(server, "/v1/decisions", entity=f"GPU-{NODE}-1", phase="in_force")["items"]
    return str(found["id"])


def ask(server: Running, path: str, body: dict[str, object]) -> httpx.Response:
    return server.admin.post(path, json=body)


def test_a_decision_is_judged_again_to_the_same_by_its_own_policy(
    server: Running, excluded: str
) -> None:
    answer = ask(server, f"/v1/decisions/{excluded}/replay", {}).json()
    assert (answer["same"], answer["own_policy"]) == (True, True)
    (step,) = answer["steps"]
    assert step["then"] == step["now"]
    assert (step["now"]["effect"], step["now"]["rung"]) == ("excluded", "exclude")
    other = ask(server, f"/v1/decisions/{excluded}/replay", {"policy": OTHER}).json()
    assert (other["same"], other["own_policy"]) == (False, False)
    assert other["steps"][0]["now"]["effect"] == "observed"
    assert other["steps"][0]["pool"] == "p"
    refused = ask(server, f"/v1/decisions/{excluded}/replay", {"policy": "[defaults]\nmoed=1"})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_policy")
    assert "defaults.moed" in refused.json()["detail"]
    unknown = ask(server, "/v1/decisions/dec-000000000000/replay", {})
    assert unknown.status_code == 404


def test_the_policy_of_a_server_is_kept_with_its_text(server: Running) -> None:
    (kept,) = get(server, "/v1/policy/versions")["items"]
    assert kept["in_force"]
    assert kept["version"] == get(server, "/v1/policy")["version"]
    told = get(server, f"/v1/policy/versions/{kept['version']}")
    assert told["text"] == POLICY
    assert server.admin.get("/v1/policy/versions/none").status_code == 404
    shown = get(server, "/v1/policy")["pools"][0]["rules"]
    assert (shown[0]["mode"], shown[0]["rungs"]) == ("advise", [])


def test_differences_name_the_nodes_that_change_pool(server: Running, node: Feeder) -> None:
    answer = ask(server, "/v1/policy/diff", {"after": OTHER}).json()
    assert {"node_id": NODE, "before": "default", "after": "p"} in answer["nodes"]
    assert [c["what"] for c in answer["changes"] if c["pool"] == "p"] == ["pool"]
    assert ask(server, "/v1/policy/diff", {}).json()["changes"] == []


def test_what_another_policy_would_have_made_of_history(server: Running, excluded: str) -> None:
    answer = ask(server, "/v1/policy/simulation", {"policy": OTHER, "since": 0}).json()
    (mine,) = [one for one in answer["cases"] if one["entity"] == f"GPU-{NODE}-1"]
    assert (mine["before"]["effect"], mine["after"]["effect"]) == ("excluded", "observed")
    assert answer["differing"] >= 1
    assert answer["unread"] == {}
    same = ask(server, "/v1/policy/simulation", {"policy": POLICY, "since": 0}).json()
    assert (same["differing"], same["decisions"]) == (0, answer["decisions"])
    later = ask(server, "/v1/policy/simulation", {"policy": OTHER, "since": 4e9}).json()
    assert (later["decisions"], later["by"]) == (0, [])


def test_the_commands_over_a_server(
    server: Running,
    excluded: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("GPUWARDEN_URL", server.url)
    monkeypatch.setenv("GPUWARDEN_KEY", server.mint("reader"))
    other, wrong = tmp_path / "other.toml", tmp_path / "wrong.toml"
    other.write_text(OTHER)
    wrong.write_text('[[defaults.rules]]\nrungs = ["reset"]\nmode = "act"\n')

    def told(*words: str, code: ExitCode = ExitCode.DONE) -> str:
        assert run(list(words)) == code
        out = capsys.readouterr()
        return out.out + out.err

    assert "valid, version" in told("policy", "check", str(other))
    mistake = told("policy", "check", str(wrong), code=ExitCode.USAGE)
    assert "defaults.rules[0].rungs" in mistake
    assert "write one of exclude, drain, evict" in mistake
    assert NODE in told("policy", "diff", "server", str(other))
    assert "compare with `server`" in told("policy", "diff", str(other), str(other))
    simulated = told("policy", "simulate", str(other), "--against", "history", "--since", "0")
    assert f"GPU-{NODE}-1" in simulated
    assert "observed (exclude)" in simulated
    assert "the same decision" in told("replay", excluded)
    differs = told("replay", excluded, "--policy", str(other), code=ExitCode.NEGATIVE)
    assert "another decision" in differs
    assert get(server, "/v1/policy")["version"] in told("policy", "versions")
    assert told("policy", "show") == POLICY


def test_only_who_the_policy_names_may_approve(server: Running, node: Feeder) -> None:
    node.events(xid_event(64, SLOTS[2]))

    def waiting() -> list[dict[str, str]]:
        found = get(server, "/v1/decisions", entity=f"GPU-{NODE}-2", phase="proposed")["items"]
        return [one for one in found if one["rung"] != "suspect"]

    wait_until(waiting, "advice to exclude")
    (advice,) = waiting()
    assert (advice["mode"], advice["fault_class"]) == ("advise", "memory")
    bob = server.mint("operator", name="bob")
    path, body = f"/v1/decisions/{advice['id']}/approve", {"reason": "looks right"}
    with server.client(bob) as client:
        refused = client.post(path, json=body)
    assert (refused.status_code, refused.json()["code"]) == (403, "not_approver")
    assert "ana, role:admin" in refused.json()["detail"]
    assert server.admin.post(path, json=body).json()["phase"] == "in_force"


def test_what_is_kept_no_longer_is_said_to_be(server: Running, excluded: str) -> None:
    """A decision of before there were snapshots."""
    app = server.app
    assert app is not None
    writer = app.state.base.store.state.writer
    writer.call(lambda connection: connection.execute(decision_snapshots.delete()))
    answer = ask(server, f"/v1/decisions/{excluded}/replay", {})
    assert (answer.status_code, answer.json()["code"]) == (404, "no_snapshot")
    assert "GPUWARDEN_RETENTION_SNAPSHOTS_DAYS" in answer.json()["mend"]


def test_a_restart_still_knows_when_something_came_back(server: Running) -> None:
    """A cool-down counts from the end of our own exclusion; a revoke or a pin's end is none."""
    app = server.app
    assert app is not None
    ours, revoked, pinned, renewed = (_exclusion(number) for number in range(4))
    pinned = replace(pinned, incident_id=None, decided_by="pin")
    held, lifted = DecisionPhase.IN_FORCE, DecisionPhase.LIFTED
    after = ((ours, lifted), (revoked, DecisionPhase.REVOKED), (pinned, lifted), (renewed, held))
    ends = [DecisionMove(replace(one, phase=to), held, "", "ana", 200.0) for one, to in after]
    begins = [DecisionMove(one, None, "", "gpuwarden", 100.0) for one, _ in after]

    def write(connection: Connection) -> None:
        write_decision_moves(connection, begins, {})
        write_decision_moves(connection, ends, {})

    app.state.base.store.state.writer.call(write)
    with app.state.base.store.state.read() as connection:
        told = {entity: at for (_, entity), at in read_returns(connection).items()}
    assert {entity: at for entity, at in told.items() if entity.startswith("GPU-returned")} == {
        ours.entity.key: 200.0
    }
    book = Book(Kept())
    book.apply(Outcome(move.decision.entity, decision_moves=(move,)) for move in ends)
    assert [book.returned_at(key_of(one.entity)) for one, _ in after] == [200.0, None, None, None]


def _exclusion(number: int) -> Decision:
    return Decision(
        id=f"dec-returned-{number}",
        entity=EntityRef(EntityKind.GPU, f"GPU-returned-{number}", NODE),
        rung=Rung.EXCLUDE,
        phase=DecisionPhase.IN_FORCE,
        mode=Mode.ACT,
        fault_class=FaultClass.BUS,
        reasons=("told",),
        confidence=1.0,
        decided_by="rule",
        incident_id="inc-1",
        policy_version="",
        model_version="",
        decided_at=100.0,
        expires_at=None,
    )
