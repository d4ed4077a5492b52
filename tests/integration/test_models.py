"""Models on a running server: brought, promoted, rolled back and challenged without a restart."""

from __future__ import annotations

import base64
import io
import json
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpuwarden_verdict.policy.document import Mode
from tests.builders.feed import get, quick_settings
from tests.builders.models import sealed, version_files, write_version
from tests.builders.server import Running, running_server
from tests.builders.simulated import shipped_model

BOTH_STORES = True
WHY = {"reason": "measured on our recordings"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, store_kind: object) -> Iterator[Running]:
    with running_server(quick_settings(tmp_path_factory.mktemp("models"), Mode.ADVISE)) as running:
        yield running


def add(server: Running, files: Mapping[str, bytes]) -> httpx.Response:
    told = [
        {"name": name, "content": base64.b64encode(content).decode()}
        for name, content in files.items()
    ]
    return server.admin.post("/v1/models", json={"files": told, **WHY})


def post(server: Running, what: str, version: str | None = None) -> httpx.Response:
    body = WHY if version is None else {"version": version, **WHY}
    return server.admin.post(f"/v1/models/gpu/{what}", json=body)


def gpu_model(server: Running) -> dict[str, Any]:
    found: dict[str, Any] = get(server, "/v1/models")["items"][0]
    assert found["kind"] == "gpu"
    return found


def used(server: Running) -> str:
    """The version that scores GPUs, as the fleet page shows it, first of all kinds."""
    return str(get(server, "/v1/fleet")["model"]["version"]).split(", ", maxsplit=1)[0]


def code_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, str(answer.json()["code"])


@pytest.mark.postgres
def test_a_version_is_brought_promoted_and_rolled_back_without_a_restart(server: Running) -> None:
    first = shipped_model().version
    assert used(server) == first
    assert code_of(post(server, "rollback")) == (409, "nothing_before")
    assert add(server, version_files("gpu-next", offset=0.5)).json() == {
        "kind": "gpu",
        "version": "gpu-next",
    }
    assert used(server) == first, "a version that is brought judges nothing yet"
    answer = post(server, "promotion", "gpu-next").json()
    assert (answer["in_use"], answer["promoted"]["version"]) == ("gpu-next", "gpu-next")
    assert [one["version"] for one in answer["former"]] == [first]
    assert used(server) == "gpu-next"
    assert server.figure("gpuwarden_model_loaded", role="promoted", version="gpu-next") == 1.0
    assert post(server, "rollback").json()["in_use"] == first
    assert used(server) == first
    told = get(server, "/v1/audit", action="promote_model")["items"][-1]
    assert told["before"]["promoted"]["version"] == first
    assert told["after"]["promoted"]["version"] == "gpu-next"


@pytest.mark.postgres
def test_the_choice_and_what_was_brought_outlive_a_restart(tmp_path: Path) -> None:
    settings = quick_settings(tmp_path, Mode.ADVISE)
    with running_server(settings) as server:
        for name, offset in (("gpu-kept", 0.1), ("gpu-beside", 0.2)):
            add(server, version_files(name, offset=offset)).raise_for_status()
        post(server, "promotion", "gpu-kept").raise_for_status()
        post(server, "challenger", "gpu-beside").raise_for_status()
    with running_server(settings) as server:
        model = gpu_model(server)
        assert (model["in_use"], model["challenger"]["version"]) == ("gpu-kept", "gpu-beside")
        assert used(server) == "gpu-kept"
        assert post(server, "rollback").json()["in_use"] == shipped_model().version


def test_saying_it_again_changes_nothing_and_is_told_once(server: Running) -> None:
    files = version_files("gpu-twice")
    assert add(server, files).status_code == add(server, files).status_code == 201
    for _ in range(2):
        post(server, "promotion", "gpu-twice").raise_for_status()
    model = gpu_model(server)
    assert [one["version"] for one in model["versions"]].count("gpu-twice") == 1
    assert [one["version"] for one in model["former"]].count("gpu-twice") == 0
    added = get(server, "/v1/audit", action="add_model", target="gpu:gpu-twice")["items"]
    assert len(added) == 1
    tag = server.admin.get("/v1/models").headers["etag"]
    again = server.admin.get("/v1/models", headers={"If-None-Match": tag})
    assert again.status_code == 304
    post(server, "rollback").raise_for_status()


def test_a_challenger_begins_and_ends(server: Running) -> None:
    add(server, version_files("gpu-beside", offset=0.3)).raise_for_status()
    model = post(server, "challenger", "gpu-beside").json()
    assert model["challenger"]["version"] == "gpu-beside"
    assert model["in_use"] != "gpu-beside"
    assert code_of(post(server, "challenger", model["in_use"])) == (409, "wrong_choice")
    ended = server.admin.delete("/v1/models/gpu/challenger").json()
    assert ended["challenger"] is None
    assert server.admin.delete("/v1/models/gpu/challenger").json() == ended
    assert server.figure("gpuwarden_model_loaded", role="challenger") == 0.0


