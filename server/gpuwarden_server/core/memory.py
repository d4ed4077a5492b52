"""What the process's memory goes to, and when the C library gives back what nobody uses."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

# malloc.h of glibc
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_MMAP_BYTES = 1 << 20
"""From here on an allocation has pages of its own, which go back at once: a checkpoint's."""
_TRIM_BYTES = 32 << 20
"""So much may lie free at the heap's end: what batches take and give back all the time."""
_ARENAS = 2

Sizes = Callable[[], Mapping[str, float]]
"""Bytes by part, now."""


class _Mallinfo(ctypes.Structure):
    """struct mallinfo2 of malloc.h."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def tune_allocator() -> None:
    """Keep the C library from holding what is free; nothing where it is not glibc.

    By itself glibc gives each thread a heap of its own, and lets allocations of up to 32 MiB come
    out of the heaps once such a one was freed: between them what lives long comes to lie, and free
    memory never goes back.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_ARENA_MAX, _ARENAS)
        mallopt(_MMAP_THRESHOLD, _MMAP_BYTES)
        mallopt(_TRIM_THRESHOLD, _TRIM_BYTES)


def release_free() -> None:
    """Give back what lies free in the heaps; nothing where the C library is not glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def allocator_sizes() -> Mapping[str, float]:
    """Bytes that the C library has given out, and that it keeps for later; {} without glibc.

    Small Python objects are not in it: the interpreter has memory of its own for those.
    """
    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo is None:
        return {}
    mallinfo.restype = _Mallinfo
    found = mallinfo()
    return {"allocated": found.uordblks + found.hblkhd, "allocator_free": found.fordblks}


class MemoryCollector(Collector):
    """Asks each part for its size when /metrics is scraped."""

    def __init__(self, parts: tuple[Sizes, ...]) -> None:
        self._parts = parts

    def describe(self) -> list[Metric]:
        """Nothing: what has a size is known after the start."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Ask."""
        family = GaugeMetricFamily(
            "gpuwarden_memory_bytes",
            "Memory by part. `allocated` (with room that was never used, and is not resident) and "
            "`allocator_free` are all of the C library's; the others, but small Python objects, "
            "are parts of `allocated`.",
            labels=["part"],
        )
        for sizes in self._parts:
            for part, size in sizes().items():
                family.add_metric([part], size)
        yield family
