"""The fast lane: what announces a fault, looked at between two polls by prepared calls.

A look sends nothing where nothing changed. Where something did, the agent polls at once, so that
what is told is a whole poll, and no reading has two ways to the server.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from time import monotonic

from gpuwarden_agent.sources.nvml_calls import Caller, Columns, Gpu, Lane, Readings
from gpuwarden_agent.sources.nvml_fields import GROUPS
from gpuwarden_agent.sources.nvml_plan import Scope, make_plan
from gpuwarden_agent.sources.nvml_queries import QUERIES
from gpuwarden_wire.metrics import URGENT_METRICS

# Besides, any call that no longer succeeds: the GPU is lost.
_SCOPE = Scope(
    tuple(one for one in QUERIES[Lane.POLL] if URGENT_METRICS.intersection(one[0].metrics)),
    tuple(
        one for group in GROUPS[Lane.POLL] for one in group.fields if one.metric in URGENT_METRICS
    ),
    whole=False,
)
_TRY_AGAIN_S = 5.0
_TRY_AGAIN_AT_MOST_S = 60.0
"""A look that fails makes a poll, and that poll another plan of a few calls: at once where the last
plan held for so long, else later each time, so that a GPU that answers now so and now so is neither
asked all the time nor lost sight of. A call that hangs is not made again: it is still in flight."""

_STRETCH = 1.02
"""So that the look that would come with a poll comes after it, and is left out."""


class FastLane:
    """Looks at GPUs at its own pace.

    Args:
        caller: Makes the calls.
        every_s: Seconds between two looks, 0 for none.
        clock: Monotonic seconds.
    """

    def __init__(
        self, caller: Caller, every_s: float, clock: Callable[[], float] = monotonic
    ) -> None:
        self._caller = caller
        self._every_s = every_s * _STRETCH
        self._clock = clock
        self._due_at = 0.0

    def wait_s(self) -> float | None:
        """Seconds until the next look, None where there is none to come."""
        return max(0.0, self._due_at - self._clock()) if self._every_s else None

    def polled(self) -> None:
        """All was just read: the next look can wait."""
        self._due_at = self._clock() + self._every_s

    def look(self, gpus: Iterable[Gpu]) -> tuple[str, ...]:
        """UUIDs of those GPUs of which something is other than at the last look or poll."""
        self._due_at = self._clock() + self._every_s
        return tuple(gpu.uuid for gpu in gpus if self._changed(gpu))

    def _changed(self, gpu: Gpu) -> bool:
        if gpu.fast is None:
            return False
        seen = gpu.fast.read(self._caller, gpu)
        if seen is None:
            put_off(gpu, self._clock())  # the poll that comes now finds out why
            return True
        changed = seen.numbers != gpu.fast_seen
        gpu.fast_seen = seen.numbers
        return changed


def note_poll(caller: Caller, gpu: Gpu, polled: Columns, now: float) -> None:
    """What a poll said is what the next look compares with.

    Args:
        caller: Makes the calls of a new plan once.
        gpu: The GPU.
        polled: Its readings.
        now: Monotonic seconds.
    """
    if gpu.fast is None:
        if now < gpu.fast_due:
            return
        readings = Readings(dict(zip(polled.names, polled.numbers, strict=True)))
        gpu.fast, gpu.fast_names = make_plan(caller, gpu, readings, _SCOPE), ()
        if gpu.fast is None:
            put_off(gpu, now)
            return
        gpu.fast_since = now
    if polled.names is not gpu.fast_names:
        places = {name: place for place, name in enumerate(polled.names)}
        wanted = gpu.fast.columns.names
        if not places.keys() >= set(wanted):
            put_off(gpu, now)
            return
        gpu.fast_names, gpu.fast_places = polled.names, tuple(map(places.__getitem__, wanted))
    gpu.fast_seen = array("d", map(polled.numbers.__getitem__, gpu.fast_places))


def put_off(gpu: Gpu, now: float) -> None:
    """Look at a GPU no more until a later poll has found out again how; see `_TRY_AGAIN_S`."""
    held = gpu.fast is not None and now - gpu.fast_since >= _TRY_AGAIN_AT_MOST_S
    wait_s = min(max(2 * gpu.fast_wait_s, _TRY_AGAIN_S), _TRY_AGAIN_AT_MOST_S)
    gpu.fast_wait_s = 0.0 if held else wait_s
    gpu.fast_due = now + gpu.fast_wait_s
    gpu.fast = None