def test_another_schema_a_forged_or_a_strange_file_is_refused_and_the_former_stays(
    server: Running,
) -> None:
    before = gpu_model(server)
    files = version_files("gpu-bad")
    altered = {**files, "model.npz": files["model.npz"] + b"x"}
    sheet = json.loads(files["features.json"])
    sheet["schema_hash"] = "0123456789abcdef"
    other = sealed({**files, "features.json": json.dumps(sheet).encode()})
    pickled = sealed({**files, "model.npz": b"\x80\x04cposix\nsystem\n."})
    for refused, said in ((altered, "model.npz"), (other, "schema"), (pickled, "cannot be read")):
        answer = add(server, refused)
        assert code_of(answer) == (409, "model_refused")
        assert said in answer.json()["detail"] and answer.json()["mend"]
    assert code_of(add(server, version_files("gpu-bad", kind="toaster"))) == (409, "model_refused")
    assert code_of(post(server, "promotion", "gpu-bad")) == (404, "not_found")
    assert gpu_model(server) == before


def test_arrays_that_would_fill_the_memory_are_refused_unread(server: Running) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("roots.npy", bytes(100 << 20))
    bomb = sealed({**version_files("gpu-bomb"), "model.npz": packed.getvalue()})
    assert len(packed.getvalue()) < 1 << 20
    answer = add(server, bomb)
    assert code_of(answer) == (409, "model_refused")
    assert "unpacked" in answer.json()["detail"]


def test_two_models_of_one_name_are_not_confused(server: Running) -> None:
    add(server, version_files("gpu-name")).raise_for_status()
    answer = add(server, version_files("gpu-name", offset=1.0))
    assert code_of(answer) == (409, "version_taken")


def test_files_come_back_as_they_were_brought(server: Running) -> None:
    files = version_files("gpu-back")
    add(server, files).raise_for_status()
    told = get(server, "/v1/models/gpu/versions/gpu-back")["files"]
    assert {one["name"]: base64.b64decode(one["content"]) for one in told} == files


def test_an_operator_may_and_a_reader_may_not(server: Running) -> None:
    for role, code in (("reader", 403), ("operator", 404)):
        with server.client(server.mint(role)) as client:
            body = {"version": "gpu-none", **WHY}
            assert client.post("/v1/models/gpu/promotion", json=body).status_code == code
            assert client.get("/v1/models").status_code == 200


def test_a_folder_that_was_altered_after_the_promotion_falls_back_and_says_so(
    tmp_path: Path,
) -> None:
    first = shipped_model().version
    folder = tmp_path / "models" / "gpu"
    write_version(folder / "gpu-first", version_files("gpu-first"))
    second = write_version(folder / "gpu-second", version_files("gpu-second", offset=0.4))
    (folder / "PROMOTED").write_text("gpu-first\n")
    settings = quick_settings(tmp_path, Mode.ADVISE, model_folder=folder)
    with running_server(settings) as server:
        assert used(server) == "gpu-first"
        post(server, "promotion", "gpu-second").raise_for_status()
        assert code_of(post(server, "promotion", first)) == (404, "not_found")
    for name, content in version_files("gpu-second", offset=9.0).items():
        (second / name).write_bytes(content)
    with running_server(settings) as server:
        model = gpu_model(server)
        assert model["in_use"] == "gpu-first"
        assert "gpu-second is not the one that was promoted" in model["trouble"]
        assert "gpu-second" in get(server, "/readyz")["notes"]["model"]
        assert server.figure("gpuwarden_models_refused_total", kind="gpu") == 1.0
        post(server, "promotion", "gpu-second").raise_for_status()
        assert (used(server), gpu_model(server)["trouble"]) == ("gpu-second", "")


def test_an_upgrade_leaves_a_model_though_a_challenger_was_set_or_the_promoted_one_is_gone(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "models" / "gpu"

    def ship(version: str, *more: str) -> None:
        """What an upgrade leaves in the model folder."""
        if folder.exists():
            shutil.rmtree(folder)
        for number, name in enumerate((version, *more)):
            write_version(folder / name, version_files(name, offset=0.1 * number))
        (folder / "PROMOTED").write_text(f"{version}\n")

    settings = quick_settings(tmp_path, Mode.ADVISE, model_folder=folder)
    ship("gpu-first", "gpu-own")
    with running_server(settings) as server:
        add(server, version_files("gpu-beside", offset=0.3)).raise_for_status()
        model = post(server, "challenger", "gpu-beside").json()
        assert (model["in_use"], model["promoted"]["since"]) == ("gpu-first", 0.0)
    ship("gpu-second", "gpu-own")
    with running_server(settings) as server:
        model = gpu_model(server)
        assert (model["in_use"], model["trouble"]) == ("gpu-second", "")
        assert model["challenger"]["version"] == "gpu-beside"
        post(server, "promotion", "gpu-own").raise_for_status()
    ship("gpu-third")
    with running_server(settings) as server:
        model = gpu_model(server)
        assert model["in_use"] == used(server) == "gpu-third"
        assert "gpu-own is gone" in model["trouble"] and "gpu-third" in model["trouble"]
