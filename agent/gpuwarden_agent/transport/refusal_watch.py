"""Batches that the server refuses for ever are lost to it: the node says so, and what to do."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from gpuwarden_agent.conditions import ConditionBoard
from gpuwarden_agent.transport.tally import DeliveryTally, Refusals

OVER_AFTER_S = 900.0
"""Without a further refusal for so long the trouble is over."""

_SOURCE = "delivery"


class RefusalWatch:
    """Turns the sender's count of refused batches into own trouble.

    Args:
        tally: Where the sender counts.
        board: Where trouble is told.
        spool_folder: Of this agent; refused batches lie below it in rejected/.
        clock: Epoch seconds.
    """

    def __init__(
        self,
        tally: DeliveryTally,
        board: ConditionBoard,
        spool_folder: Path,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._tally = tally
        self._board = board
        self._spool_folder = spool_folder
        self._clock = clock

    def look(self) -> None:
        """Tell what changed; cheap where nothing was ever refused."""
        refusals = self._tally.refusals()
        if not refusals:
            return
        code = max(refusals, key=lambda one: refusals[one].last_at)
        if self._clock() - refusals[code].last_at >= OVER_AFTER_S:
            self._board.fine(_SOURCE)
        else:
            self._board.trouble(
                _SOURCE, _in_words(code, refusals[code]), self._mend(code), renew=True
            )

    def _mend(self, code: str) -> str:
        kept = self._spool_folder / "rejected"
        if code == "sequence_conflict":
            return (
                "Another machine sends with a copy of this spool. Stop the agent of the copy, "
                f"delete its spool folder ({self._spool_folder} where it is set as here) and start "
                f"it again. What was refused here lies in {kept}."
            )
        return (
            f"What was refused lies in {kept}, each with the server's reason; "
            "where agent and server differ in version, bring both to the newer one."
        )


def _in_words(code: str, refusals: Refusals) -> str:
    """Told again at each power of ten, not at each batch."""
    told = 10 ** (len(str(refusals.count)) - 1)
    if told == 1:
        return f"batches refused: {code}"
    return f"{told} batches refused, or more: {code}"
