"""Installs the built wheel beside exactly the dependencies that its metadata names, offline.

The pinned packages of the running environment are linked, not downloaded: what the metadata does
not name is then missing in the fresh environment too.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]


def build_wheel(folder: Path) -> Path:
    """Build the wheel of the checkout into `folder`."""
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), "."],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("gpuwarden-*.whl")
    return wheel


def install_wheel(wheel: Path, folder: Path, extras: Iterable[str] = ()) -> Path:
    """A fresh virtual environment with the wheel and its dependencies; returns its bin folder."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    site = Path(
        subprocess.run(
            [python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
    )
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"),
            *("--no-deps", "--no-index", "--disable-pip-version-check", str(wheel)),
        ],
        check=True,
        capture_output=True,
    )
    (dist_info,) = site.glob("gpuwarden-*.dist-info")
    for name in _closure(metadata.PathDistribution(dist_info), set(extras)):
        _link(metadata.distribution(name), site)
    return folder / "bin"


def _closure(root: metadata.Distribution, extras: set[str]) -> set[str]:
    wanted: dict[str, set[str]] = {}
    pending: list[tuple[metadata.Distribution, set[str]]] = [(root, extras)]
    while pending:
        distribution, active = pending.pop()
        for line in distribution.requires or ():
            requirement = Requirement(line)
            if not _applies(requirement, active):
                continue
            name = canonicalize_name(requirement.name)
            more = set(requirement.extras) - wanted.get(name, set())
            if name in wanted and not more:
                continue
            wanted.setdefault(name, set()).update(requirement.extras)
            target = root if name == "gpuwarden" else metadata.distribution(name)
            pending.append((target, wanted[name]))
    return set(wanted) - {"gpuwarden"}


def _applies(requirement: Requirement, extras: set[str]) -> bool:
    if requirement.marker is None:
        return True
    return any(requirement.marker.evaluate({"extra": extra}) for extra in {"", *extras})


def _link(distribution: metadata.Distribution, site: Path) -> None:
    tops = {Path(str(file)).parts[0] for file in distribution.files or ()}
    for top in tops - {"..", "__pycache__"}:
        source = Path(str(distribution.locate_file(top)))
        if source.exists() and not (site / top).exists():
            (site / top).symlink_to(source)
