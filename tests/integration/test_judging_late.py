"""What comes late: acted on where it is news, shown where nobody knows, and else put on record."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwarden_wire.batches import Stream
from gpuwarden_wire.events import Backlog, Event, EventKind
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
    make_event,
    make_gpu,
    running_server,
    wait_until,
)

SLOT = "0000:10:00.0"
OTHER_SLOT = "0000:11:00.0"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_server(quick_settings(tmp_path_factory.mktemp("late"))) as running:
        yield running


@pytest.fixture
def node(server: Running, request: pytest.FixtureRequest) -> Iterator[Feeder]:
    name = request.node.name.replace("test_", "").replace("[", "-").rstrip("]")[:60]
    feeder = Feeder(server, server.mint("agent", name), name)
    feeder.introduce(gpus_of(feeder))
    yield feeder
    feeder.close()


def gpus_of(node: Feeder) -> list[Any]:
    return [make_gpu(number, node.node_id) for number in range(2)]


def gpu_of(node: Feeder, number: int = 0) -> str:
    return f"GPU-{node.node_id}-{number}"


def state_of(server: Running, node: Feeder) -> object:
    return get(server, f"/v1/gpus/{gpu_of(node)}")["state"]


def decisions_of(server: Running, node: Feeder) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = get(server, "/v1/decisions", node=node.node_id)["items"]
    return items


def incidents_of(server: Running, node: Feeder) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = get(server, "/v1/incidents", node=node.node_id)["items"]
    return items


def about_gpu(kind: EventKind, node: Feeder, **fields: Any) -> Event:
    return make_event(kind=kind, entity_kind=EntityKind.GPU, entity=gpu_of(node), **fields)


def must_be_on_record_only(server: Running, node: Feeder) -> None:
    """What was sent is an incident that opened and closed; a fault on the other GPU acts."""
    wait_until(lambda: incidents_of(server, node), "on record")
    wait_sweeps(server)
    (incident,) = incidents_of(server, node)
    assert incident["phase"] == "resolved"
    moves = get(server, f"/v1/incidents/{incident['id']}")["moves"]
    assert (moves[0]["before"], moves[-1]["after"]) == (None, "resolved")
    assert state_of(server, node) == "healthy"
    assert decisions_of(server, node) == []


def test_a_line_of_an_older_boot_opens_and_closes_as_history(server: Running, node: Feeder) -> None:
    node.events(xid_event(79, SLOT, backlog=Backlog.OLDER_BOOT))
    must_be_on_record_only(server, node)


def test_a_line_from_before_the_boot_that_the_node_told_is_history(
    server: Running, node: Feeder
) -> None:
    now = time.time()
    boot = make_event(kind=EventKind.NODE_BOOT, attributes={"booted_at": now - 600})
    node.boot_id = "boot-2"
    node.events(boot)
    node.events(xid_event(79, SLOT, observed_at=now - 700))
    must_be_on_record_only(server, node)
    node.events(xid_event(79, OTHER_SLOT, observed_at=now - 500))
    wait_until(lambda: gpu_of(node, 1) in excluded(server), "a fault of this boot, read late")


def excluded(server: Running) -> list[str]:
    return [one["entity"] for one in exclusions_of(server)["exclusions"]]


def test_a_batch_of_an_older_boot_that_comes_after_the_newer_is_history(
    server: Running, node: Feeder
) -> None:
    former, node.boot_id = node.boot_id, "boot-2"
    node.introduce(gpus_of(node))
    node.events(xid_event(79, SLOT), boot_id=former)
    must_be_on_record_only(server, node)


def test_a_fault_that_a_boot_follows_within_the_replay_excludes_nobody(
    server: Running, node: Feeder
) -> None:
    with reading_feed(server) as feed:
        node.events(xid_event(79, SLOT), more_events=True, late=True)
        node.boot_id = "boot-2"
        node.introduce(gpus_of(node))
        wait_until(lambda: incidents_of(server, node), "an incident")
        wait_until(lambda: incidents_of(server, node)[0]["phase"] == "resolved", "closed")
    assert gpu_of(node) not in feed.added()


def test_what_a_first_look_finds_is_shown_and_excludes_not_by_itself(
    server: Running, node: Feeder
) -> None:
    node.events(xid_event(79, SLOT, backlog=Backlog.FIRST_LOOK))
    wait_until(lambda: state_of(server, node) == "suspect", "suspect")
    wait_sweeps(server, 8)  # settled twice over
    (decision,) = decisions_of(server, node)
    assert (decision["rung"], decision["phase"]) == ("suspect", "proposed")
    (incident,) = incidents_of(server, node)
    assert (incident["phase"], incident["severity"]) == ("open", "critical")
    assert "before the agent first read it" in incident["why"]
    assert gpu_of(node) not in excluded(server)


def test_a_first_look_and_another_plane_together_exclude(server: Running, node: Feeder) -> None:
    node.events(xid_event(79, SLOT, observed_at=time.time() - 120, backlog=Backlog.FIRST_LOOK))
    node.events(about_gpu(EventKind.GPU_LOST, node, attributes={"probes": 1}))
    wait_until(lambda: gpu_of(node) in excluded(server), "one probe confirms what the log said")


def test_a_fault_of_now_acts_whatever_the_first_look_found(server: Running, node: Feeder) -> None:
    node.events(xid_event(79, SLOT, observed_at=time.time() - 120, backlog=Backlog.FIRST_LOOK))
    wait_until(lambda: state_of(server, node) == "suspect", "suspect")
    node.events(xid_event(79, SLOT))
    wait_until(lambda: gpu_of(node) in excluded(server), "excluded")


def test_a_first_look_at_what_has_long_expired_is_history(server: Running, node: Feeder) -> None:
    old = time.time() - 3 * 86400
    node.events(xid_event(94, SLOT, observed_at=old, backlog=Backlog.FIRST_LOOK))
    must_be_on_record_only(server, node)


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "of_another_trouble"])
def test_a_check(server: Running, node: Feeder, whole: bool) -> None:
    """In one batch, as a replay brings them: the order within it counts, not its arrival."""
    attributes = {} if whole else {"after": ["row_remap_pending"]}
    check = about_gpu(EventKind.CHECK_PASSED, node, attributes=attributes)
    late = xid_event(79, SLOT, observed_at=check.observed_at - 5)
    with reading_feed(server) as feed:
        node.events(xid_event(79, SLOT, observed_at=check.observed_at - 9), check, late)
        wait_until(lambda: incidents_of(server, node), "on record")
        wait_sweeps(server)
        assert (gpu_of(node) in feed.added()) is not whole
    assert {one["phase"] for one in incidents_of(server, node)} == (
        {"resolved"} if whole else {"open"}
    )


def test_a_nodes_check_covers_gpus_that_were_never_judged(server: Running, node: Feeder) -> None:
    check = make_event(kind=EventKind.CHECK_PASSED, text="dcgm r3")
    node.events(check)
    node.events(xid_event(79, SLOT, observed_at=check.observed_at - 5))
    must_be_on_record_only(server, node)


def test_a_gpu_that_is_lost_and_back_within_one_batch_is_not_held_for_lost(
    server: Running, node: Feeder
) -> None:
    node.events(
        about_gpu(EventKind.GPU_LOST, node, attributes={"probes": 3}),
        about_gpu(EventKind.GPU_BACK, node),
    )
    wait_until(lambda: incidents_of(server, node), "an incident")
    wait_until(lambda: incidents_of(server, node)[0]["phase"] == "resolved", "closed")
    assert gpu_of(node) not in excluded(server)


def test_an_old_event_fed_again_leaves_a_repaired_gpu_alone(server: Running, node: Feeder) -> None:
    fault = xid_event(79, SLOT)
    with reading_feed(server) as feed:
        node.events(fault)
        feed.wait_added(gpu_of(node))
        path = f"/v1/gpus/{gpu_of(node)}/repair"
        server.admin.post(path, json={"reason": "swap the board"}).raise_for_status()
        node.events(about_gpu(EventKind.CHECK_PASSED, node, text="dcgm r3"))
        feed.wait_removed(gpu_of(node))
    wait_until(lambda: state_of(server, node) == "healthy", "healthy after the dwell")
    again = xid_event(79, SLOT, observed_at=fault.observed_at)  # another id: a log read anew
    node.events(fault, again)
    wait_sweeps(server)
    assert state_of(server, node) == "healthy"
    assert len(decisions_of(server, node)) == 1
    score = get(server, f"/v1/gpus/{gpu_of(node)}/why")["risk"]
    assert score is None, "no reading came, and an event from before the check is not counted"


def test_a_lost_spool_brings_the_same_ids_and_decides_nothing_twice(
    server: Running, node: Feeder
) -> None:
    fault = xid_event(79, SLOT)
    node.events(fault, interval_s=0.05)
    wait_until(lambda: gpu_of(node) in excluded(server), "excluded")
    anew = Feeder(server, node.key, node.node_id, boot_id=node.boot_id)  # with a spool of its own
    first = anew.batch(Stream.EVENTS, events=(anew.boot(), fault))
    wait_until(lambda: anew.post(first).status_code == 200, "the former spool is silent by now")
    wait_sweeps(server)
    anew.close()
    assert (len(incidents_of(server, node)), len(decisions_of(server, node))) == (1, 1)
    stored = get(server, "/v1/events", node=node.node_id)["items"]
    assert [one["id"] for one in stored].count(fault.id) == 1


HOUR_S = 3600.0


def must_exclude(server: Running, node: Feeder) -> None:
    wait_until(lambda: gpu_of(node) in excluded(server), "a fault of now, whatever clocks said")


@pytest.mark.parametrize(
    "told",
    [HOUR_S, 1e300, -5.0, 0.0, float("nan"), float("inf"), "soon", True, [1.0]],
    ids=["an_hour_ahead", "absurd", "negative", "zero", "nan", "inf", "word", "bool", "list"],
)
def test_a_wrong_time_of_boot_hides_no_fault(server: Running, node: Feeder, told: Any) -> None:
    at = time.time() + told if told == HOUR_S else told
    node.boot_id = "boot-2"
    node.events(make_event(kind=EventKind.NODE_BOOT, attributes={"booted_at": at}))
    node.events(xid_event(79, SLOT))
    must_exclude(server, node)


def test_a_time_of_boot_that_is_none_is_flagged(server: Running, node: Feeder) -> None:
    before = server.figure("gpuwarden_ingest_event_flags_total", flag="no_time")
    node.events(make_event(kind=EventKind.NODE_BOOT, attributes={"booted_at": "soon"}))
    assert server.figure("gpuwarden_ingest_event_flags_total", flag="no_time") == before + 1


def test_a_check_while_the_clock_was_ahead_hides_no_fault_after_it(
    server: Running, node: Feeder
) -> None:
    now = time.time()
    node.events(about_gpu(EventKind.CHECK_PASSED, node, observed_at=now + HOUR_S))
    node.events(xid_event(79, SLOT, observed_at=now))
    must_exclude(server, node)


def test_a_check_that_waited_while_the_clock_was_ahead_hides_no_fault_after_it(
    server: Running, node: Feeder
) -> None:
    """No time here is ahead of the server's: only that batches come in order tells."""
    now = time.time()
    check = about_gpu(EventKind.CHECK_PASSED, node, observed_at=now - HOUR_S)
    node.events(check, sent_at=now - HOUR_S)
    node.events(xid_event(79, SLOT, observed_at=now - 2 * HOUR_S), sent_at=now - 2 * HOUR_S)
    must_exclude(server, node)


