"""Every write of a person stands in the audit: who, why, what was before and what is after."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpuwarden_verdict.policy.document import Mode
from tests.builders.feed import get, quick_settings, xid_event
from tests.builders.server import Feeder, Running, make_gpu, running_server, wait_until
from tests.fakes.clock import MovedClock

SLOTS = [f"0000:{0x10 + number:02x}:00.0" for number in range(4)]
WHY = {"reason": "as the ticket says"}


@pytest.fixture(scope="module")
def clock() -> MovedClock:
    return MovedClock()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, clock: MovedClock) -> Iterator[Running]:
    settings = quick_settings(tmp_path_factory.mktemp("audit"), Mode.ADVISE)
    with running_server(settings, clock) as running:
        node = Feeder(running, running.mint("agent", "n1"), "n1")
        node.introduce([make_gpu(number, "n1") for number in range(4)])
        node.events(*(xid_event(79, slot) for slot in SLOTS[:3]))
        wait_until(lambda: len(proposed(running)) == 3, "three advices", 60.0)
        node.close()
        yield running


def proposed(server: Running) -> dict[str, str]:
    """Decisions that wait, by entity."""
    items = get(server, "/v1/decisions", phase="proposed")["items"]
    return {one["entity"]: one["id"] for one in items}


def write(server: Running, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    answer = server.admin.post(path, json=WHY if body is None else body)
    assert answer.is_success, answer.text
    made: dict[str, Any] = answer.json()
    return made


def told(server: Running, action: str, target: str) -> dict[str, Any]:
    """The one entry of an action about a target."""
    (entry,) = get(server, "/v1/audit", action=action, target=target)["items"]
    assert entry["author"] == "first admin"
    assert entry["key_id"].startswith("key-")
    body: dict[str, Any] = entry
    return body


def test_words_about_incidents_and_decisions(server: Running) -> None:
    incident = get(server, "/v1/incidents")["items"][0]["id"]
    write(server, f"/v1/incidents/{incident}/acknowledge")
    entry = told(server, "acknowledge_incident", incident)
    assert entry["reason"] == WHY["reason"]
    assert (entry["before"], entry["after"]) == ({"phase": "open"}, {"phase": "acknowledged"})
    advice = proposed(server)
    for number, action in enumerate(("approve", "revoke")):
        decision = advice[f"GPU-n1-{number}"]
        write(server, f"/v1/decisions/{decision}/{action}")
        entry = told(server, f"{action}_decision", decision)
        assert entry["before"]["phase"] == "proposed"
        assert entry["after"]["phase"] == {"approve": "in_force", "revoke": "revoked"}[action]
        assert entry["reason"] == WHY["reason"]
    write(server, "/v1/gpus/GPU-n1-0/repair")
    entry = told(server, "begin_repair", "gpu:GPU-n1-0")
    assert (entry["before"], entry["after"]) == ({"state": "excluded"}, {"state": "in_repair"})


def test_a_node_in_repair_and_out_of_the_fleet(server: Running, clock: MovedClock) -> None:
    write(server, f"/v1/decisions/{proposed(server)['GPU-n1-2']}/approve")
    write(server, "/v1/nodes/n1/repair")
    entry = told(server, "begin_repair", "gpu:GPU-n1-2")
    assert entry["after"] == {"state": "in_repair"}
    clock.ahead += 3600.0
    wait_until(lambda: get(server, "/v1/nodes/n1")["silent"], "the node is silent", 60.0)
    write(server, "/v1/nodes/n1/retire")
    items = get(server, "/v1/audit", action="retire_node")["items"]
    assert items
    assert all(one["reason"] == WHY["reason"] and one["before"] and one["after"] for one in items)


def test_keys_tokens_and_silences(server: Running) -> None:
    key = write(server, "/v1/keys", {"role": "reader"})["id"]
    write(server, f"/v1/keys/{key}/rotate", {})
    server.admin.delete(f"/v1/keys/{key}").raise_for_status()
    token = write(server, "/v1/enrolment-tokens", {})["id"]
    server.admin.delete(f"/v1/enrolment-tokens/{token}").raise_for_status()
    for action, target, had, has in (
        ("create_key", key, False, True),
        ("rotate_key", key, True, True),
        ("revoke_key", key, True, True),
        ("create_enrolment_token", token, False, True),
        ("revoke_enrolment_token", token, True, True),
    ):
        entry = told(server, action, target)
        assert (entry["before"] is not None, entry["after"] is not None) == (had, has)
        assert entry["before"] != entry["after"]
