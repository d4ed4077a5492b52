"""The process that calls NVML: `python -m gpuwarden_agent.sources.nvml_child`.

Requests come in on standard input, answers go out on a pipe of their own and other reports on what
was standard output; whatever a library prints there goes to standard error. It ends between calls:
on an End, at the end of its input, on SIGTERM, or when NVML has to be initialised afresh.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import math
import mmap
import os
import select
import signal
import sys
from threading import Lock, Thread

from gpuwarden_agent.sources import nvml_codes as codes
from gpuwarden_agent.sources.nvml_calls import Caller, CallError
from gpuwarden_agent.sources.nvml_events import XidWatch
from gpuwarden_agent.sources.nvml_fast import FastLane
from gpuwarden_agent.sources.nvml_flight import FLIGHT_BYTES, FlightRecorder, Slot
from gpuwarden_agent.sources.nvml_frames import (
    AnswerFrame,
    Ask,
    Hurry,
    Ready,
    Refused,
    Report,
    Request,
    read_request,
    write_frame,
)
from gpuwarden_agent.sources.nvml_roster import Roster

EXIT_OK = 0
EXIT_REFUSED = 3


class Reporter:
    """Writes reports of both threads, one frame at a time.

    Args:
        descriptor: Where they go to.
        answers: Where answers go to.
    """

    def __init__(self, descriptor: int, answers: int) -> None:
        self._descriptor = descriptor
        self._answers = answers
        self._lock = Lock()

    def send(self, report: Report) -> None:
        """Write one report; the agent gone is the end of this process."""
        pipe = self._answers if isinstance(report, AnswerFrame) else self._descriptor
        with self._lock:
            try:
                write_frame(pipe, report)
            except OSError:
                leave(EXIT_OK)


def leave(code: int) -> None:
    """End at once, without nvmlShutdown: that could hang, and the kernel closes what is open."""
    os._exit(code)


def serve(
    requests: int,
    reporter: Reporter,
    caller: Caller,
    watch: XidWatch,
    lane: FastLane,
    gpm_s: float = math.inf,
) -> int:
    """Initialise NVML and answer requests until the input ends; the exit code."""
    try:
        caller.call("nvmlInit")
        driver_version = caller.call("nvmlSystemGetDriverVersion")
    except CallError as error:
        reporter.send(Refused(error.call, error.code))
        return EXIT_REFUSED
    reporter.send(Ready(driver_version))
    Thread(target=watch.run, name="xid", daemon=True).start()
    gc.freeze()  # what is there by now stays for good
    roster = Roster(caller, fast=lane.wait_s() is not None, gpm_s=gpm_s)
    watched = 0
    while isinstance(request := next_request(requests, reporter, lane, roster), Ask):
        try:
            answer = roster.read(request.number, driver_version)
        except CallError as error:
            reporter.send(Refused(error.call, error.code))
            return EXIT_REFUSED
        if roster.version != watched:
            watched = roster.version
            watch.want(watched, roster.answering())
        reporter.send(answer)
        lane.polled()
    return EXIT_OK


def next_request(
    requests: int, reporter: Reporter, lane: FastLane, roster: Roster
) -> Request | None:
    """The next request; until it comes, looks between polls are made as they are due."""
    ready = select.poll()
    ready.register(requests, select.POLLIN)
    while (wait_s := lane.wait_s()) is not None and not ready.poll(wait_s * 1000):
        if changed := lane.look(roster.answering()):
            reporter.send(Hurry(changed))
    return read_request(requests)


def load_library(path: str) -> int:
    """Load NVML from `path`; pynvml then finds it by its soname. The code of the failure, or 0."""
    try:
        ctypes.CDLL(path)
    except OSError as error:
        sys.stderr.write(f"gpuwarden: {path} cannot be loaded: {error}\n")
        return codes.LIBRARY_NOT_FOUND
    return codes.SUCCESS


def main() -> None:
    """Run as a child of the agent."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flight", type=int, required=True, help="descriptor of shared memory")
    parser.add_argument("--answers", type=int, required=True, help="descriptor of a pipe")
    parser.add_argument("--library", help="path of libnvidia-ml.so.1")
    parser.add_argument("--fast", type=float, default=0.0, help="seconds between looks, 0 is off")
    parser.add_argument("--gpm", type=float, default=math.inf, help="seconds between GPM samples")
    options = parser.parse_args()
    reports = os.dup(1)
    os.dup2(2, 1)
    memory = mmap.mmap(options.flight, FLIGHT_BYTES)
    reporter = Reporter(reports, options.answers)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the agent decides when to end
    # Runs between bytecodes, that is when the call in flight has returned.
    signal.signal(signal.SIGTERM, lambda *_: leave(EXIT_OK))
    if options.library and (code := load_library(options.library)):
        reporter.send(Refused("dlopen", code))
        leave(EXIT_REFUSED)
    recorder = FlightRecorder(memory, Slot.POLL)
    beside = FlightRecorder(memory, Slot.EVENTS, beside=recorder)
    caller, watch = Caller(recorder), XidWatch(Caller(beside), reporter.send)
    leave(serve(0, reporter, caller, watch, FastLane(caller, options.fast), options.gpm))


if __name__ == "__main__":
    main()
