"""Remote write over real HTTP: a fleet without an agent is judged as any other."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpuwarden_verdict.engine.spools import DOOR_SPOOL
from tests.builders.dcgm import OTHER_UUID, UUID, DcgmGpu, dcgm_text
from tests.builders.feed import exclusions_of, get, quick_settings, reading_feed
from tests.builders.remote_write import (
    HEADERS,
    Sampled,
    compressed,
    push,
    scraped,
    stale,
    varint,
)
from tests.builders.server import (
    Feeder,
    Running,
    make_gpu,
    running_server,
    wait_until,
)
from tests.builders.stores import StoreKind
from tests.fakes.clock import MovedClock

BOTH_STORES = True

NUMBERS: dict[str, float | str] = {
    "DCGM_FI_DEV_GPU_TEMP": 41,
    "DCGM_FI_DEV_POWER_USAGE": 300,
    "DCGM_FI_DEV_XID_ERRORS": 0,
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": 0,
}


class Exporter:
    """A node's dcgm-exporter as Prometheus has it; two scrapes make its page known."""

    def __init__(self, client: httpx.Client, node: str, uuid: str = UUID) -> None:
        self.client, self.node = client, node
        self.gpu = DcgmGpu(uuid=uuid, numbers=dict(NUMBERS))
        self.at = time.time() - 60

    def scrape(self, **numbers: float) -> list[Sampled]:
        self.at += 1
        self.gpu.numbers |= numbers
        text = dcgm_text([self.gpu], host=self.node)
        return scraped(text, self.at, job="dcgm", instance=f"{self.node}:9400")

    def push(self, **numbers: float) -> None:
        answer = push(self.client, self.scrape(**numbers))
        assert answer.status_code == 204, answer.text

    def appear(self) -> None:
        """What waits of a page is read when a sample of the next scrape comes."""
        for _ in range(3):
            self.push()


@pytest.fixture(scope="module")
def clock(store_kind: StoreKind) -> MovedClock:
    return MovedClock()


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, clock: MovedClock, store_kind: StoreKind
) -> Iterator[Running]:
    with running_server(quick_settings(tmp_path_factory.mktemp("write")), clock) as running:
        yield running


@pytest.fixture
def client(server: Running) -> Iterator[httpx.Client]:
    with server.client(server.mint("feeder")) as made:
        yield made


def gpu(server: Running, uuid: str) -> dict[str, Any]:
    found: dict[str, Any] = get(server, f"/v1/gpus/{uuid}")
    return found


def node(server: Running, node_id: str) -> dict[str, Any]:
    found: dict[str, Any] = get(server, f"/v1/nodes/{node_id}")
    return found


def uuid_of(number: int) -> str:
    return f"GPU-{number:08x}-2461-8638-2d09-caf83c2e470b"


def test_a_page_becomes_a_node_with_its_gpu_and_readings(
    server: Running, client: httpx.Client
) -> None:
    exporter = Exporter(client, "page", uuid_of(1))
    exporter.appear()
    seen = gpu(server, uuid_of(1))
    assert (seen["node_id"], seen["pci_bus_id"]) == ("page", "0000:1b:00.0")
    assert seen["model"] == "NVIDIA H100 80GB HBM3" and seen["driver_version"] == "580.95.05"
    assert seen["readings"]["gpu_temperature_celsius"] == 41.0
    told = node(server, "page")
    assert (told["agent_version"], told["silent"], told["gpus_visible"]) == (
        "remote-write",
        False,
        1,
    )
    assert server.admin.post("/v1/verdicts", json={"nodes": ["page"]}).json()["verdicts"]


