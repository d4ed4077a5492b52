"""Spares of a running server: leased in the transaction of the exclusion, told on the feed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpuwarden_cli.app import run
from gpuwarden_cli.exits import ExitCode
from gpuwarden_server.config import Settings
from gpuwarden_verdict.policy.document import Mode
from tests.builders.feed import (
    exclusions_of,
    get,
    quick_settings,
    reading_feed,
    wait_sweeps,
    xid_event,
)
from tests.builders.server import Feeder, Running, make_gpu, running_server, wait_until
from tests.builders.stores import StoreKind

BOTH_STORES = True
SLOT = "0000:10:00.0"
WHY = {"reason": "as the ticket says"}


def settings_of(folder: Path, mode: Mode = Mode.ACT, standby: str = "promote = true") -> Settings:
    settings = quick_settings(folder, mode)
    assert settings.policy_file is not None
    with settings.policy_file.open("a") as file:
        file.write(f"standby = {{ {standby} }}\n")
    return settings


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, store_kind: StoreKind) -> Iterator[Running]:
    with running_server(settings_of(tmp_path_factory.mktemp("spares"))) as running:
        yield running


class Nodes:
    """Nodes of one test, with names of their own; their spares leave the book at its end."""

    def __init__(self, server: Running, word: str) -> None:
        self.server = server
        self.word = word
        self.feeders: dict[str, Feeder] = {}

    def add(self, name: str, **placed: str) -> str:
        node_id = f"{self.word}-{name}"
        feeder = Feeder(self.server, self.server.mint("agent", node_id), node_id)
        feeder.introduce([make_gpu(number, node_id) for number in range(2)], **placed)
        self.feeders[node_id] = feeder
        return node_id

    def spare(self, name: str, **body: Any) -> str:
        node_id = self.add(name)
        said = {"node_id": node_id, "state": "warm", "proven": True, **WHY, **body}
        self.post("/v1/standby", said).raise_for_status()
        return node_id

    def fail(self, node_id: str) -> str:
        self.feeders[node_id].events(xid_event(79, SLOT))
        return f"GPU-{node_id}-0"

    def post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        return self.server.admin.post(path, json=body)

    def close(self) -> None:
        # What is out without a joiner would wait for the spares of the next test.
        for one in exclusions_of(self.server)["exclusions"]:
            if one["node_id"] in self.feeders:
                self.post(f"/v1/decisions/{one['decision_id']}/revoke", WHY)
        book = get(self.server, "/v1/standby")
        for lease in reversed(book["leases"]):  # a spare of a spare goes first
            self.post(f"/v1/standby/{lease['joiner']}/release", {"keep": "leaver", **WHY})
        for one in book["spares"]:
            self.post(f"/v1/standby/{one['node_id']}/remove", WHY)
        for feeder in self.feeders.values():
            feeder.close()


@pytest.fixture
def nodes(server: Running, request: pytest.FixtureRequest) -> Iterator[Nodes]:
    made = Nodes(server, f"n{abs(hash(request.node.name)) % 10**8}")
    yield made
    made.close()


def exclusion_on(server: Running, node_id: str) -> dict[str, Any] | None:
    found = exclusions_of(server)["exclusions"]
    return next((one for one in found if one["node_id"] == node_id), None)


def spare_of(server: Running, node_id: str) -> dict[str, Any]:
    spares = get(server, "/v1/standby")["spares"]
    return next(one for one in spares if one["node_id"] == node_id)


def proposals_for(server: Running, leaver: str) -> list[dict[str, Any]]:
    found = get(server, "/v1/standby")["proposals"]
    return [one for one in found if one["leaver"] == leaver]


@pytest.mark.postgres
def test_an_exclusion_and_its_joiner_are_one_change_of_the_feed(
    server: Running, nodes: Nodes
) -> None:
    joiner, leaver = nodes.spare("s1"), nodes.add("w1")
    before = get(server, "/v1/exclusions")["epoch"]
    with reading_feed(server) as feed:
        told = feed.wait_added(nodes.fail(leaver))
    (one,) = told.body["added"]
    assert (one["node_id"], one["joiner"]) == (leaver, joiner)
    assert told.body["epoch"] == before + 1
    book = get(server, "/v1/standby")
    (lease,) = book["leases"]
    assert (lease["joiner"], lease["leaver"], lease["author"]) == (joiner, leaver, "gpuwarden")
    assert lease["decision_id"] == one["decision_id"]
    assert spare_of(server, joiner)["state"] == "leased"
    assert spare_of(server, joiner)["obstacles"] == ["leased"]
    (entry,) = get(server, "/v1/audit", action="promote_standby", target=f"node:{joiner}")["items"]
    assert (entry["author"], entry["after"]["leaver"]) == ("gpuwarden", leaver)
    why = get(server, f"/v1/nodes/{leaver}/why")["standby"]
    assert why.startswith(f"replaced by {joiner} (lease {lease['epoch']}: elsewhere, warm")
    wait_sweeps(server, 3)
    assert get(server, "/v1/standby")["leases"] == [lease], "one node, one joiner"


def test_a_spare_that_may_not_be_taken_is_not_and_the_node_goes_out_all_the_same(
    server: Running, nodes: Nodes
) -> None:
    unproven, leaver = nodes.spare("s1", proven=False), nodes.add("w1")
    with reading_feed(server) as feed:
        (one,) = feed.wait_added(nodes.fail(leaver)).body["added"]
    assert one["joiner"] is None
    (proposal,) = proposals_for(server, leaver)
    assert (proposal["joiner"], proposal["waiting"]) == (None, False)
    assert spare_of(server, unproven)["obstacles"] == ["no_proof"]
    named = {"leaver": leaver, "joiner": unproven, **WHY}
    refused = nodes.post("/v1/standby/promotions", named)
    assert (refused.status_code, refused.json()["code"]) == (409, "spare_not_able")
    assert "no_proof" in refused.json()["detail"]
    none = nodes.post("/v1/standby/promotions", {"leaver": leaver, **WHY})
    assert (none.status_code, none.json()["code"]) == (409, "no_spare")
    assert server.figure("gpuwarden_standby_unmet_total", pool="default") >= 1.0


def test_a_passed_check_of_the_whole_node_proves_a_spare(server: Running, nodes: Nodes) -> None:
    node_id = nodes.spare("s1", proven=False)
    told = {"name": "burn_in", "state": "ok", "node": node_id, "proves_repair": True, "id": "p1"}
    answer = nodes.post("/v1/events", {"events": [told]})
    assert answer.json()["items"][0]["outcome"] == "stored", answer.text
    wait_until(lambda: spare_of(server, node_id)["obstacles"] == [], "the check counts")
    weak = nodes.spare("s2", proven=False)
    told = {"name": "ping", "state": "ok", "node": weak, "id": "p2"}
    nodes.post("/v1/events", {"events": [told]}).raise_for_status()
    wait_sweeps(server)
    assert spare_of(server, weak)["obstacles"] == ["no_proof"]


def test_a_failing_spare_is_passed_over_and_replaces_nobody(server: Running, nodes: Nodes) -> None:
    sick, sound, leaver = nodes.spare("s1"), nodes.spare("s2"), nodes.add("w1")
    with reading_feed(server) as feed:
        (one,) = feed.wait_added(nodes.fail(sick)).body["added"]
        assert one["joiner"] is None, "an idle spare that fails needs no replacement"
        (one,) = feed.wait_added(nodes.fail(leaver)).body["added"]
    assert one["joiner"] == sound
    assert set(spare_of(server, sick)["obstacles"]) == {
        *("excluded", "open_incident", "not_healthy", "proof_overtaken")
    }


def test_a_release_says_who_goes_on_and_the_feed_hears_of_it(server: Running, nodes: Nodes) -> None:
    joiner, leaver = nodes.spare("s1"), nodes.add("w1")
    with reading_feed(server) as feed:
        feed.wait_added(nodes.fail(leaver))
        (lease,) = get(server, "/v1/standby")["leases"]
        path = f"/v1/standby/{joiner}"
        refused = nodes.post(f"{path}/remove", WHY)
        assert (refused.status_code, refused.json()["code"]) == (409, "leased")
        ended = nodes.post(f"{path}/release", {"keep": "joiner", **WHY}).json()
        assert (ended["epoch"], ended["ended_why"]) == (lease["epoch"], WHY["reason"])
        wait_until(
            lambda: (
                [c.body["added"][0]["joiner"] for c in feed.changes() if c.body["added"]]
                == [joiner, None]
            ),
            "the feed hears that nobody works for it",
        )
    book = get(server, "/v1/standby")
    (swapped,) = book["spares"]
    assert (swapped["node_id"], swapped["state"], book["leases"]) == (leaver, "cold", [])
    assert {"excluded", "no_proof"} <= set(swapped["obstacles"])
    assert proposals_for(server, leaver) == [], "what stands by needs no replacement"
    again = nodes.post(f"/v1/standby/{joiner}/release", {"keep": "leaver", **WHY})
    assert again.status_code == 404
    (newest, *_) = get(server, "/v1/standby/leases")["items"]
    assert (newest["epoch"], newest["ended_at"]) == (lease["epoch"], ended["ended_at"])


@pytest.mark.postgres
def test_a_rename_keeps_book_lease_and_feed(server: Running, nodes: Nodes) -> None:
    joiner, leaver = nodes.spare("s1"), nodes.add("w1")
    with reading_feed(server) as feed:
        feed.wait_added(nodes.fail(leaver))
    for old in (joiner, leaver):
        nodes.post(f"/v1/nodes/{old}/rename", {"to": f"{old}x", **WHY}).raise_for_status()
    (lease,) = get(server, "/v1/standby")["leases"]
    assert (lease["joiner"], lease["leaver"]) == (f"{joiner}x", f"{leaver}x")
    one = exclusion_on(server, f"{leaver}x")
    assert one is not None and one["joiner"] == f"{joiner}x"
    (stored, *_) = get(server, "/v1/standby/leases")["items"]
    assert (stored["joiner"], stored["leaver"]) == (f"{joiner}x", f"{leaver}x")


def test_a_planned_leave_has_its_joiner_who_stays_when_the_leaver_is_back(
    server: Running, nodes: Nodes
) -> None:
    joiner, leaver = nodes.spare("s1"), nodes.add("w1")
    with reading_feed(server) as feed:
        made = nodes.post("/v1/leaves", {"nodes": [leaver], "at": 0, **WHY})
        (leave,) = made.json()["items"]
        (one,) = feed.wait_added(leaver).body["added"]
        assert (one["decided_by"], one["joiner"]) == ("pin", joiner)
        nodes.post(f"/v1/pins/{leave['id']}/end", WHY).raise_for_status()
        feed.wait_removed(leaver)
    (lease,) = get(server, "/v1/standby")["leases"]
    assert (lease["joiner"], lease["leaver"]) == (joiner, leaver)


def test_words_that_cannot_be_taken_are_refused_with_the_mend(
    server: Running, nodes: Nodes
) -> None:
    sound = nodes.add("w1")
    for body, status, code in (
        ({"node_id": "nobody", **WHY}, 404, "not_found"),
        ({"node_id": sound, "pool": "none", **WHY}, 404, "not_found"),
        ({"node_id": sound, "state": "leased", **WHY}, 422, "invalid_value"),
    ):
        refused = nodes.post("/v1/standby", body)
        assert (refused.status_code, refused.json()["code"]) == (status, code), refused.text
        assert refused.json()["mend"]
    refused = nodes.post("/v1/standby/promotions", {"leaver": sound, **WHY})
    assert (refused.status_code, refused.json()["code"]) == (409, "not_excluded")
    assert nodes.post(f"/v1/standby/{sound}/remove", WHY).status_code == 404


def test_said_again_nothing_changes(server: Running, nodes: Nodes) -> None:
    joiner, leaver = nodes.spare("s1", proven=False), nodes.add("w1")
    body = {"node_id": joiner, "state": "warm", **WHY}
    entries = len(get(server, "/v1/audit", target=f"node:{joiner}")["items"])
    assert nodes.post("/v1/standby", body).json()["state"] == "warm"
    assert len(get(server, "/v1/audit", target=f"node:{joiner}")["items"]) == entries
    nodes.post("/v1/standby", {**body, "proven": True}).raise_for_status()
    with reading_feed(server) as feed:
        feed.wait_added(nodes.fail(leaver))
    (lease,) = get(server, "/v1/standby")["leases"]
    promoted = nodes.post("/v1/standby/promotions", {"leaver": leaver, **WHY})
    assert promoted.json() == lease
    other = nodes.post("/v1/standby/promotions", {"leaver": leaver, "joiner": leaver, **WHY})
    assert (other.status_code, other.json()["code"]) == (409, "already_replaced")


def test_advice_proposes_a_joiner_and_one_word_does_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = settings_of(tmp_path, Mode.ADVISE, "promote = false, lease_s = 3600")
    with running_server(settings) as server:
        nodes = Nodes(server, "a")
        joiner, leaver = nodes.spare("s1"), nodes.add("w1")
        with reading_feed(server) as feed:
            gpu = nodes.fail(leaver)
            wait_until(lambda: get(server, "/v1/standby")["proposals"], "a proposal")
            (proposal,) = get(server, "/v1/standby")["proposals"]
            assert (proposal["joiner"], proposal["waiting"]) == (joiner, True)
            assert proposal["automatic"] is False
            assert feed.added() == []
            assert settings.admin_key is not None
            monkeypatch.setenv("GPUWARDEN_URL", server.url)
            monkeypatch.setenv("GPUWARDEN_KEY", settings.admin_key.get_secret_value())
            assert run(["standby", "promote", leaver, "--reason", "agreed"]) == ExitCode.DONE
            (one,) = feed.wait_added(gpu).body["added"]
            assert one["joiner"] == joiner
            assert [len(c.body["added"]) for c in feed.changes()] == [1], "one change of the feed"
        (lease,) = get(server, "/v1/standby")["leases"]
        assert lease["expires_at"] == pytest.approx(lease["begun_at"] + 3600.0)
        assert get(server, "/v1/audit", action="approve_decision")["items"]
        assert run(["standby"]) == ExitCode.DONE
        told = capsys.readouterr().out
        assert f"{joiner} works for {leaver}" in told and "leased" in told
        words = ["--keep", "leaver", "--reason", "back"]
        assert run(["standby", "release", joiner, *words]) == ExitCode.DONE
        assert run(["standby", "leases"]) == ExitCode.DONE
        assert run(["standby", "remove", joiner, "--reason", "gone"]) == ExitCode.DONE
        again = ["standby", "add", joiner, "--reason", "back", "--state", "warming", "--proven"]
        assert run(again) == ExitCode.DONE
        assert "stands by for pool default, warming" in capsys.readouterr().out
        nodes.close()


def test_a_lease_expires_and_a_restart_keeps_the_book(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, standby="promote = true, lease_s = 2")
    with running_server(settings) as server:
        nodes = Nodes(server, "x")
        joiner, leaver = nodes.spare("s1"), nodes.add("w1")
        with reading_feed(server) as feed:
            feed.wait_added(nodes.fail(leaver))
        assert get(server, "/v1/standby")["leases"]
        for feeder in nodes.feeders.values():
            feeder.close()
    with running_server(settings) as server:
        wait_until(lambda: not get(server, "/v1/standby")["leases"], "the lease expires")
        (spare,) = get(server, "/v1/standby")["spares"]
        assert (spare["node_id"], spare["state"]) == (joiner, "returning")
        assert "returning" in spare["obstacles"], "its work goes on, for all we know"
        assert server.figure("gpuwarden_standby_unmet_total", pool="default") == 1.0
        (ended,) = get(server, "/v1/standby/leases")["items"]
        assert (ended["ended_by"], ended["ended_why"]) == ("gpuwarden", "the lease has expired")
        one = exclusion_on(server, leaver)
        assert one is not None and one["joiner"] is None
        said = {"node_id": joiner, "state": "cold", **WHY}
        server.admin.post("/v1/standby", json=said).raise_for_status()
        assert "returning" not in spare_of(server, joiner)["obstacles"]


def test_a_spare_of_a_spare_stands_by_only_once_no_lease_names_it(tmp_path: Path) -> None:
    with running_server(settings_of(tmp_path)) as server:
        nodes = Nodes(server, "c")
        first, leaver = nodes.spare("s1"), nodes.add("w1")
        with reading_feed(server) as feed:
            (one,) = feed.wait_added(nodes.fail(leaver)).body["added"]
            assert one["joiner"] == first
            second = nodes.spare("s2")
            (one,) = feed.wait_added(nodes.fail(first)).body["added"]
            assert one["joiner"] == second
        outer, inner = get(server, "/v1/standby")["leases"]
        for joiner, keep, code, other in (
            (second, "joiner", "leaver_is_leased", first),
            (first, "leaver", "joiner_is_replaced", second),
        ):
            refused = nodes.post(f"/v1/standby/{joiner}/release", {"keep": keep, **WHY})
            assert (refused.status_code, refused.json()["code"]) == (409, code), refused.text
            assert f"release {other}" in refused.json()["mend"]
        assert get(server, "/v1/standby")["leases"] == [outer, inner], "nothing changed"
        for joiner in (first, second):
            told = nodes.post(f"/v1/standby/{joiner}/release", {"keep": "joiner", **WHY})
            told.raise_for_status()
        book = get(server, "/v1/standby")
        assert book["leases"] == []
        assert {one["node_id"] for one in book["spares"]} == {leaver, first}
        nodes.close()


def test_a_fault_after_the_proof_wants_another_proof(server: Running, nodes: Nodes) -> None:
    node_id = nodes.spare("s1")
    assert spare_of(server, node_id)["obstacles"] == []
    nodes.fail(node_id)
    wait_until(lambda: exclusion_on(server, node_id) is not None, "it is out")
    decision = exclusion_on(server, node_id)
    assert decision is not None
    nodes.post(f"/v1/decisions/{decision['decision_id']}/revoke", WHY).raise_for_status()
    for incident in get(server, "/v1/incidents", node=node_id)["items"]:
        nodes.post(f"/v1/incidents/{incident['id']}/clear", WHY)
    wait_until(
        lambda: spare_of(server, node_id)["obstacles"] == ["proof_overtaken"], "its fault is over"
    )
    said = {"node_id": node_id, "state": "warm", "proven": True, **WHY}
    nodes.post("/v1/standby", said).raise_for_status()
    assert spare_of(server, node_id)["obstacles"] == []


def test_a_part_that_came_in_is_unproven(server: Running, nodes: Nodes) -> None:
    node_id = nodes.spare("s1")
    nodes.feeders[node_id].introduce([make_gpu(number, node_id) for number in range(3)])
    wait_until(lambda: spare_of(server, node_id)["obstacles"] == ["proof_overtaken"], "a new GPU")


def test_a_node_without_a_gpu_is_never_taken(server: Running, nodes: Nodes) -> None:
    node_id = "n-login"
    nodes.feeders[node_id] = Feeder(server, server.mint("agent", node_id), node_id)
    nodes.feeders[node_id].introduce([])
    said = {"node_id": node_id, "state": "warm", "proven": True, **WHY}
    nodes.post("/v1/standby", said).raise_for_status()
    assert spare_of(server, node_id)["obstacles"] == ["no_gpus"]


def test_a_spare_that_becomes_able_later_goes_to_who_waits_for_one(
    server: Running, nodes: Nodes
) -> None:
    unproven, leaver = nodes.spare("s1", proven=False), nodes.add("w1")
    with reading_feed(server) as feed:
        gpu = nodes.fail(leaver)
        assert feed.wait_added(gpu).body["added"][0]["joiner"] is None
        told = {"name": "burn_in", "state": "ok", "node": unproven, "proves_repair": True}
        nodes.post("/v1/events", {"events": [told | {"id": f"late-{unproven}"}]}).raise_for_status()
        wait_until(lambda: get(server, "/v1/standby")["leases"], "leased by itself")
        wait_until(
            lambda: (
                feed.changes()[-1].body["added"][-1:]
                and feed.changes()[-1].body["added"][-1]["joiner"] == unproven
            ),
            "the feed tells who comes",
        )
    (lease,) = get(server, "/v1/standby")["leases"]
    assert (lease["joiner"], lease["leaver"], lease["author"]) == (unproven, leaver, "gpuwarden")
    assert lease["reason"].endswith("able only now")
    (entry,) = get(server, "/v1/audit", action="promote_standby", target=f"node:{unproven}")[
        "items"
    ]
    assert entry["author"] == "gpuwarden"
    release = {"keep": "leaver", **WHY}
    nodes.post(f"/v1/standby/{unproven}/release", release).raise_for_status()
    other = nodes.spare("s2")
    wait_sweeps(server, 15)
    assert get(server, "/v1/standby")["leases"] == [], f"{other}: a person said that it has none"


def test_an_excluded_part_takes_its_new_node_out_and_that_gets_a_joiner(
    server: Running, nodes: Nodes
) -> None:
    spares = {nodes.spare("s1"), nodes.spare("s2")}
    old, new = nodes.add("w1"), nodes.add("w2")
    with reading_feed(server) as feed:
        gpu = nodes.fail(old)
        (one,) = feed.wait_added(gpu).body["added"]
        first = one["joiner"]
        assert (one["node_id"], first in spares) == (old, True)
        (second,) = spares - {first}
        nodes.feeders[old].introduce([make_gpu(1, old)])
        nodes.feeders[new].introduce([make_gpu(0, new, gpu_uuid=gpu), make_gpu(1, new)])
        wait_until(
            lambda: (at := exclusion_on(server, new)) is not None and at["joiner"] == second,
            "out with the part, and replaced",
        )
    assert exclusion_on(server, old) is None, "its part is gone"
    leases = {one["leaver"]: one["joiner"] for one in get(server, "/v1/standby")["leases"]}
    assert leases == {old: first, new: second}, "who worked for the former works on"
