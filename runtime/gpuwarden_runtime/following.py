"""Following the exclusion feed, without network or thread: what a watch of either kind drives.

Takes what the stream and the server say, and keeps the set, the cache, what was told, and how long
to wait before the next connection. Fail-open: while the server is away the last set stays.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import msgspec

from gpuwarden_runtime.cache import SetCache
from gpuwarden_runtime.errors import GpuwardenError
from gpuwarden_runtime.feed import (
    FeedState,
    FeedStep,
    Floor,
    Outcome,
    apply_change,
    apply_position,
    apply_set,
    as_set,
)
from gpuwarden_runtime.plan_records import read_plans
from gpuwarden_runtime.records import ExclusionChange, ExclusionSet

_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 30.0

Listener = Callable[[FeedState], None]
Say = Callable[[str], None]


class Follower:
    """The set, and how it came about.

    Args:
        on_change: Called with every new set, the first included.
        say: Called with one sentence when the connection is lost, comes back, or a set is refused.
        cache: Where the last set is kept, None for nowhere.
        floor: What a resync may not take from us.
        held: What is already known.
    """

    def __init__(
        self,
        on_change: Listener,
        say: Say,
        cache: SetCache | None = None,
        floor: Floor | None = None,
        held: FeedState | None = None,
    ) -> None:
        self._on_change = on_change
        self._say = say
        self._cache = cache
        self._floor = floor or Floor()
        self._state = held
        self._failures = 0
        self._confirmed = False  # the server's last word agrees with what is held
        self._told: dict[str, str] = {}

    @property
    def state(self) -> FeedState | None:
        """The set held now, None before the first."""
        return self._state

    @property
    def event_id(self) -> str | None:
        """Last-Event-ID that asks for what came after; None before the first set."""
        return self._state.event_id if self._state is not None else None

    def take_event(self, event: str, data: str) -> bool:
        """Take one server-sent event.

        Returns:
            True where the whole set must be fetched and given to `take_set`.
        """
        if event not in ("state", "exclusions"):
            return False  # a kind of a later version
        try:
            change = msgspec.json.decode(data, type=ExclusionChange)
        except msgspec.DecodeError as error:
            self._tell("unreadable", f"the feed sent something unreadable: {error}")
            return True
        self._note_plans(change.plans)
        if event == "state":
            return self._apply(apply_position(self._state, change))
        return self._apply(apply_change(self._state, change))

    def take_set(self, received: ExclusionSet) -> None:
        """Take the whole set."""
        self._note_plans(received.plans)
        self._apply(apply_set(self._state, received, self._floor))

    def keep(self) -> None:
        """Write the set to the cache, where the server's last word agrees with it."""
        if self._cache is None or self._state is None or not self._confirmed:
            return
        trouble = self._cache.save(as_set(self._state), time.time())
        if trouble:
            self._tell("cache", f"the exclusion set cannot be cached: {trouble}")
        else:
            self._told.pop("cache", None)

    def note_contact(self) -> None:
        """Note that the stream is open."""
        if self._failures:
            self._say("exclusion feed is back")
        self._failures = 0

    def note_failure(self, trouble: GpuwardenError) -> float:
        """Note that the stream ended or did not open; returns seconds to wait before the next try.

        Exponential with full jitter, so that a thousand launchers do not return together.
        """
        self._failures += 1
        if self._failures == 1:
            self._say(f"exclusion feed lost: {trouble}; keeping the last set and trying again")
        if not trouble.retryable:
            return random.uniform(_LONGEST_WAIT_S / 2, _LONGEST_WAIT_S)
        ceiling = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0 ** min(self._failures, 10))
        return random.uniform(0.1, ceiling)

    def _note_plans(self, plans: msgspec.Raw) -> None:
        if bytes(plans) == b"null":
            return  # unchanged
        trouble = read_plans(plans)[1]
        if trouble:
            self._tell("plans", f"a planned leave cannot be read and is left out: {trouble}")
        else:
            self._told.pop("plans", None)

    def _apply(self, step: FeedStep) -> bool:
        match step.outcome:
            case Outcome.APPLIED:
                self._state = step.state
                self._settle()
                if step.state is not None:
                    self._on_change(step.state)
            case Outcome.UNCHANGED:
                self._settle()
            case Outcome.INVALID | Outcome.BELOW_FLOOR:
                self._confirmed = False
                self._tell("set", f"exclusion set not taken over: {step.note}; keeping the last")
            case Outcome.NEEDS_SET | Outcome.IGNORED:
                pass
        return step.outcome is Outcome.NEEDS_SET

    def _settle(self) -> None:
        self._confirmed = True
        self._told.pop("set", None)
        self.keep()

    def _tell(self, subject: str, sentence: str) -> None:
        """Say it once, until the subject is well again or the sentence changes."""
        if self._told.get(subject) != sentence:
            self._told[subject] = sentence
            self._say(sentence)