def test_an_xid_excludes_once_and_a_standing_one_never(
    server: Running, client: httpx.Client
) -> None:
    standing = Exporter(client, "standing", uuid_of(2))
    standing.gpu.numbers["DCGM_FI_DEV_XID_ERRORS"] = 79
    struck = Exporter(client, "struck", uuid_of(3))
    with reading_feed(server) as feed:
        standing.appear()
        struck.appear()
        struck.push(DCGM_FI_DEV_XID_ERRORS=79)
        feed.wait_added(uuid_of(3))
    struck.push()
    events = get(server, "/v1/events", node="struck")["items"]
    assert [one["xid"] for one in events if one["kind"] == "nvml_xid"] == [79]
    assert uuid_of(2) not in str(exclusions_of(server))
    assert not [
        e for e in get(server, "/v1/events", node="standing")["items"] if e["kind"] == "nvml_xid"
    ]


def test_a_level_excludes_at_the_sweep(server: Running, client: httpx.Client) -> None:
    exporter = Exporter(client, "worn", uuid_of(4))
    with reading_feed(server) as feed:
        exporter.appear()
        exporter.push(DCGM_FI_DEV_ROW_REMAP_FAILURE=1)
        exporter.push()
        change = feed.wait_added(uuid_of(4))
    assert "remap" in str(change.body["added"]).lower()


def test_a_series_that_ended_is_missing_and_a_node_without_samples_is_silent(
    server: Running, client: httpx.Client, clock: MovedClock
) -> None:
    exporter = Exporter(client, "leaving", uuid_of(5))
    exporter.appear()
    many = exporter.scrape()
    push(client, many)
    exporter.at += 1
    push(client, stale(many, exporter.at))
    wait_until(
        lambda: (
            gpu(server, uuid_of(5))["readings"]["gpu_power_watts"]
            and isinstance(gpu(server, uuid_of(5))["readings"]["gpu_power_watts"], dict)
        ),
        "the reading says that it is missing",
    )
    clock.ahead += 61
    assert node(server, "leaving")["silent"]
    verdicts = server.admin.post("/v1/verdicts", json={"nodes": ["leaving"]}).json()["verdicts"]
    assert [one["node"]["usable"] for one in verdicts] == ["unknown"]


def test_a_scrape_in_pieces_is_one_look(server: Running, client: httpx.Client) -> None:
    exporter = Exporter(client, "pieces", uuid_of(6))
    exporter.appear()
    before = server.figure("gpuwarden_remote_write_looks_total", outcome="taken")
    push(client, exporter.scrape(DCGM_FI_DEV_GPU_TEMP=50))  # the one before is read with it
    many = exporter.scrape(DCGM_FI_DEV_GPU_TEMP=55)
    push(client, many[:2])
    push(client, many[2:])
    assert gpu(server, uuid_of(6))["readings"]["gpu_temperature_celsius"] == 55.0
    assert server.figure("gpuwarden_remote_write_looks_total", outcome="taken") == before + 2


def test_an_agent_goes_before_remote_write_and_comes_back_to_its_node(
    server: Running, client: httpx.Client, clock: MovedClock
) -> None:
    agent = Feeder(server, server.mint("agent", "both"), "both")
    card = make_gpu(0, gpu_uuid=uuid_of(7), pci_bus_id="0000:1b:00.0")
    agent.introduce([card])
    exporter = Exporter(client, "both", uuid_of(7))
    exporter.appear()
    assert node(server, "both")["agent_version"] == "0.1.0"
    assert server.figure("gpuwarden_remote_write_looks_total", outcome="agent") >= 2
    clock.ahead += 3601  # the agent is gone
    exporter.at = clock.now() - 30
    exporter.appear()
    assert node(server, "both")["agent_version"] == "remote-write"
    assert not node(server, "both")["silent"]
    agent.events()  # with the same spool as before: it speaks again at once
    assert node(server, "both")["agent_version"] == "0.1.0"
    taken = server.figure("gpuwarden_ingest_batches_total", stream="events", outcome="history")
    agent.events(agent.inventory([card]))
    assert taken == server.figure(
        "gpuwarden_ingest_batches_total", stream="events", outcome="history"
    )
    agent.close()


