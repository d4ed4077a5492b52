"""Waiting for a file: told by the kernel, or by looking where it says nothing."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwarden_agent.sources.file_watch import FileWatch
from gpuwarden_agent.sources.wakeup import Wakeup


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "kern.log"
    path.write_text("one\n")
    return path


@pytest.fixture
def opened(log: Path) -> Iterator[int]:
    descriptor = os.open(log, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def later(action: object, *words: object) -> None:
    assert callable(action)
    threading.Timer(0.05, action, words).start()


def append(path: Path) -> None:
    with path.open("a") as file:
        file.write("two\n")


def test_a_line_wakes_it(log: Path, opened: int) -> None:
    watch = FileWatch(log, Wakeup())
    assert watch.listens
    later(append, log)
    assert watch.await_change(opened, 4, timeout_s=30.0)
    watch.close()


def test_what_is_there_already_needs_no_waiting(log: Path, opened: int) -> None:
    watch = FileWatch(log, Wakeup())
    assert watch.await_change(opened, 0, timeout_s=0.0)
    watch.close()


def test_a_rotation_wakes_it(log: Path, opened: int) -> None:
    watch = FileWatch(log, Wakeup())
    later(log.rename, log.with_name("kern.log.1"))
    assert watch.await_change(opened, 4, timeout_s=30.0)
    watch.close()


def test_nothing_is_nothing(log: Path, opened: int) -> None:
    watch = FileWatch(log, Wakeup())
    assert not watch.await_change(opened, 4, timeout_s=0.05)
    assert watch.listens
    watch.close()


def test_a_kernel_that_says_nothing_is_no_longer_believed(log: Path, opened: int) -> None:
    other = log.with_name("other")  # as on a network file system: the watch never hears of the file
    other.touch()
    watch = FileWatch(other, Wakeup())
    later(append, log)
    while not watch.await_change(opened, 4, timeout_s=0.2):
        pass
    assert not watch.listens
    later(append, log)
    assert watch.await_change(opened, 8, timeout_s=30.0)


def test_a_file_that_is_not_there_is_polled_for(tmp_path: Path) -> None:
    assert not FileWatch(tmp_path / "none", Wakeup()).listens
