"""A model is believed only when every byte is what the manifest says."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpuwarden_verdict.fusion import ModelError, decode_model
from gpuwarden_wire.metrics import EntityKind
from tests.builders.simulated import GPU_FEATURES, SHIPPED, shipped_files, shipped_model


def resealed(files: dict[str, bytes], name: str, content: bytes) -> dict[str, bytes]:
    """The files with one exchanged and the manifest brought in line: what a forger would do."""
    manifest = json.loads(files["MANIFEST.json"])
    manifest["files"][name] = hashlib.sha256(content).hexdigest()
    return {**files, name: content, "MANIFEST.json": json.dumps(manifest).encode()}


def edited(files: dict[str, bytes], name: str, edit: Callable[[Any], object]) -> dict[str, bytes]:
    value = json.loads(files[name])
    edit(value)
    return {**files, name: json.dumps(value).encode()}


def test_the_shipped_model_is_sound_and_small() -> None:
    model = shipped_model()
    assert model.schema_hash == GPU_FEATURES.schema_hash
    assert model.version == (SHIPPED / "PROMOTED").read_text().strip()
    assert model.slope > 0 and model.horizon_s > 0
    assert sum(len(content) for content in shipped_files().values()) < 300_000
    card = shipped_files()["card.md"].decode()
    assert "--seed" in card and "(simulated)" in card


@pytest.mark.parametrize("name", ["model.npz", "features.json", "card.md", "metrics.json"])
def test_one_altered_byte_is_refused(name: str) -> None:
    files = shipped_files()
    content = bytearray(files[name])
    content[len(content) // 2] ^= 1
    with pytest.raises(ModelError, match=rf"{name} is not what .*retrain"):
        decode_model({**files, name: bytes(content)})


def test_another_feature_schema_is_refused_with_the_mend() -> None:
    files = shipped_files()

    def rename(sheet: Any) -> None:
        sheet["schema_hash"] = "0123456789abcdef"
        sheet["features"][0]["name"] = "moon_phase"

    content = edited(files, "features.json", rename)["features.json"]
    with pytest.raises(ModelError, match=r"0123456789abcdef.*moon_phase.*gpuwarden train"):
        decode_model(resealed(files, "features.json", content))


@pytest.mark.parametrize("name", ["model.npz", "features.json", "MANIFEST.json", "card.md"])
def test_a_missing_file_is_named(name: str) -> None:
    files = shipped_files()
    del files[name]
    with pytest.raises(ModelError, match=name):
        decode_model(files)


def test_another_format_is_refused() -> None:
    files = edited(shipped_files(), "MANIFEST.json", lambda m: m.update(format_version=2))
    with pytest.raises(ModelError, match=r"format gpuwarden-fusion 2.*another version"):
        decode_model(files)


def test_pickled_arrays_are_not_loaded() -> None:
    buffer = io.BytesIO()
    np.savez(buffer, roots=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ModelError, match=r"model\.npz cannot be read"):
        decode_model(resealed(shipped_files(), "model.npz", buffer.getvalue()))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut short", b"{}"])
def test_an_npz_that_is_none_is_refused(content: bytes) -> None:
    with pytest.raises(ModelError, match=r"model\.npz cannot be read"):
        decode_model(resealed(shipped_files(), "model.npz", content))


def test_a_calibration_that_turns_the_score_around_is_refused() -> None:
    files = shipped_files()

    def turn(sheet: Any) -> None:
        sheet["calibration"]["slope"] *= -1

    content = edited(files, "features.json", turn)["features.json"]
    with pytest.raises(ModelError, match="turns the score around"):
        decode_model(resealed(files, "features.json", content))


def test_json_that_is_none_is_refused() -> None:
    with pytest.raises(ModelError, match=r"MANIFEST\.json"):
        decode_model({**shipped_files(), "MANIFEST.json": b"[]"})


def test_feature_names_are_unique_and_say_their_plane() -> None:
    assert len({feature.name for feature in GPU_FEATURES.features}) == len(GPU_FEATURES)
    assert len({feature.plane for feature in GPU_FEATURES.features}) >= 4


def test_a_model_of_another_kind_is_refused_with_the_mend() -> None:
    with pytest.raises(ModelError, match=r"scores entities of kind gpu.*kind nic.*folder of gpu"):
        decode_model(shipped_files(), EntityKind.NIC)
    moon = edited(shipped_files(), "MANIFEST.json", lambda m: m.update(kind="moon"))
    with pytest.raises(ModelError, match=r"'gpu' by features\.json and 'moon' by MANIFEST"):
        decode_model(moon)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"operating_point": 1.5}, "no probability between 0 and 1; retrain"),
        ({"first_stage": [{"feature": "moon", "above": 1.0}]}, "asks for moon.*retrain"),
        ({"novelty": {"center": [0], "spread": [1], "limit": 1}}, "does not fit its.*retrain"),
    ],
)
def test_what_stands_around_the_trees_must_fit(change: dict[str, Any], told: str) -> None:
    files = shipped_files()
    content = edited(files, "features.json", lambda sheet: sheet.update(change))["features.json"]
    with pytest.raises(ModelError, match=told):
        decode_model(resealed(files, "features.json", content))


def test_an_archive_that_was_cut_short_is_refused_with_the_mend() -> None:
    files = shipped_files()
    cut = files["model.npz"][:-200]
    with pytest.raises(ModelError, match=r"model\.npz is not what .* restore the folder"):
        decode_model({**files, "model.npz": cut})
    with pytest.raises(ModelError, match=r"model\.npz cannot be read .*copy the whole folder"):
        decode_model(resealed(files, "model.npz", cut))
