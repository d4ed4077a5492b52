"""Waiting for something that another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_for(look: Callable[[], T | None], timeout_s: float = 30.0, what: str = "") -> T:
    """The first true answer of `look`; fails the test where none comes in time."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(0.005)
    raise AssertionError(f"not within {timeout_s:g} s: {what or look}")
