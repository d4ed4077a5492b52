"""The pipe on which the child answers polls, read by whoever waits for the answer.

A thread of its own for it would be woken at each poll only to wake the one that waits.
"""

from __future__ import annotations

import os
import select
from contextlib import suppress

from gpuwarden_agent.sources.nvml_answers import AnswerReader
from gpuwarden_agent.sources.nvml_frames import (
    Answer,
    AnswerFrame,
    FrameError,
    decode_report,
    split_frame,
)

_PART_BYTES = 64 * 1024


class AnswerPipe:
    """The agent's end. Not thread-safe.

    Args:
        descriptor: Of the pipe; closed by `close`.
    """

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)  # a child that is stopped may leave half an answer
        self._descriptor = descriptor
        self._ready = select.poll()
        self._ready.register(descriptor, select.POLLIN)
        self._reader = AnswerReader()
        self._rest = b""

    @property
    def ended(self) -> bool:
        """Nothing will come any more."""
        return self._descriptor < 0

    def wait(self, timeout_s: float) -> None:
        """Return as soon as there is something to read, or the other end is gone."""
        self._ready.poll(timeout_s * 1000)

    def take(self) -> Answer | None:
        """The next answer; None where it is not there whole. Does not wait."""
        while not self.ended:
            try:
                body, self._rest = split_frame(self._rest)
                if body is not None:
                    return self._read(body)
                part = os.read(self._descriptor, _PART_BYTES)
            except BlockingIOError:
                return None
            except (FrameError, OSError):
                part = b""
            self._rest += part
            if not part:
                self.close()  # a child that still writes ends by it
        return None

    def close(self) -> None:
        """Close our end."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with suppress(OSError):
                os.close(descriptor)

    def _read(self, body: bytes) -> Answer:
        report = decode_report(body)
        if not isinstance(report, AnswerFrame):
            raise FrameError(f"{type(report).__name__} instead of an answer")
        return self._reader.read(report)
