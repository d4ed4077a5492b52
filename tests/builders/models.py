"""Versions of the shipped model under other names, sealed as `gpuwarden train` seals them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from tests.builders.simulated import shipped_files


def version_files(
    version: str, *, offset: float = 0.0, kind: str = "gpu", deciles: float | None = None
) -> dict[str, bytes]:
    """The shipped GPU model as another version.

    Args:
        version: Its name.
        offset: Added to its log-odds: a version that says more or less.
        kind: What it says to judge.
        deciles: All of them of every feature; None as shipped.
    """
    files = dict(shipped_files())
    sheet = json.loads(files["features.json"])
    sheet["calibration"]["offset"] += offset
    if deciles is not None:
        sheet["quantiles"] = [[deciles] * 9 for _ in sheet["features"]]
        sheet["missing"] = [0.0 for _ in sheet["features"]]
    files["features.json"] = json.dumps(sheet).encode()
    manifest = json.loads(files["MANIFEST.json"])
    manifest["version"], manifest["kind"] = version, kind
    files["MANIFEST.json"] = json.dumps(manifest).encode()
    return sealed(files)


def digest_of(files: Mapping[str, bytes]) -> str:
    """SHA-256 of a version's MANIFEST.json, hex."""
    return hashlib.sha256(files["MANIFEST.json"]).hexdigest()


def sealed(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files with a manifest that names what they are now."""
    manifest = json.loads(files["MANIFEST.json"])
    hashes = {name: hashlib.sha256(files[name]).hexdigest() for name in manifest["files"]}
    return {**files, "MANIFEST.json": json.dumps({**manifest, "files": hashes}).encode()}


def write_version(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Write a version's folder; returns it."""
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder
