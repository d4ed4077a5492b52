"""The agent's side of the NVML child: starts it, asks it, and tells a hang from a death.

The child is never killed: SIGKILL inside a driver call has frozen GPUs, and a child in an
uninterruptible sleep would not end anyway. A second child is never started while one lives.
"""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Condition, Thread
from time import monotonic

from gpuwarden_agent.sources.kernel_files import read_text
from gpuwarden_agent.sources.nvml import (
    GpuProcesses,
    NvmlSettings,
    Poll,
    ProbeCondition,
    ProbeState,
)
from gpuwarden_agent.sources.nvml_codes import SUCCESS, mend_of, reason_of
from gpuwarden_agent.sources.nvml_flight import FLIGHT_BYTES, Flight, Slot, read_flight
from gpuwarden_agent.sources.nvml_frames import (
    Answer,
    AnswerFrame,
    Ask,
    End,
    FrameError,
    Hurry,
    Ready,
    Refused,
    Report,
    Request,
    Watch,
    Xid,
    read_report,
    write_frame,
)
from gpuwarden_agent.sources.nvml_pipe import AnswerPipe
from gpuwarden_agent.threads import tell_kernel_my_name

_MODULE = "gpuwarden_agent.sources.nvml_child"
_LOOK_EVERY_S = 0.1
_CONFIRM_S = 1.0
"""A hang or a silence is believed when looks over this time see the same call.

After a pause of child, agent or machine (SIGSTOP, a frozen virtual machine) a call looks old that
returns a moment later. So one gap between two looks, however long, counts for half of this at most.
"""
_END_PATIENCE_S = 2.0
_SLOTS = tuple(Slot)  # to go through an enum itself takes as long as the look
_STOPPED = ("T", "t")  # proc(5): by a signal, by a tracer


@dataclass(slots=True)
class _Child:
    """One child process and what it said last."""

    process: subprocess.Popen[bytes]
    memory: mmap.mmap
    answers: AnswerPipe
    started_at: float
    ready: Ready | None = None
    refused: Refused | None = None
    answer: Answer | None = None
    watch: Watch | None = None
    asked: int = 0
    asked_at: float = 0.0
    ended: bool = False
    asked_to_end: bool = False


@dataclass(frozen=True, slots=True)
class _Look:
    """A slot as we saw it last, and for how long our looks have seen just that."""

    flight: Flight
    at: float
    steady_s: float


class NvmlProbeProcess:
    """`NvmlProbe` over one child process.

    Args:
        settings: Settings.
    """

    def __init__(self, settings: NvmlSettings) -> None:
        self._settings = settings
        self._changed = Condition()
        self._child: _Child | None = None
        self._closed = False
        self._number = 0
        self._start_at = 0.0
        self._pause_s = settings.restart_after_s
        self._ended = ProbeCondition(ProbeState.STARTING)
        self._xids: SimpleQueue[Xid | None] = SimpleQueue()
        self._processes: GpuProcesses | None = None
        self._seen: dict[Slot, _Look] = {}
        self._hurry: Callable[[], None] = _no_hurry

    def poll(self) -> Poll:
        """Read all GPUs once; returns within `call_deadline_s`."""
        deadline = monotonic() + self._settings.call_deadline_s
        mine = 0
        with self._changed:
            self._closed = False
            self._start_where_due()
            while (child := self._child) is not None and not child.ended:
                self._take_answers(child)
                if mine and child.answer is not None and child.answer.number == mine:
                    # Just now it answered, so that nobody need ask whether it is stopped.
                    return Poll(self._condition_of(child, stopped=False), child.answer)
                if child.ready is not None and not (child.asked or child.asked_to_end):
                    mine = self._ask(child)
                if monotonic() >= deadline or self._hopeless(child):
                    break
                self._await(child)
            return Poll(self._condition())

    def _await(self, child: _Child) -> None:
        """Wait for the answer, or else for news, for a short while."""
        if not child.asked or child.answers.ended:
            self._changed.wait(_LOOK_EVERY_S)
            return
        self._changed.release()
        try:
            child.answers.wait(_LOOK_EVERY_S)
        finally:
            self._changed.acquire()

    def _take_answers(self, child: _Child) -> None:
        """Also what was asked by a poll that no longer waited for it."""
        if child.asked and (answer := child.answers.take()) is not None:
            child.answer = answer
            child.asked = 0
            self._processes = processes_after(self._processes, answer)

    def condition(self) -> ProbeCondition:
        """The present condition; does not wait."""
        with self._changed:
            return self._condition()

    def stuck_call(self) -> str:
        """The driver call that hangs, "" while none does; does not wait.

        `condition` asks besides whether the child is stopped: a call that is not old needs no such
        look, and this is asked all the time.
        """
        with self._changed:
            child, now = self._child, monotonic()
            if self._closed or child is None or child.ended:
                return ""
            flights = [read_flight(child.memory, slot) for slot in _SLOTS]
            old = [f for f in flights if f.call and now - f.since >= self._settings.stuck_after_s]
            condition = self._condition_of(child) if old else None
        if condition is None or condition.state is not ProbeState.STUCK:
            return ""
        return condition.call

    def next_xid(self, timeout_s: float) -> Xid | None:
        """The next XID event, None where none came within `timeout_s` seconds."""
        try:
            return self._xids.get(timeout=timeout_s)
        except Empty:
            return None

    def on_change(self, hurry: Callable[[], None]) -> None:
        """Call `hurry` from now on where a poll is worth making at once."""
        self._hurry = hurry

    def wake(self) -> None:
        """Let `next_xid` return at once."""
        self._xids.put(None)

    def watch(self) -> Watch | None:
        """How far XID events are watched; None before the child said so."""
        with self._changed:
            return self._child.watch if self._child is not None else None

    def processes(self) -> GpuProcesses | None:
        """Processes by GPU as last read; None before the first GPU said."""
        with self._changed:
            return self._processes

    def renew(self) -> None:
        """End the child between calls, so that the next poll starts a new one.

        Nothing happens while a poll is outstanding.
        """
        with self._changed:
            child = self._child
            if child is None or child.ended:
                return
            self._take_answers(child)
            if child.asked:
                return
            self._ask_to_end(child)
            self._changed.wait_for(lambda: child.ended, _END_PATIENCE_S)

    def close(self) -> None:
        """Ask the child to end and wait a moment; one inside a call is left to end by itself."""
        with self._changed:
            child = self._child
            self._closed = True
            if child is None or child.ended:
                return
            stuck = self._condition_of(child).state is ProbeState.STUCK
            self._ask_to_end(child)
            if self._changed.wait_for(lambda: child.ended, 0.0 if stuck else _END_PATIENCE_S):
                child.answers.close()

    def held(self) -> str:
        """The child that has not ended yet, in words; "" where there is none."""
        with self._changed:
            child = self._child
            if child is None or child.ended:
                return ""
            condition = self._condition_of(child)
            doing = (
                f"in {condition.call} for {condition.call_age_s:.0f} s" if condition.call else ""
            )
            return f"NVML child {child.process.pid} {doing or 'is about to end'}"

    # Everything below runs with the lock held, `_follow` and `_take` excepted.

    def _start_where_due(self) -> None:
        busy = self._child is not None and not self._child.ended
        if busy or self._closed or monotonic() < self._start_at:
            return
        if self._child is not None:
            self._child.answers.close()
        try:
            child = self._start()
        except OSError as error:
            self._child = None
            self._end_with(ProbeState.EXITED, "nvml_child_not_started", str(error))
            return
        self._child = child
        self._seen = {}
        Thread(target=self._follow, args=(child,), name="nvml-reports", daemon=True).start()

    def _start(self) -> _Child:
        with ExitStack() as passed:
            memory_file = os.memfd_create("gpuwarden-nvml-flight")
            passed.callback(os.close, memory_file)
            os.ftruncate(memory_file, FLIGHT_BYTES)
            memory = mmap.mmap(memory_file, FLIGHT_BYTES)
            answers_here, answers = os.pipe()
            passed.callback(os.close, answers)
            pipe = AnswerPipe(answers_here)
            try:
                process = subprocess.Popen(
                    self._command(memory_file, answers),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    bufsize=0,
                    pass_fds=(memory_file, answers),
                    start_new_session=True,  # Ctrl-C is for the agent
                )
            except OSError:
                pipe.close()
                raise
        return _Child(process, memory, pipe, monotonic())

    def _command(self, memory_file: int, answers: int) -> list[str]:
        command = [sys.executable, "-m", _MODULE]
        command += ["--flight", str(memory_file), "--answers", str(answers)]
        if self._settings.library_path is not None:
            command += ["--library", str(self._settings.library_path)]
        if self._settings.fast_interval_s:
            command += ["--fast", str(self._settings.fast_interval_s)]
        if self._settings.gpm_interval_s:
            command += ["--gpm", str(self._settings.gpm_interval_s)]
        return command

    def _ask(self, child: _Child) -> int:
        self._number += 1
        child.asked, child.asked_at = self._number, monotonic()
        self._write(child, Ask(self._number))
        return self._number

    def _ask_to_end(self, child: _Child) -> None:
        child.asked_to_end = True
        self._write(child, End())
        if child.process.stdin is not None:
            child.process.stdin.close()

    def _write(self, child: _Child, request: Request) -> None:
        stdin = child.process.stdin
        if stdin is None or stdin.closed:
            return
        try:
            write_frame(stdin.fileno(), request)
        except OSError:
            return  # it ended; the reader of its reports finds out

    def _follow(self, child: _Child) -> None:
        """Take reports until the child ends; runs in a thread of its own."""
        tell_kernel_my_name()
        stdout = child.process.stdout
        if stdout is None:
            return
        try:
            while (report := read_report(stdout.fileno())) is not None:
                self._take(child, report)
        except (FrameError, OSError):
            pass  # cut short: the child is ending, which the exit code tells better
        # Closing our end lets a child that still writes end by itself.
        stdout.close()
        code = child.process.wait()
        with self._changed:
            child.ended = True
            child.memory.close()
            if child.process.stdin is not None:
                child.process.stdin.close()
            self._note_end(child, code)
            self._changed.notify_all()

    def _take(self, child: _Child, report: Report) -> None:
        with self._changed:
            match report:
                case Ready():
                    child.ready = report
                case Refused():
                    child.refused = report
                case AnswerFrame():
                    raise FrameError("an answer beside the pipe of answers")
                case Watch():
                    child.watch = report
                    self._xids.put(None)
                case Xid():
                    self._xids.put(report)
                case Hurry():
                    self._hurry()
            self._changed.notify_all()

    def _note_end(self, child: _Child, code: int) -> None:
        if child.asked_to_end:
            self._start_at = 0.0
            self._ended = ProbeCondition(ProbeState.STARTING)
            return
        if child.ready and monotonic() - child.started_at >= self._settings.restart_at_most_s:
            self._pause_s = self._settings.restart_after_s
        if child.refused is not None:
            reason = f"nvml_{reason_of(child.refused.code)}"
            self._end_with(ProbeState.UNAVAILABLE, reason, mend_of(child.refused.code))
        else:
            how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
            self._end_with(
                ProbeState.EXITED,
                "nvml_child_exited",
                f"It ended {how} and is started again by itself; look at the agent's log",
            )

    def _end_with(self, state: ProbeState, reason: str, mend: str) -> None:
        self._ended = ProbeCondition(state, reason=reason, mend=mend)
        self._start_at = monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, self._settings.restart_at_most_s)

    def _hopeless(self, child: _Child) -> bool:
        """Waiting on for the answer makes no sense: the thread that would give it is held up."""
        if child.asked == 0 and child.ready is not None:
            return False
        if child.asked and monotonic() - child.asked_at < _LOOK_EVERY_S:
            return False
        stopped = self._condition().state is ProbeState.STOPPED
        return stopped or self._is_stuck(self._seen[Slot.POLL], monotonic())

    def _is_stuck(self, look: _Look, now: float) -> bool:
        age_s = now - look.flight.since if look.flight.call else 0.0
        return age_s >= self._settings.stuck_after_s and look.steady_s >= self._confirm_s()

    def _condition(self) -> ProbeCondition:
        child = self._child
        if child is not None:
            self._take_answers(child)
        if self._closed:
            return ProbeCondition(ProbeState.CLOSED)
        if child is None or child.ended:
            return self._ended
        return self._condition_of(child)

    def _condition_of(self, child: _Child, *, stopped: bool | None = None) -> ProbeCondition:
        now = monotonic()
        if stopped is None:
            stopped = process_state(child.process.pid) in _STOPPED
        look = self._look(child, now, stopped)
        flight = look.flight
        age_s = max(0.0, now - flight.since) if flight.call else 0.0
        if stopped:
            mend = f"Continue it: kill -CONT {child.process.pid}"
            state, reason = ProbeState.STOPPED, "nvml_child_stopped"
        else:
            state, reason, mend = self._judge(child, look)
        return ProbeCondition(
            state, flight.call, flight.gpu_uuid, age_s, flight.number, reason, mend
        )

    def _confirm_s(self) -> float:
        return min(_CONFIRM_S, self._settings.stuck_after_s / 2)

    def _look(self, child: _Child, now: float, stopped: bool) -> _Look:
        """Look at both threads' slots; the one with the older call."""
        for slot in _SLOTS:
            flight = read_flight(child.memory, slot)
            former = self._seen.get(slot)
            steady_s = 0.0
            if former is not None and former.flight == flight and not stopped:
                steady_s = former.steady_s + min(now - former.at, self._confirm_s() / 2)
            self._seen[slot] = _Look(flight, now, steady_s)
        poll, events = self._seen[Slot.POLL], self._seen[Slot.EVENTS]
        poll_since = poll.flight.since if poll.flight.call else now
        return events if events.flight.call and events.flight.since < poll_since else poll

    def _judge(self, child: _Child, look: _Look) -> tuple[ProbeState, str, str]:
        now = monotonic()
        if self._is_stuck(look, now):
            return ProbeState.STUCK, "driver_stuck", "Look for blocked tasks in the kernel log"
        waiting_since = child.asked_at if child.ready is not None else child.started_at
        waiting = child.asked != 0 or child.ready is None
        overdue = waiting and now - waiting_since >= self._settings.call_deadline_s
        if overdue and not look.flight.call and look.steady_s >= self._confirm_s():
            mend = f"Look what process {child.process.pid} waits for"
            return ProbeState.STOPPED, "nvml_child_silent", mend
        if child.ready is None:
            return ProbeState.STARTING, "", ""
        return (ProbeState.BUSY if child.asked else ProbeState.READY), "", ""


def _no_hurry() -> None:
    return


def processes_after(before: GpuProcesses | None, answer: Answer) -> GpuProcesses | None:
    """Processes by GPU after an answer; `before` itself where it brings nothing new."""
    known = dict(before or {})
    for gpu in answer.gpus:
        if gpu.pids is not None:
            known[gpu.uuid] = gpu.pids
        elif gpu.code != SUCCESS and gpu.uuid in known:
            known[gpu.uuid] = None
    asked = any(gpu.pids is not None for gpu in answer.gpus)
    return known if known and (asked or known != before) else before


def process_state(pid: int) -> str:
    """One-letter state of a process as in proc(5), "" where there is no such process."""
    try:
        stat = read_text(f"/proc/{pid}/stat")
    except OSError:
        return ""
    # 4321 (python3) S 4320 …: the name may hold blanks and brackets, so count from its last bracket
    return stat.rpartition(")")[2].split()[0] if ")" in stat else ""
