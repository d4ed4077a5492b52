"""Facts are told once by id, signed, also to a receiver that was away."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwarden_server.app import create_app
from gpuwarden_server.config import Settings
from gpuwarden_server.core.errors import StartError
from gpuwarden_wire.events import Backlog
from tests.builders.feed import exclusions_of, get, quick_settings, xid_event
from tests.builders.server import Feeder, Running, make_gpu, running_server, wait_until
from tests.builders.stores import query
from tests.fakes.webhook_receiver import Receiver, receiving_webhooks

BOTH_STORES = True

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
SLOT = "0000:10:00.0"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving_webhooks(SECRET) as made:
        yield made


def settings(folder: Path, url: str, **overrides: Any) -> Settings:
    return quick_settings(
        folder, webhook_url=url, webhook_secret=SECRET, webhook_retry_s=0.005, **overrides
    )


def lose_and_revoke(server: Running) -> None:
    node = Feeder(server, server.mint("agent", "told"), "told")
    node.introduce([make_gpu(0, "told")])
    node.events(xid_event(79, SLOT))
    wait_until(lambda: exclusions_of(server)["count"] == 1, "excluded")
    (decision,) = get(server, "/v1/decisions", phase="in_force")["items"]
    revoke = f"/v1/decisions/{decision['id']}/revoke"
    server.admin.post(revoke, json={"reason": "sound"}).raise_for_status()
    node.close()


@pytest.mark.postgres
def test_a_receiver_that_fails_and_recovers_gets_every_fact_once(
    tmp_path: Path, receiver: Receiver
) -> None:
    receiver.answers = [503, 500, 429, 302, 404]
    with running_server(settings(tmp_path, receiver.url)) as server:
        lose_and_revoke(server)
        wait_until(lambda: len(receiver.accepted) == 3, "three facts told")
        wait_until(
            lambda: server.figure("gpuwarden_notify_attempts_total", outcome="delivered") == 3,
            "three attempts counted as delivered",
        )
        assert server.figure("gpuwarden_notify_attempts_total", outcome="failed") == 5
    assert sorted(receiver.types()) == ["decision.ended", "decision.in_force", "incident.opened"]
    assert len(set(receiver.accepted)) == 3
    assert len(receiver.tried) == 8
    opened = next(b for b in receiver.bodies.values() if b["type"] == "incident.opened")
    assert opened["data"]["entity"] == "GPU-told-0"
    assert opened["timestamp"].endswith("Z")
    log = query(tmp_path / "state", "SELECT http_status, error FROM deliveries ORDER BY row")
    phases = query(tmp_path / "state", "SELECT DISTINCT phase FROM notify_messages")
    assert [status for status, _ in log if status != 204] == [503, 500, 429, 302, 404]
    assert phases == [("delivered",)]


def test_what_is_long_past_goes_on_record_and_is_not_told(
    tmp_path: Path, receiver: Receiver
) -> None:
    with running_server(settings(tmp_path, receiver.url)) as server:
        node = Feeder(server, server.mint("agent", "old"), "old")
        node.introduce([make_gpu(n, "old") for n in range(2)])
        node.events(xid_event(79, SLOT, backlog=Backlog.OLDER_BOOT))
        wait_until(lambda: get(server, "/v1/incidents", phase="resolved")["items"], "on record")
        node.events(xid_event(79, "0000:11:00.0"))
        wait_until(lambda: len(receiver.accepted) == 2, "the present is told")
        node.close()
    told = {body["data"]["entity"] for body in receiver.bodies.values()}
    assert told == {"GPU-old-1"}


def test_what_was_not_told_is_told_after_a_restart(tmp_path: Path, receiver: Receiver) -> None:
    nowhere = "http://127.0.0.1:9/hook"  # the discard port: nobody listens
    first = settings(tmp_path, nowhere)
    with running_server(first) as server:
        lose_and_revoke(server)
        wait_until(
            lambda: server.figure("gpuwarden_notify_attempts_total", outcome="failed") >= 1,
            "a failed attempt",
        )
    again = settings(tmp_path, receiver.url, admin_key=first.admin_key)
    with running_server(again):
        wait_until(lambda: len(receiver.accepted) == 3, "all told")
    assert len(receiver.tried) == 3


def test_a_metadata_address_is_never_sent_to(tmp_path: Path) -> None:
    with running_server(settings(tmp_path, "http://169.254.169.254/latest")) as server:
        lose_and_revoke(server)
        wait_until(
            lambda: server.figure("gpuwarden_notify_attempts_total", outcome="failed") >= 1,
            "refused",
        )
    errors = query(tmp_path / "state", "SELECT DISTINCT error FROM deliveries")
    ((error,),) = errors
    assert "AddressRefused" in error
    assert "169.254.169.254" in error


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"webhook_url": "ftp://example.org/x"}, "GPUWARDEN_WEBHOOK_URL"),
        ({"webhook_secret": "whsec_"}, "GPUWARDEN_WEBHOOK_SECRET"),
        ({"webhook_secret": "whsec_c2hvcnQ="}, "GPUWARDEN_WEBHOOK_SECRET"),
        ({"webhook_secret": "no base64 at all, but of some length"}, "GPUWARDEN_WEBHOOK_SECRET"),
        ({"webhook_secret": None}, "go together"),
    ],
)
def test_an_endpoint_that_cannot_work_refuses_the_start(
    tmp_path: Path, changes: dict[str, str | None], names: str
) -> None:
    values: dict[str, Any] = {"webhook_url": "https://example.org/x", "webhook_secret": SECRET}
    with pytest.raises(StartError, match=names):
        create_app(quick_settings(tmp_path, **{**values, **changes}))
