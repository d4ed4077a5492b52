"""Orders to run one plug-in check now, and what the agent answers: files in the run folder.

The running agent obeys them, and nobody else runs checks: no run is doubled, and what came of it
goes the way of every other result.
"""

from __future__ import annotations

from contextlib import suppress
from enum import StrEnum
from pathlib import Path

import msgspec

from gpuwarden_agent.run_files import may_be_obeyed, uptime_s, write_whole

LONGEST_WAIT_S = 86_400.0
_ORDER, _ANSWER = "check-run-", "check-ran-"
_MOST_BYTES = 65_536


class Stage(StrEnum):
    """How far the agent is with an order."""

    WAITS = "waits"  # the check does not run yet, for the reason that is given
    RUNS = "runs"
    ENDED = "ended"
    REFUSED = "refused"  # nothing will run


class RunOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Run this check as soon as it may start.

    Attributes:
        id: Random word of this order.
        check: Name of the check.
        boot_id: Boot it was given in; it is void in any other.
        until_s: Seconds of CLOCK_BOOTTIME when it is over where the check has not started by then.
        even_if_busy: Start it though GPUs are in use, or nobody can say whether they are.
    """

    id: str
    check: str
    boot_id: str
    until_s: float
    even_if_busy: bool = False


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What the check said about one entity.

    Attributes:
        entity: gpu_uuid or PCI address, "" for the node.
        state: ok, warning, critical or unknown.
        text: The check's own words.
        reason: Short stable phrase for unknown, "" else.
        figures: Performance figures as printed.
    """

    entity: str
    state: str
    text: str
    reason: str = ""
    figures: str = ""


class RunAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """How far the agent is with an order, and in the end what came of it.

    Attributes:
        id: Of the order.
        check: Name of the check.
        stage: How far.
        reason: Short stable phrase of what it waits for, or was refused for.
        mend: What the operator can do about it, or about an unknown result.
        deadline_s: Of the check, seconds.
        proves_repair: A pass ends the repair of what it speaks about.
        said: By entity, once it has ended; at least one then.
        took_s: Seconds that the run took.
    """

    id: str
    check: str
    stage: Stage
    reason: str = ""
    mend: str = ""
    deadline_s: float = 0.0
    proves_repair: bool = False
    said: tuple[Said, ...] = ()
    took_s: float = 0.0


class OrderFolder:
    """The files `check-run-ID.json` (orders) and `check-ran-ID.json` (answers)."""

    def __init__(self, folder: Path, boot_id: str) -> None:
        self.path = folder
        self.own_boot_id = boot_id

    # the command's side

    def give(self, order: RunOrder) -> None:
        """Put an order in force.

        Raises:
            OSError: The folder does not take it.
        """
        write_whole(self._file(_ORDER, order.id), msgspec.json.encode(order))

    def take_back(self, order_id: str) -> None:
        """End an order and drop its answer; a check that runs goes on."""
        for kind in (_ORDER, _ANSWER):
            with suppress(OSError):
                self._file(kind, order_id).unlink()

    def answer(self, order_id: str) -> RunAnswer | None:
        """What the agent says of an order; None before it has seen it."""
        try:
            text = self._file(_ANSWER, order_id).read_bytes()
            return msgspec.json.decode(text, type=RunAnswer)
        except (OSError, msgspec.DecodeError):
            return None

    # the agent's side

    def orders(self) -> list[RunOrder]:
        """Orders in force; those of another boot and those that are over are removed."""
        return [order for file in self._files(_ORDER) if (order := self._read(file)) is not None]

    def say(self, answer: RunAnswer) -> None:
        """Tell the command; a folder that does not take it only leaves it without an answer."""
        with suppress(OSError):
            write_whole(self._file(_ANSWER, answer.id), msgspec.json.encode(answer))

    def done(self, order_id: str) -> None:
        """The order is carried out, or will not be."""
        with suppress(OSError):
            self._file(_ORDER, order_id).unlink()

    def forget_answers(self) -> None:
        """Remove answers that no command came back for."""
        for file in self._files(_ANSWER):
            with suppress(OSError):
                file.unlink()

    def _read(self, file: Path) -> RunOrder | None:
        try:
            facts = file.stat()
            if not may_be_obeyed(facts) or facts.st_size > _MOST_BYTES:
                return None
            order = msgspec.json.decode(file.read_bytes(), type=RunOrder)
        except (OSError, msgspec.DecodeError):
            return None
        left_s = order.until_s - uptime_s()
        if order.boot_id == self.own_boot_id and 0 < left_s <= LONGEST_WAIT_S:
            return order if file == self._file(_ORDER, order.id) else None
        with suppress(OSError):
            file.unlink()
        return None

    def _files(self, kind: str) -> list[Path]:
        try:
            found = [one for one in self.path.iterdir() if one.name.startswith(kind)]
        except OSError:
            return []
        return sorted(found)

    def _file(self, kind: str, order_id: str) -> Path:
        return self.path / f"{kind}{order_id}.json"
