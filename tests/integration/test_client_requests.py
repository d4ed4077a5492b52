"""The typed client over real HTTP: shapes, paging, and every way to be told no."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwarden_runtime.client import Client
from gpuwarden_runtime.config import RuntimeSettings
from gpuwarden_runtime.errors import Refused, ServerUnreachable, SettingError, UnexpectedAnswer
from gpuwarden_runtime.exchange import ONCE
from gpuwarden_runtime.records import Exclusion, MissingReading, Role
from gpuwarden_wire.acknowledgement import Problem, Usable
from tests.fakes.api_server import FakeApi, serve
from tests.fakes.ports import free_port

GPU = Exclusion(entity_kind="gpu", entity="GPU-1", node_id="n1", gpu_uuid="GPU-1", gpu_index=3)


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def client(api: FakeApi) -> Iterator[Client]:
    with serve(api) as url, Client(RuntimeSettings(url=url), retry=ONCE) as client:
        yield client


def test_verdicts_of_few_nodes_go_by_get_and_of_many_by_post(api: FakeApi, client: Client) -> None:
    api.exclude(GPU)
    few = client.verdicts(["n1", "n2"])
    assert [item.node.usable for item in few.verdicts] == [Usable.NO, Usable.UNKNOWN]
    many = client.verdicts([f"m{number}" for number in range(51)])
    assert len(many.verdicts) == 51
    assert [(method, path) for method, path, _ in api.requests] == [
        ("GET", "/v1/verdicts"),
        ("POST", "/v1/verdicts"),
    ]


def test_pages_are_followed_to_the_last(api: FakeApi, client: Client) -> None:
    api.answers["GET", "/v1/nodes"] = {"items": [{"node_id": "n1"}], "next_cursor": None}
    assert [node.node_id for node in client.all_nodes()] == ["n1"]


def test_names_stay_one_path_segment(api: FakeApi, client: Client) -> None:
    with pytest.raises(Refused):
        client.node("../keys?x=1#y")
    assert api.requests[-1][:2] == ("GET", "/v1/nodes/../keys?x=1#y")


def test_readings_are_numbers_or_reasons_and_new_fields_are_ignored(
    api: FakeApi, client: Client
) -> None:
    api.answers["GET", "/v1/gpus/GPU-1"] = {
        "gpu_uuid": "GPU-1",
        "of_a_later_version": {"x": 1},
        "readings": {
            "gpu_temperature_celsius": 61.0,
            "gpu_power_watts": {"missing": "unavailable", "reason": "timeout", "age_s": None},
        },
    }
    readings = client.gpu("GPU-1").readings
    assert readings["gpu_temperature_celsius"] == 61.0
    assert readings["gpu_power_watts"] == MissingReading(missing="unavailable", reason="timeout")


def test_acting_sends_the_reason(api: FakeApi, client: Client) -> None:
    path = "/v1/decisions/dec-1/revoke"
    api.answers["POST", path] = {"id": "dec-1", "phase": "revoked"}
    assert client.revoke_decision("dec-1", "cable was loose").phase == "revoked"
    assert api.requests[-1] == ("POST", path, {"reason": "cable was loose"})


def test_key_is_made(api: FakeApi, client: Client) -> None:
    api.answers["POST", "/v1/keys"] = {"id": "k1", "key": "gw_x", "role": "agent", "node": "n1"}
    assert client.create_key(Role.AGENT, "n1", "").key == "gw_x"
    assert api.requests[-1][2].items() >= {"role": "agent", "node": "n1", "name": ""}.items()


def test_problem_is_carried_with_its_mend(api: FakeApi, client: Client) -> None:
    api.problems["GET", "/v1/nodes"] = Problem(
        type="urn:x", title="Busy", status=503, code="busy", detail="", mend="wait"
    )
    with pytest.raises(Refused) as caught:
        client.nodes()
    assert (caught.value.mend, caught.value.retryable) == ("wait", True)
    assert "GET /v1/nodes: Busy [503 busy]" in str(caught.value)


def test_missing_key_names_the_setting(api: FakeApi, client: Client) -> None:
    api.key = "gw_right"
    with pytest.raises(Refused) as caught:
        client.nodes()
    assert caught.value.problem.code == "unauthenticated"
    assert "GPUWARDEN_KEY" in caught.value.mend
    assert not caught.value.retryable


def test_key_is_sent(api: FakeApi) -> None:
    api.key = "gw_right"
    with serve(api) as url, Client(RuntimeSettings(url=url, key="gw_right")) as client:
        assert client.exclusions().count == 0


@pytest.mark.parametrize("text", ["<html>hello</html>", '{"items": 3}', ""])
def test_answer_of_somebody_else_is_named(api: FakeApi, client: Client, text: str) -> None:
    api.answers["GET", "/v1/nodes"] = text
    with pytest.raises(UnexpectedAnswer, match="GET /v1/nodes"):
        client.nodes()


def test_nobody_there() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with Client(RuntimeSettings(url=url), retry=ONCE) as client:
        with pytest.raises(ServerUnreachable, match=url) as caught:
            client.nodes()
        assert caught.value.retryable
        with pytest.raises(ServerUnreachable), client.exclusion_stream(None):
            pass


def test_certificates_that_are_none_are_named(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("no certificate")
    with pytest.raises(SettingError, match=str(file)):
        Client(RuntimeSettings(ca_file=file))