def test_a_check_ends_a_fault_that_was_told_while_the_clock_was_ahead(
    server: Running, node: Feeder
) -> None:
    now = time.time()
    node.events(xid_event(79, SLOT, observed_at=now + HOUR_S), sent_at=now + HOUR_S)
    must_exclude(server, node)
    node.events(about_gpu(EventKind.CHECK_PASSED, node, observed_at=now))
    wait_until(lambda: gpu_of(node) not in excluded(server), "the check came after it")


def test_marks_of_a_wrong_clock_hide_no_fault_after_a_restart(tmp_path: Path) -> None:
    settings = quick_settings(tmp_path)
    now = time.time()
    with running_server(settings) as first:
        node = Feeder(first, first.mint("agent", "node"), "node")
        node.introduce(gpus_of(node))
        boot = {"booted_at": now + HOUR_S}
        node.events(
            make_event(kind=EventKind.NODE_BOOT, observed_at=now + HOUR_S, attributes=boot),
            about_gpu(EventKind.CHECK_PASSED, node, observed_at=now + HOUR_S),
        )
        node.events(xid_event(31, OTHER_SLOT))
        wait_until(lambda: incidents_of(first, node), "judged")
        node.close()
    with running_server(settings) as second:
        node.server, node.client = second, second.admin
        node.events(xid_event(79, SLOT))
        wait_until(lambda: gpu_of(node) in excluded(second), "a fault of now")
