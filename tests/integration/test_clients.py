"""Both typed clients against the real server, through one table of what each route gives."""

from __future__ import annotations

import asyncio
import base64
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from gpuwarden_runtime.async_client import AsyncClient
from gpuwarden_runtime.client import Client
from gpuwarden_runtime.config import RuntimeSettings
from gpuwarden_runtime.errors import Refused, ServerUnreachable, UnexpectedAnswer
from gpuwarden_runtime.exchange import ONCE, Retry
from gpuwarden_runtime.records import EntryRecord, Role
from gpuwarden_runtime.routes import Route, Routes, Walk
from gpuwarden_verdict.policy.document import Mode
from gpuwarden_wire.acknowledgement import Usable
from tests.builders import client_rows
from tests.builders.client_rows import DIAGNOSIS_ROWS, Row, then
from tests.builders.feed import get, quick_settings, xid_event
from tests.builders.models import digest_of, version_files
from tests.builders.server import Feeder, Running, gpu_table, make_gpu, running_server, wait_until
from tests.fakes.api_server import FakeApi, serve
from tests.fakes.lossy_transport import Lossy, LossyAsyncTransport, LossyTransport

NODES = ("gpu-017", "gpu-018", "gpu-019")
GPU = "GPU-gpu-017-0"
SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
QUICK = Retry(attempts=4, first_wait_s=0.01)
KINDS = pytest.mark.parametrize("kind", ["sync", "async"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("clients")
    nobody: dict[str, Any] = {
        "webhook_url": "http://127.0.0.1:9/",
        "webhook_secret": SecretStr(SECRET),
    }
    with running_server(quick_settings(folder, Mode.ADVISE, **nobody)) as running:
        for name in NODES:
            node = Feeder(running, running.mint("agent", name), name)
            node.introduce([make_gpu(number, name) for number in range(2)])
            rows = {f"GPU-{name}-{number}": (61.0, 400.0, 1e9) for number in range(2)}
            table, schema = gpu_table(rows)
            node.telemetry([table], [schema])
            node.events(xid_event(79, "0000:10:00.0"))
            node.close()
        wait_until(lambda: len(get(running, "/v1/decisions")["items"]) >= len(NODES), "advice", 20)
        wait_until(lambda: get(running, "/v1/notifications/deliveries")["items"], "a first try")
        wait_until(lambda: len(get(running, "/v1/feature-rows")["items"]) > 1, "features", 60)
        yield running


def settings_of(server: Running) -> RuntimeSettings:
    key = server.admin.headers["authorization"].removeprefix("Bearer ")
    return RuntimeSettings(url=server.url, key=key)


def ask(
    kind: str,
    settings: RuntimeSettings,
    say: Callable[[Any], Any],
    *,
    retry: Retry = ONCE,
    lossy: Lossy | None = None,
) -> Any:
    """What a client of either kind gives; what is gone through comes as a list."""
    if kind == "sync":
        transport = LossyTransport(lossy) if lossy else None
        with Client(settings, transport, retry=retry) as client:
            found = say(client)
            return list(found) if isinstance(found, Iterator) else found

    async def tell() -> Any:
        transport = LossyAsyncTransport(lossy) if lossy else None
        async with AsyncClient(settings, transport, retry=retry) as client:
            found = say(client)
            return await found if inspect.isawaitable(found) else [item async for item in found]

    return asyncio.run(tell())


TABLE: dict[str, Row] = {
    **DIAGNOSIS_ROWS,
    "verdicts": Row(
        lambda c: c.verdicts(["gpu-017", "never-seen"]),
        lambda v: [one.node.usable for one in v.verdicts] == [Usable.YES, Usable.UNKNOWN],
    ),
    "verdicts of many": Row(
        lambda c: c.verdicts([f"n{n}" for n in range(200)]), lambda v: len(v.verdicts) == 200
    ),
    "verdicts in short": Row(
        lambda c: c.verdicts(notable=True),
        lambda v: [len(one.gpus) for one in v.verdicts] == [1] * 3,
    ),
    "exclusions": Row(lambda c: c.exclusions(), lambda v: v.count == len(v.exclusions)),
    "exclusions_text": Row(lambda c: c.exclusions_text("hosts"), lambda v: isinstance(v, str)),
    "nodes": Row(lambda c: c.nodes(limit=2), lambda v: len(v.items) == 2 and v.next_cursor),
    "all_nodes": Row(
        lambda c: c.all_nodes(limit=1), lambda v: tuple(one.node_id for one in v) == NODES
    ),
    "node": Row(lambda c: c.node("gpu-017"), lambda v: v.gpus_visible == 2),
    "gpus": Row(lambda c: c.gpus(limit=1), lambda v: v.items[0].gpu_uuid == GPU),
    "all_gpus": Row(lambda c: c.all_gpus(limit=4), lambda v: len({g.gpu_uuid for g in v}) == 6),
    "gpu": Row(lambda c: c.gpu(GPU), lambda v: v.readings["gpu_temperature_celsius"] == 61.0),
    "why_gpu": Row(lambda c: c.why_gpu(GPU), lambda v: "79" in v.incidents[0].why),
    "why_node": Row(lambda c: c.why_node("gpu-017"), lambda v: v.entity == "gpu-017"),
    "fleet": Row(lambda c: c.fleet(), lambda v: (v.nodes, v.caller.role) == (3, Role.ADMIN)),
    "policy": Row(lambda c: c.policy(), lambda v: v.pools[0]["mode"] == "advise"),
    "incidents": Row(
        lambda c: c.incidents("live", "gpu-018"), lambda v: v.items[0].node_id == "gpu-018"
    ),
    "all_incidents": Row(lambda c: c.all_incidents(limit=1), lambda v: len(v) >= 3),
    "incident": Row(
        lambda c: then(c.incidents(limit=1), lambda page: c.incident(page.items[0].id)),
        lambda v: v.evidence[0].count >= 1,
    ),
    "decisions": Row(lambda c: c.decisions(limit=2), lambda v: len(v.items) == 2),
    "all_decisions": Row(lambda c: c.all_decisions(limit=2), lambda v: len(v) >= 3),
    "decision": Row(
        lambda c: then(c.decisions(limit=1), lambda page: c.decision(page.items[0].id)),
        lambda v: v.rung == "exclude",
    ),
    "events": Row(lambda c: c.events("gpu-017", limit=2), lambda v: v.next_cursor is not None),
    "all_events": Row(lambda c: c.all_events("gpu-017", limit=2), lambda v: len(v) == 3),
    "audit": Row(lambda c: c.audit(limit=1), lambda v: v.items[0].action == "create_key"),
    "all_audit": Row(lambda c: c.all_audit(limit=2), lambda v: len(v) >= 4),
    "keys": Row(lambda c: c.keys(limit=2), lambda v: len(v.items) == 2 and v.items[0].key is None),
    "all_keys": Row(lambda c: c.all_keys(limit=2), lambda v: len({key.id for key in v}) >= 4),
    "nodes narrowed": Row(
        lambda c: c.nodes(pool="default", usable=Usable.YES, silent=False, state="healthy"),
        lambda v: all(one.usable is Usable.YES for one in v.items),
    ),
    "no node is narrowed so": Row(lambda c: c.nodes(pool="none"), lambda v: v.items == ()),
    "silent nodes": Row(lambda c: c.nodes(silent=True), lambda v: v.items == ()),
    "gpus narrowed": Row(
        lambda c: c.all_gpus(limit=1, node="gpu-018", usable=Usable.YES, present=True),
        lambda v: {gpu.node_id for gpu in v} == {"gpu-018"},
    ),
    "suspect gpus": Row(
        lambda c: c.gpus(state="probation"), lambda v: all(g.state == "probation" for g in v.items)
    ),
    "incidents narrowed": Row(
        lambda c: c.incidents(entity=GPU, severity="critical", fault_class="bus"),
        lambda v: {one.entity for one in v.items} == {GPU},
    ),
    "no incident is narrowed so": Row(
        lambda c: c.incidents(entity=GPU, severity="info"), lambda v: v.items == ()
    ),
    "decisions narrowed": Row(
        lambda c: then(
            c.decisions(entity=GPU), lambda page: c.decisions(incident=page.items[0].incident_id)
        ),
        lambda v: {one.entity for one in v.items} == {GPU},
    ),
    "events narrowed": Row(
        lambda c: c.all_events(kind="kernel_log", entity=GPU), lambda v: len(v) == 1
    ),
    "history": Row(
        lambda c: c.history("gpu", ["gpu_power_watts"], entity=GPU, resolution="readings"),
        lambda v: (v.series[0].value, v.series[0].unit, v.step_s) == ((400.0,), "watts", None),
    ),
    "history of a node": Row(
        lambda c: c.history("gpu", ["gpu_temperature_celsius"], node="gpu-018", step_s=60),
        lambda v: len(v.series) == 2 and 61.0 in v.series[0].max and v.series[0].gaps,
    ),
    "endpoints": Row(lambda c: c.endpoints(), lambda v: v[0].lanes[0].lane == v[0].name),
    "test_endpoint": Row(lambda c: c.test_endpoint("webhook"), lambda v: not v[0].delivered),
    "messages": Row(
        lambda c: c.messages("webhook", "waiting", limit=2),
        lambda v: len(v.items) == 2 and v.next_cursor == v.items[-1].row,
    ),
    "all_messages": Row(
        lambda c: c.all_messages(limit=2), lambda v: len({one.row for one in v}) == len(v) >= 3
    ),
    "deliveries": Row(lambda c: c.deliveries(limit=1), lambda v: v.items[0].error != ""),
    "all_deliveries": Row(lambda c: c.all_deliveries("webhook"), lambda v: len(v) >= 1),
    "replay_messages": Row(
        lambda c: c.replay_messages("webhook", "it is back"), lambda v: v.replayed == 0
    ),
    "enable_endpoint": Row(
        lambda c: c.enable_endpoint("webhook", "it is back"), lambda v: v.name == "webhook"
    ),
    "create_silence": Row(
        lambda c: c.create_silence(["rack=r99"], 60.0, "moved", kind="maintenance"),
        lambda v: (v.kind, v.phase, v.matchers) == ("maintenance", "active", ("rack=r99",)),
    ),
    "silences": Row(
        lambda c: then(c.create_silence(["rack=r98"], 60.0, "x"), lambda made: c.silences()),
        lambda v: ("rack=r98",) in {one.matchers for one in v},
    ),
    "expire_silence": Row(
        lambda c: then(
            c.create_silence(["rack=r97"], 60.0, "x"), lambda made: c.expire_silence(made.id, "y")
        ),
        lambda v: v.phase == "ended" and v.expired_by == "first admin",
    ),
    "models": Row(
        lambda c: c.models(), lambda v: [one.kind for one in v] == ["gpu", "node", "nic"]
    ),
    "add_model": Row(
        lambda c: c.add_model(version_files("gpu-brought"), "trained"),
        lambda v: (v.kind, v.version) == ("gpu", "gpu-brought"),
    ),
    "model_files": Row(
        lambda c: then(
            c.add_model(version_files("gpu-brought"), "trained"),
            lambda made: c.model_files(made.kind, made.version),
        ),
        lambda v: {f.name: f.content for f in v.files} == version_files("gpu-brought"),
    ),
    "challenge_model": Row(
        lambda c: then(
            c.add_model(version_files("gpu-brought"), "trained"),
            lambda made: c.challenge_model("gpu", made.version, "is it better?"),
        ),
        lambda v: v.challenger.version == "gpu-brought",
    ),
    "end_challenger": Row(lambda c: c.end_challenger("gpu"), lambda v: v.challenger is None),
    "promote_model": Row(
        lambda c: then(
            c.add_model(version_files("gpu-brought"), "trained"),
            lambda made: c.promote_model("gpu", made.version, "it is better"),
        ),
        lambda v: v.in_use == "gpu-brought",
    ),
    "roll_back_model": Row(
        lambda c: then(
            c.add_model(version_files("gpu-brought"), "trained"),
            lambda made: then(
                c.promote_model("gpu", made.version, "it is better"),
                lambda _: c.roll_back_model("gpu", "it is not"),
            ),
        ),
        lambda v: v.in_use != "gpu-brought",
    ),
    "shadow": Row(
        lambda c: c.shadow(), lambda v: {(one.kind, one.role) for one in v} >= {("gpu", "promoted")}
    ),
    "record_trial": Row(
        lambda c: then(
            c.add_model(version_files("gpu-brought"), "trained"),
            lambda made: c.record_trial(
                *("gpu", made.version, 1000.0, 1, "a month of ours"),
                digest=digest_of(version_files("gpu-brought")),
                exclude_confidence=0.8,
                entities=[GPU],
            ),
        ),
        lambda v: (v.trial, v.false_actions) == ("backtest", 1),
    ),
    "feature_rows": Row(
        lambda c: c.feature_rows(limit=1), lambda v: len(v.items[0].values) % 4 == 0
    ),
    "all_feature_rows": Row(lambda c: c.all_feature_rows("gpu", limit=1), lambda v: len(v) >= 2),
    "judge_incident": Row(
        lambda c: then(
            c.incidents(limit=1),
            lambda page: c.judge_incident(page.items[0].id, "hardware", "RMA 4711"),
        ),
        lambda v: (v.verdict, v.note, v.author) == ("hardware", "RMA 4711", "first admin"),
    ),
    "labels": Row(
        lambda c: c.labels(limit=1), lambda v: v.items[0].label == "hardware" and v.next_cursor
    ),
    "all_labels": Row(
        lambda c: c.all_labels(limit=1), lambda v: len({one.incident_id for one in v}) >= 3
    ),
    "check_ready": Row(lambda c: c.check_ready(), lambda v: v is None),
    "raw": Row(lambda c: c.raw("/v1/nodes", {"limit": 1}), lambda v: len(v["items"]) == 1),
    "raw_post": Row(
        lambda c: c.raw_post("/v1/verdicts", {"nodes": ["x"]}),
        lambda v: v["verdicts"][0]["node_id"] == "x",
    ),
    "raw_ask": Row(
        lambda c: c.raw_ask("/v1/verdicts", {"nodes": ["x"]}),
        lambda v: v["verdicts"][0]["node_id"] == "x",
    ),
    "create_key": Row(
        lambda c: c.create_key(Role.READER, None, "made"), lambda v: v.key.startswith("gw_")
    ),
    "rotate_key": Row(
        lambda c: then(
            c.create_key(Role.READER, None, "turned"), lambda made: c.rotate_key(made.id, 60.0)
        ),
        lambda v: v.key.startswith("gw_"),
    ),
    "delete_key": Row(
        lambda c: then(
            c.create_key(Role.READER, None, "ended"), lambda made: c.delete_key(made.id)
        ),
        lambda v: v.revoked_at is not None,
    ),
    "create_enrolment_token": Row(
        lambda c: c.create_enrolment_token("gpu-*", 2), lambda v: v.token.startswith("gwe_")
    ),
    "enrolment_tokens": Row(
        lambda c: then(c.create_enrolment_token(name="x"), lambda made: c.enrolment_tokens()),
        lambda v: v[-1].token is None and v[-1].uses == 1,
    ),
    "delete_enrolment_token": Row(
        lambda c: then(c.create_enrolment_token(), lambda made: c.delete_enrolment_token(made.id)),
        lambda v: v.revoked_at is not None,
    ),
}
LAST: dict[str, Row] = {  # these move on what the others read
    "add_node": Row(
        lambda c: c.add_node(EntryRecord(node_id=f"new-{type(c).__name__}"), "racked today"),
        lambda v: v.node_id.startswith("new-"),
    ),
    "rename_node": Row(
        lambda c: then(
            c.add_node(EntryRecord(node_id=f"before-{type(c).__name__}"), "racked today"),
            lambda made: c.rename_node(made.node_id, made.node_id.replace("before", "after"), "x"),
        ),
        lambda v: v.node_id.startswith("after-") and v.former[0].startswith("before-"),
    ),
    "add_standby": Row(
        lambda c: c.add_standby("gpu-017", "racked today", state="warm", proven=True),
        lambda v: (v.node_id, v.state) == ("gpu-017", "warm"),
    ),
    "standby": Row(lambda c: c.standby(), lambda v: [one.node_id for one in v.spares] != []),
    "standby_leases": Row(lambda c: c.standby_leases(), lambda v: v == ()),
    "remove_standby": Row(
        lambda c: then(
            c.add_standby("gpu-018", "racked today"), lambda made: c.remove_standby("gpu-018", "x")
        ),
        lambda v: v.node_id == "gpu-018",
    ),
    "put_inventory": Row(
        lambda c: c.put_inventory([EntryRecord(node_id="gpu-017")], dry_run=True),
        lambda v: v is not None,
    ),
    "inventory": Row(lambda c: c.inventory(limit=1), lambda v: len(v.items) == 1),
    "all_inventory": Row(
        lambda c: c.all_inventory(limit=1), lambda v: len(v) >= 2
    ),  # these move on what the others read
    "acknowledge_incident": Row(
        lambda c: then(
            c.incidents("open", limit=1), lambda page: c.acknowledge_incident(page.items[0].id, "x")
        ),
        lambda v: v.phase == "acknowledged",
    ),
    "end_job": Row(
        lambda c: c.end_job("slurm:77", "FAILED", 1, user="ann", nodes=["gpu-017"]),
        lambda v: v.items[0].outcome != "refused",
    ),
    "why_job": Row(
        lambda c: then(
            c.end_job("slurm:78", "FAILED", 1, nodes=["gpu-018"]), lambda _: c.why_job("slurm:78")
        ),
        lambda v: v.line.startswith("slurm:78 "),
    ),
    "approve_decision": Row(
        lambda c: then(
            c.decisions("proposed", limit=1),
            lambda page: c.approve_decision(page.items[0].id, "agreed"),
        ),
        lambda v: v.phase == "in_force",
    ),
    "repair_gpu": Row(
        lambda c: then(
            c.gpus(),
            lambda page: c.repair_gpu(
                next(one.gpu_uuid for one in page.items if one.state == "excluded"), "reseated"
            ),
        ),
        lambda v: v.state == "in_repair",
    ),
    "revoke_decision": Row(
        lambda c: then(
            c.decisions("live", limit=1), lambda page: c.revoke_decision(page.items[0].id, "sound")
        ),
        lambda v: v.phase == "revoked",
    ),
    "clear_incident": Row(
        lambda c: then(
            c.incidents("live", limit=1), lambda page: c.clear_incident(page.items[0].id, "x")
        ),
        lambda v: v.phase == "resolved",
    ),
}


@KINDS
@pytest.mark.parametrize("name", [*TABLE, *LAST])
def test_every_route_gives_its_record(server: Running, kind: str, name: str) -> None:
    row = (TABLE | LAST)[name]
    answer = ask(kind, settings_of(server), row.say)
    assert row.holds(answer), answer


@KINDS
@pytest.mark.parametrize(
    ("say", "code"),
    [
        (lambda c: c.node("none"), "not_found"),
        (lambda c: c.repair_node("none", "x"), "not_found"),
        (lambda c: c.retire_node("none", "x"), "not_found"),
        (lambda c: c.rename_node("gpu-017", "gpu-018", "x"), "node_known"),
        (lambda c: c.promote_standby("none", "x"), "not_found"),
        (lambda c: c.release_standby("none", "leaver", "x"), "not_found"),
        (lambda c: c.nodes(limit=0), "invalid_value"),
        (lambda c: c.create_key(Role.AGENT, None, ""), "invalid_value"),
    ],
)
def test_a_refusal_is_a_typed_error_and_is_not_tried_again(
    server: Running, kind: str, say: Callable[[Any], Any], code: str
) -> None:
    lossy = Lossy(0)
    with pytest.raises(Refused) as refused:
        ask(kind, settings_of(server), say, retry=QUICK, lossy=lossy)
    assert refused.value.problem.code == code
    assert refused.value.mend
    assert not refused.value.retryable
    assert len(lossy.sent) == 1


@KINDS
def test_a_write_whose_answer_is_lost_is_carried_out_once(server: Running, kind: str) -> None:
    lossy = Lossy(2)
    name = f"lost-{kind}"
    made = ask(
        kind,
        settings_of(server),
        lambda c: c.create_key(Role.READER, None, name),
        retry=QUICK,
        lossy=lossy,
    )
    assert made.key.startswith("gw_")
    assert len(lossy.sent) == 3
    assert len(set(lossy.sent)) == 1
    assert lossy.sent[0]
    named = [key for key in get(server, "/v1/keys")["items"] if key["name"] == name]
    assert [key["id"] for key in named] == [made.id]


@KINDS
def test_who_tries_once_hears_of_a_lost_answer_at_once(server: Running, kind: str) -> None:
    lossy = Lossy(1)
    with pytest.raises(ServerUnreachable, match="the answer is lost"):
        ask(kind, settings_of(server), lambda c: c.nodes(), lossy=lossy)
    assert lossy.sent == [""], "a read needs no idempotency key"


@KINDS
def test_an_answer_of_somebody_else_is_named(kind: str) -> None:
    api = FakeApi()
    api.answers["GET", "/v1/nodes"] = "<html>hello</html>"
    with serve(api) as url, pytest.raises(UnexpectedAnswer, match="GET /v1/nodes"):
        ask(kind, RuntimeSettings(url=url), lambda c: c.nodes(), retry=QUICK)
    assert len(api.requests) == 1


def test_the_table_names_every_route() -> None:
    routes = {name for name, value in vars(Routes).items() if isinstance(value, Route | Walk)}
    files = (Path(__file__), Path(client_rows.__file__))
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    assert [name for name in sorted(routes) if f"c.{name}(" not in text] == []


DOCS = Path(__file__).parents[2] / "docs" / "client.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_every_example_of_the_page_runs(
    server: Running, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    settings = settings_of(server)
    monkeypatch.setenv("GPUWARDEN_URL", settings.url)
    monkeypatch.setenv("GPUWARDEN_KEY", settings.key)
    exec(compile(EXAMPLES[number], f"{DOCS.name}, example {number}", "exec"), {})
