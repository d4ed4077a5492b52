"""Diskstats and pressure of this very machine, before and under a load: the right strips move.

The load is synchronous writing past the page cache into a file system on a loop device, or, where
none may be made, into plain files; what stands under it is a real disk in both cases.
"""

from __future__ import annotations

import mmap
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

from gpuwarden_agent.agent import build_sources, make_context
from gpuwarden_verdict.diagnosis import Strip, Window
from gpuwarden_verdict.diagnosis.strips import Plane, plane_strips
from gpuwarden_verdict.diagnosis.window import NEEDED, Floats
from gpuwarden_wire.metrics import EntityKind, MetricKind
from gpuwarden_wire.registry import METRIC_BY_NAME
from tests.builders.agent import BOOT, agent_settings

PROC = Path("/proc")
STEPS, STEP_S = 3, 0.5
WRITERS, BLOCK = 4, 16_384
PRESSURE = "I/O pressure, 90th of 100 nodes"
pytestmark = pytest.mark.serial

Row = dict[tuple[EntityKind, str, str], float]


@contextmanager
def place_to_write(folder: Path) -> Iterator[tuple[Path, str]]:
    """Where to write, and what that is."""
    with ExitStack() as stack:
        if os.geteuid() == 0 and shutil.which("losetup") and shutil.which("mkfs.ext4"):
            made = _loop_file_system(folder, stack)
            if made is not None:
                yield made, "ext4 on a loop device"
                return
        yield folder, "plain files"


def _loop_file_system(folder: Path, stack: ExitStack) -> Path | None:
    image, at = folder / "disk.img", folder / "mounted"
    with image.open("wb") as file:
        file.truncate(128 << 20)
    at.mkdir()
    device = _run("losetup", "--find", "--show", str(image))
    if device is None:
        return None
    stack.callback(_run, "losetup", "--detach", device)
    if _run("mkfs.ext4", "-q", device) is None or _run("mount", device, str(at)) is None:
        return None
    stack.callback(_run, "umount", str(at))
    return at


def _run(*command: str) -> str | None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


class Writers:
    """Threads that write synchronously past the page cache, until told to end."""

    def __init__(self, at: Path) -> None:
        self._at = at
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(n,)) for n in range(WRITERS)]
        self.written = [0] * WRITERS

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _write(self, number: int) -> None:
        flags = os.O_CREAT | os.O_WRONLY | os.O_DIRECT | os.O_DSYNC
        file = os.open(self._at / f"load.{number}", flags)
        try:
            with mmap.mmap(-1, BLOCK) as block:  # O_DIRECT wants whole pages
                while not self._over.is_set():
                    os.pwrite(file, block, self.written[number] % 400 * BLOCK)
                    self.written[number] += 1
        finally:
            os.close(file)


class NoPositions:
    """Collectors keep none."""

    def load_position(self, follower: str) -> bytes | None:
        return None

    def commit_position(self, follower: str, position: bytes, events: object) -> None:
        return


class Reader:
    """The agent's own collectors over this machine."""

    def __init__(self, folder: Path) -> None:
        settings = agent_settings(folder, collectors="host,storage,net,mounts")
        context = make_context(settings, BOOT, time.time(), NoPositions())
        self._collectors = build_sources(context).collectors

    def row(self) -> Row:
        """Everything that a diagnosis needs, as it stands now."""
        found: Row = {}
        for collector in self._collectors:
            for kind, rows in collector.collect(time.time()).rows.items():
                for entity, values in rows.items():
                    for name in NEEDED.get(kind, ()):
                        value = values.get(name)
                        if isinstance(value, float | int):
                            found[kind, entity, name] = float(value)
        return found

    def close(self) -> None:
        """Close all files."""
        for collector in self._collectors:
            collector.close()


def window_of(rows: list[Row], times: list[float]) -> Window:
    """Readings as a window, one step between two rows."""
    took = np.diff(times)
    strips = {}
    for kind in NEEDED:
        entities = sorted({entity for own, entity, _ in rows[0] if own is kind})
        metrics = sorted({name for own, _, name in rows[0] if own is kind})
        if entities:
            values = {
                name: np.array([_steps(kind, one, name, rows, took) for one in entities])
                for name in metrics
            }
            node = np.zeros(len(entities), dtype=np.int64)
            strips[kind] = Strip(kind, tuple(entities), node, node - 1, values)
    return Window(np.array(times[:-1]), STEP_S, STEPS, ("here",), strips, {}, ())


def _steps(kind: EntityKind, entity: str, name: str, rows: list[Row], took: Floats) -> Floats:
    read = np.array([one.get((kind, entity, name), np.nan) for one in rows])
    if METRIC_BY_NAME[name].kind is MetricKind.COUNTER:
        grown: Floats = np.diff(read) / took
        return grown
    return read[1:]


def test_writing_moves_the_strips_of_disks_and_pressure_and_no_others(tmp_path: Path) -> None:
    if not (PROC / "pressure" / "io").exists():
        pytest.skip("the kernel of this machine tells no pressure")
    reader = Reader(tmp_path)
    rows, times = [reader.row()], [time.monotonic()]

    def look() -> None:
        time.sleep(STEP_S)
        rows.append(reader.row())
        times.append(time.monotonic())

    if not any(kind is EntityKind.DISK for kind, _, _ in rows[0]):
        pytest.skip("no physical disk is to be seen on this machine")
    with place_to_write(tmp_path) as (at, what):
        for _ in range(STEPS):
            look()
        with Writers(at) as load:
            for _ in range(STEPS):
                look()
    reader.close()

    strips = {
        (one.plane, one.name): one.values for one in plane_strips(window_of(rows, times), None)
    }
    before, under = slice(0, STEPS), slice(STEPS, None)
    count, took = sum(load.written), times[-1] - times[STEPS]

    def mean(plane: Plane, name: str, steps: slice) -> float:
        return float(np.nanmean(strips[plane, name][steps]))

    assert count >= 20, f"{what}: {load.written}"
    written = mean(Plane.HOST, "local disks written", under)
    # The last writes may not have been finished when the last look was taken.
    assert written >= (count - WRITERS) * BLOCK / took * 0.9, what
    # Others may use this machine too: its quietest step before is what the load is held against.
    for name, least in (("busiest disk, time in use", 0.1), (PRESSURE, 0.05)):
        quiet = float(np.nanmin(strips[Plane.HOST, name][before]))
        moved = mean(Plane.HOST, name, under)
        assert moved >= least and (moved > quiet or moved >= 0.9), (what, name, quiet, moved)
    assert np.isfinite(strips[Plane.HOST, "a disk's request"][under]).all()
    # Planes that the load does not touch: no part of them was made to move.
    assert not any(plane is Plane.GPU for plane, _ in strips)
    sent = strips.get((Plane.NIC, "sent, all"))
    assert sent is None or float(np.nanmean(sent[under])) < written / 10
