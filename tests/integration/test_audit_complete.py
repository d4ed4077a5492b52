"""No route that writes goes unaudited: each one of the table of grants is called and looked for."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from html import unescape
from typing import Any

import pytest
from pydantic import SecretStr

from gpuwarden_server.access.authorisation import ROUTE_GRANTS, RouteKey
from gpuwarden_verdict.policy.document import Mode
from tests.builders.feed import get, quick_settings, xid_event
from tests.builders.models import digest_of, version_files
from tests.builders.server import Feeder, Running, make_gpu, running_server, wait_until
from tests.fakes.clock import MovedClock

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
WHY = {"reason": "as the ticket says"}
TOLD = {
    ("POST", "/v1/ingest"),
    ("POST", "/api/v1/write"),
    ("POST", "/v1/alerts/alertmanager"),
    ("POST", "/v1/events"),
    ("POST", "/v1/diagnoses"),
    ("POST", "/v1/sessions/{session_id}/progress"),
}
"""What machines tell is stored as what it is: events and readings, each with who sent it; so is an
answer with who asked, and it changes nothing."""
WRITES = {
    route
    for route, grant in ROUTE_GRANTS.items()
    if route[0] not in ("GET", "HEAD") and not grant.reads
} - TOLD


class Stage:
    """A server with something behind every route; `do` gives what a call needs."""

    def __init__(self, server: Running, clock: MovedClock) -> None:
        self.server = server
        self.clock = clock

    def post(self, path: str, body: dict[str, Any] | None = None) -> Any:
        answer = self.server.admin.post(path, json=WHY if body is None else body)
        assert answer.is_success, f"{path}: {answer.text}"
        return answer.json()

    def decision(self, entity: str) -> str:
        items = get(self.server, "/v1/decisions", entity=entity)["items"]
        return str(items[0]["id"])

    def pinned(self, node: str) -> str:
        body = {"entity_kind": "node", "entity": node, "kind": "allow", **WHY}
        return str(self.post("/v1/pins", body)["id"])

    def press(self, decision_id: str) -> None:
        """What the page of a link in a notification sends."""
        assert self.server.app is not None
        path = self.server.app.state.approval_links.path(decision_id)
        with self.server.client(None) as anybody:
            page = anybody.get(path).text
        found = re.search(r'name="word" value="([^"]+)"', page)
        assert found is not None
        with self.server.client(None) as anybody:
            answer = anybody.post(path, data={"name": "ann", "word": unescape(found[1])})
        assert "Approved by ann" in answer.text

    def incident(self, phase: str = "open") -> str:
        return str(get(self.server, "/v1/incidents", phase=phase)["items"][0]["id"])

    def key(self) -> str:
        return str(self.post("/v1/keys", {"role": "reader", "name": "x"})["id"])

    def token(self, what: str = "id") -> str:
        return str(self.post("/v1/enrolment-tokens", {})[what])

    def added(self, name: str) -> str:
        self.post("/v1/nodes", {"node_id": name, **WHY})
        return name

    def model(self, version: str) -> str:
        told = [
            {"name": name, "content": base64.b64encode(content).decode()}
            for name, content in version_files(version).items()
        ]
        return str(self.post("/v1/models", {"files": told, **WHY})["version"])

    def spare(self, name: str) -> str:
        self.post("/v1/standby", {"node_id": name, "proven": True, **WHY})
        return name

    def promoted(self) -> str:
        """A spare is leased, whatever may have been leased for the leaver before."""
        for lease in get(self.server, "/v1/standby")["leases"]:
            keep = {"keep": "leaver", **WHY}
            self.post(f"/v1/standby/{lease['joiner']}/release", keep)
        self.spare("n2")
        return str(self.post("/v1/standby/promotions", {"leaver": "n1", **WHY})["joiner"])

    def retire(self) -> None:
        self.clock.ahead += 120.0
        wait_until(lambda: get(self.server, "/v1/nodes/n2")["silent"], "silent")
        self.post("/v1/nodes/n2/retire")


CALLS: dict[RouteKey, Callable[[Stage], object]] = {
    ("POST", "/v1/incidents/{incident_id}/acknowledge"): lambda s: s.post(
        f"/v1/incidents/{s.incident()}/acknowledge"
    ),
    ("POST", "/v1/decisions/{decision_id}/revoke"): lambda s: s.post(
        f"/v1/decisions/{s.decision('GPU-n1-2')}/revoke"
    ),
    ("POST", "/v1/decisions/{decision_id}/hold"): lambda s: s.post(
        f"/v1/decisions/{s.decision('GPU-n1-0')}/hold", {"duration_s": 60, **WHY}
    ),
    ("POST", "/v1/decisions/{decision_id}/let-go"): lambda s: s.post(
        f"/v1/decisions/{s.decision('GPU-n1-0')}/let-go"
    ),
    ("POST", "/v1/decisions/{decision_id}/approve"): lambda s: [
        s.post(f"/v1/decisions/{s.decision(gpu)}/approve") for gpu in ("GPU-n1-0", "GPU-n1-1")
    ],
    ("POST", "/approve/{token}"): lambda s: s.press(s.decision("GPU-n1-3")),
    ("POST", "/v1/pins"): lambda s: s.pinned("n2"),
    ("POST", "/v1/pins/{pin_id}/end"): lambda s: s.post(f"/v1/pins/{s.pinned('n2')}/end"),
    ("POST", "/v1/leaves"): lambda s: s.post(
        "/v1/leaves", {"nodes": ["n2"], "at": s.clock.now() + 86400.0, **WHY}
    ),
    ("POST", "/v1/gpus/{gpu_uuid}/repair"): lambda s: s.post("/v1/gpus/GPU-n1-0/repair"),
    ("POST", "/v1/nodes/{node_id}/repair"): lambda s: s.post("/v1/nodes/n1/repair"),
    ("POST", "/v1/nodes/{node_id}/remedies"): lambda s: s.post(
        "/v1/nodes/n1/remedies", {"act": "reboot", **WHY}
    ),
    ("POST", "/v1/nodes"): lambda s: s.added("n3"),
    ("POST", "/v1/nodes/{node_id}/rename"): lambda s: s.post(
        f"/v1/nodes/{s.added('n4')}/rename", {"to": "n5", **WHY}
    ),
    ("PUT", "/v1/inventory"): lambda s: s.server.admin.put(
        "/v1/inventory", json={"nodes": [{"node_id": "n1", "rack": "r1"}]}
    ).raise_for_status(),
    ("POST", "/v1/notifications/endpoints/{name}/test"): lambda s: s.post(
        "/v1/notifications/endpoints/webhook/test"
    ),
    ("POST", "/v1/notifications/endpoints/{name}/enable"): lambda s: s.post(
        "/v1/notifications/endpoints/webhook/enable"
    ),
    ("POST", "/v1/notifications/endpoints/{name}/replay"): lambda s: s.post(
        "/v1/notifications/endpoints/webhook/replay"
    ),
    ("POST", "/v1/silences"): lambda s: s.post(
        "/v1/silences", {"matchers": ["rack=r9"], "duration_s": 60, **WHY}
    ),
    ("POST", "/v1/silences/{silence_id}/expire"): lambda s: s.post(
        f"/v1/silences/{get(s.server, '/v1/silences')['items'][0]['id']}/expire"
    ),
    ("POST", "/v1/keys"): Stage.key,
    ("POST", "/v1/keys/{key_id}/rotate"): lambda s: s.post(f"/v1/keys/{s.key()}/rotate", {}),
    ("DELETE", "/v1/keys/{key_id}"): lambda s: s.server.admin.delete(
        f"/v1/keys/{s.key()}"
    ).raise_for_status(),
    ("POST", "/v1/enrolment-tokens"): Stage.token,
    ("DELETE", "/v1/enrolment-tokens/{token_id}"): lambda s: s.server.admin.delete(
        f"/v1/enrolment-tokens/{s.token()}"
    ).raise_for_status(),
    ("POST", "/v1/enrol"): lambda s: s.post("/v1/enrol", {"token": s.token("token"), "node": "e"}),
    ("POST", "/v1/incidents/{incident_id}/verdict"): lambda s: s.post(
        f"/v1/incidents/{s.incident('live')}/verdict", {"verdict": "hardware"}
    ),
    ("POST", "/v1/models"): lambda s: s.model("gpu-a"),
    ("POST", "/v1/models/{model_kind}/promotion"): lambda s: s.post(
        "/v1/models/gpu/promotion", {"version": s.model("gpu-b"), **WHY}
    ),
    ("POST", "/v1/models/{model_kind}/trials"): lambda s: s.post(
        "/v1/models/gpu/trials",
        {
            "version": s.model("gpu-d"),
            "digest": digest_of(version_files("gpu-d")),
            "healthy_days": 9.0,
            "false_actions": 0,
            "exclude_confidence": 0.8,
            "entities": ["GPU-n1-0"],
            "origin": "",
            "recording_digest": "",
            **WHY,
        },
    ),
    ("POST", "/v1/models/{model_kind}/rollback"): lambda s: s.post("/v1/models/gpu/rollback"),
    ("POST", "/v1/models/{model_kind}/challenger"): lambda s: s.post(
        "/v1/models/gpu/challenger", {"version": s.model("gpu-c"), **WHY}
    ),
    ("DELETE", "/v1/models/{model_kind}/challenger"): lambda s: s.server.admin.delete(
        "/v1/models/gpu/challenger"
    ).raise_for_status(),
    ("POST", "/v1/incidents/{incident_id}/clear"): lambda s: s.post(
        f"/v1/incidents/{s.incident('live')}/clear"
    ),
    ("POST", "/v1/standby"): lambda s: s.spare("n2"),
    ("POST", "/v1/standby/promotions"): Stage.promoted,
    ("POST", "/v1/standby/{node_id}/release"): lambda s: s.post(
        f"/v1/standby/{s.promoted()}/release", {"keep": "leaver", **WHY}
    ),
    ("POST", "/v1/standby/{node_id}/remove"): lambda s: s.post(
        f"/v1/standby/{s.spare('n2')}/remove"
    ),
    ("POST", "/v1/nodes/{node_id}/retire"): Stage.retire,
}
"""A good call of each route, in an order in which they do not get in each other's way."""
ACTIONS: dict[RouteKey, str] = {
    ("POST", "/v1/incidents/{incident_id}/acknowledge"): "acknowledge_incident",
    ("POST", "/v1/incidents/{incident_id}/clear"): "clear_incident",
    ("POST", "/v1/incidents/{incident_id}/verdict"): "judge_incident",
    ("POST", "/v1/models"): "add_model",
    ("POST", "/v1/models/{model_kind}/promotion"): "promote_model",
    ("POST", "/v1/models/{model_kind}/trials"): "record_trial",
    ("POST", "/v1/models/{model_kind}/rollback"): "roll_back_model",
    ("POST", "/v1/models/{model_kind}/challenger"): "challenge_model",
    ("DELETE", "/v1/models/{model_kind}/challenger"): "end_challenger",
    ("POST", "/v1/decisions/{decision_id}/revoke"): "revoke_decision",
    ("POST", "/v1/decisions/{decision_id}/hold"): "hold_decision",
    ("POST", "/v1/decisions/{decision_id}/let-go"): "let_go_decision",
    ("POST", "/v1/decisions/{decision_id}/approve"): "approve_decision",
    ("POST", "/approve/{token}"): "approve_decision",
    ("POST", "/v1/pins"): "set_pin",
    ("POST", "/v1/pins/{pin_id}/end"): "end_pin",
    ("POST", "/v1/leaves"): "plan_leave",
    ("POST", "/v1/gpus/{gpu_uuid}/repair"): "begin_repair",
    ("POST", "/v1/nodes/{node_id}/repair"): "begin_repair",
    ("POST", "/v1/nodes/{node_id}/remedies"): "ask_reboot",
    ("POST", "/v1/nodes"): "add_node",
    ("POST", "/v1/nodes/{node_id}/rename"): "rename_node",
    ("PUT", "/v1/inventory"): "put_inventory",
    ("POST", "/v1/notifications/endpoints/{name}/test"): "test_endpoint",
    ("POST", "/v1/notifications/endpoints/{name}/enable"): "enable_endpoint",
    ("POST", "/v1/notifications/endpoints/{name}/replay"): "replay_messages",
    ("POST", "/v1/silences"): "create_silence",
    ("POST", "/v1/silences/{silence_id}/expire"): "expire_silence",
    ("POST", "/v1/keys"): "create_key",
    ("POST", "/v1/keys/{key_id}/rotate"): "rotate_key",
    ("DELETE", "/v1/keys/{key_id}"): "revoke_key",
    ("POST", "/v1/enrolment-tokens"): "create_enrolment_token",
    ("DELETE", "/v1/enrolment-tokens/{token_id}"): "revoke_enrolment_token",
    ("POST", "/v1/enrol"): "enrol_node",
    ("POST", "/v1/standby"): "add_standby",
    ("POST", "/v1/standby/promotions"): "promote_standby",
    ("POST", "/v1/standby/{node_id}/release"): "release_standby",
    ("POST", "/v1/standby/{node_id}/remove"): "remove_standby",
    ("POST", "/v1/nodes/{node_id}/retire"): "retire_node",
}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    clock = MovedClock()
    folder = tmp_path_factory.mktemp("audit")
    hooks = folder / "actuators.toml"
    hooks.write_text(
        '[[actuators]]\nname = "hook"\nkind = "command"\ncommand = ["true"]\n'
        'remedies = ["reboot"]\n'
    )
    nobody: dict[str, Any] = {
        "actuators_file": hooks,
        "webhook_url": "http://127.0.0.1:9/",
        "webhook_secret": SecretStr(SECRET),
        "approval_link_s": 3600.0,
    }
    settings = quick_settings(folder, Mode.ADVISE, **nobody)
    with running_server(settings, clock) as server:
        for name in ("n1", "n2"):
            node = Feeder(server, server.mint("agent", name), name)
            node.introduce([make_gpu(number, name) for number in range(4)])
            if name == "n1":
                node.events(*(xid_event(79, f"0000:1{n}:00.0") for n in range(4)))
            node.close()
        wait_until(lambda: len(get(server, "/v1/decisions")["items"]) == 4, "four advices", 60.0)
        yield Stage(server, clock)


def test_every_route_that_writes_is_called_here() -> None:
    assert set(CALLS) == WRITES
    assert set(ACTIONS) == WRITES


@pytest.mark.parametrize("route", CALLS, ids=" ".join)
def test_a_write_leaves_an_entry(stage: Stage, route: RouteKey) -> None:
    def told() -> list[dict[str, Any]]:
        found = get(stage.server, "/v1/audit", action=ACTIONS[route], limit=1000)["items"]
        return list(found)

    before = len(told())
    CALLS[route](stage)
    new = told()[before:]
    assert new, f"{route}: nothing of it stands in the audit"
    assert all(one["author"] and one["target"] for one in new)
    assert any(one["before"] is not None or one["after"] is not None for one in new)