def test_a_narrowed_key_tells_of_its_nodes_only(server: Running) -> None:
    made = server.admin.post(
        "/v1/keys", json={"role": "feeder", "name": "one rack", "scope": {"nodes": ["rack-1-*"]}}
    )
    assert made.status_code == 201, made.text
    with server.client(made.json()["key"]) as narrow:
        Exporter(narrow, "rack-1-a", uuid_of(8)).appear()
        Exporter(narrow, "rack-2-a", uuid_of(9)).appear()
    known = [one["node_id"] for one in get(server, "/v1/nodes", limit=1000)["items"]]
    assert "rack-1-a" in known and "rack-2-a" not in known
    assert server.figure("gpuwarden_remote_write_samples_total", outcome="outside_scope") > 0


def test_what_is_left_out_is_counted_and_harms_nobody(
    server: Running, client: httpx.Client, clock: MovedClock
) -> None:
    now = clock.now()
    odd: list[Sampled] = [
        ({"__name__": "go_goroutines", "instance": "odd:1"}, [(now, 5.0)]),
        ({"__name__": "node_load1"}, [(now, 5.0)]),
        ({"__name__": "node_load1", "instance": "odd:1"}, [(now + 1e6, 5.0)]),
        ({"__name__": "node_load1", "instance": "odd:1"}, [(now - 1e5, 5.0)]),
    ]
    assert push(client, odd).status_code == 204
    for outcome in ("unknown_series", "no_node", "future", "too_old"):
        assert server.figure("gpuwarden_remote_write_samples_total", outcome=outcome) >= 1, outcome


@pytest.mark.parametrize(
    ("body", "headers", "code"),
    [
        (b"", {}, "not_a_write_request"),
        (b"\xff" * 50, {}, "not_a_write_request"),
        (compressed(b"\x0a\xff"), {}, "not_a_write_request"),
        (varint(1 << 31) + b"\x00", {}, "write_too_large"),
        (compressed(b""), {"Content-Encoding": "zstd"}, "wrong_encoding"),
        (compressed(b""), {"Content-Type": "application/json"}, "wrong_media_type"),
        (
            compressed(b""),
            {"Content-Type": "application/x-protobuf;proto=io.prometheus.write.v2.Request"},
            "wrong_media_type",
        ),
    ],
)
def test_what_is_no_write_request_is_refused_by_name(
    client: httpx.Client, body: bytes, headers: dict[str, str], code: str
) -> None:
    answer = client.post("/api/v1/write", content=body, headers=HEADERS | headers)
    assert (answer.status_code // 100, answer.json()["code"]) == (4, code)
    assert answer.json()["mend"]


@pytest.mark.postgres
def test_a_restart_repeats_nothing_and_misses_nothing(tmp_path: Path) -> None:
    settings = quick_settings(tmp_path)
    with running_server(settings) as first:
        key = first.mint("feeder")
        with first.client(key) as client:
            exporter = Exporter(client, "node-1")
            exporter.appear()
            exporter.push(DCGM_FI_DEV_XID_ERRORS=31)
            other = Exporter(client, "node-2", OTHER_UUID)
            other.appear()
    with running_server(settings) as second, second.client(key) as client:
        exporter.client = other.client = client
        with reading_feed(second) as feed:
            exporter.push()  # still 31
            exporter.push()
            other.push(DCGM_FI_DEV_XID_ERRORS=79)  # it came while the server was away
            other.push()
            feed.wait_added(OTHER_UUID)
        kinds = [one["kind"] for one in get(second, "/v1/events", node="node-1")["items"]]
        assert (kinds.count("nvml_xid"), kinds.count("inventory")) == (1, 1)
        kinds = [one["kind"] for one in get(second, "/v1/events", node="node-2")["items"]]
        assert kinds.count("nvml_xid") == 1


def test_the_doors_spool_is_one_that_no_agent_makes() -> None:
    assert len(DOOR_SPOOL) == 32 and int(DOOR_SPOOL, 16) > 0
