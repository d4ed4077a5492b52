"""`gpuwarden-run -- COMMAND …`: start a command only where it may run, end it when that changes."""

from __future__ import annotations

import queue
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import FrameType

from gpuwarden_runtime.admission import Admission, Entry, ask_admission
from gpuwarden_runtime.arguments import Arguments, UsageError, parse_arguments
from gpuwarden_runtime.cache import CachedSet, SetCache
from gpuwarden_runtime.client import Client
from gpuwarden_runtime.config import RuntimeSettings, read_settings
from gpuwarden_runtime.errors import GpuwardenError, SettingError
from gpuwarden_runtime.exchange import ONCE
from gpuwarden_runtime.exits import ExitCode
from gpuwarden_runtime.feed import FeedState
from gpuwarden_runtime.leaving import LeaveNotice, soonest
from gpuwarden_runtime.leaving import sentence as leave_sentence
from gpuwarden_runtime.machine_file import write_hosts
from gpuwarden_runtime.place import Place, covering, sentence
from gpuwarden_runtime.plan_records import PlannedLeave
from gpuwarden_runtime.process import Command, CommandNotStarted
from gpuwarden_runtime.records import Exclusion
from gpuwarden_runtime.watch import ExclusionWatch

_FORWARDED = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)


@dataclass(frozen=True, slots=True)
class _Ended:
    """The command ended by itself with this exit code."""

    code: int


@dataclass(frozen=True, slots=True)
class _Stopped:
    """The command was stopped from the terminal."""


@dataclass(frozen=True, slots=True)
class _Excluded:
    """The place became excluded."""

    exclusions: tuple[Exclusion, ...]


@dataclass(frozen=True, slots=True)
class _Planned:
    """Other leaves are planned than before."""

    leaves: tuple[PlannedLeave, ...]


_News = _Ended | _Stopped | _Excluded | _Planned


def launch(argv: Sequence[str]) -> int:
    """Run the launcher with these arguments; returns the exit code for the process."""
    try:
        arguments = parse_arguments(argv)
        settings = read_settings()
        client = Client(settings, retry=ONCE)  # who starts a job waits for no server
    except (UsageError, SettingError) as error:
        _say(str(error))
        return ExitCode.USAGE
    try:
        return _launch(arguments, settings, client)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _launch(arguments: Arguments, settings: RuntimeSettings, client: Client) -> int:
    cache = SetCache(settings.cache_folder, settings.url)
    place = Place(arguments.node, arguments.gpus)
    if arguments.hosts_in is not None and arguments.hosts_out is not None:
        files = (arguments.hosts_in, arguments.hosts_out)
        code = write_hosts(arguments, files, client, cache, _say)
        if code is not None or not arguments.command:
            client.close()
            return code or 0
    try:
        admission = ask_admission(place, settings.verdict_file, client, cache, time.time())
    except SettingError as error:
        _say(str(error))
        client.close()
        return ExitCode.USAGE
    for warning in admission.warnings:
        _say(warning)
    refusal = _refusal(admission, place, arguments) or _too_near(arguments, client, cache)
    if refusal is not None:
        client.close()
        return refusal
    return _run(arguments, place, client, cache)


def _refusal(admission: Admission, place: Place, arguments: Arguments) -> ExitCode | None:
    match admission.entry:
        case Entry.ADMITTED:
            return None
        case Entry.UNANSWERED if arguments.strict:
            _say(f"--strict: nobody can say whether {place.node} may be used; not starting")
            return ExitCode.UNANSWERED
        case Entry.UNANSWERED:
            _say(f"nobody can say whether {place.node} may be used; starting all the same")
            return None
        case Entry.EXCLUDED:
            _explain(admission.exclusions)
            _say(f"not starting {arguments.command[0]} (as the {admission.source} says)")
            return ExitCode.REFUSED


def _too_near(arguments: Arguments, client: Client, cache: SetCache) -> ExitCode | None:
    """Whether a planned leave comes before the command would end; nobody's word is no leave."""
    if not arguments.needs_s:
        return None
    now = time.time()
    try:
        planned = client.exclusions().planned
    except GpuwardenError:
        kept = cache.load(now)
        planned = kept.content.planned if isinstance(kept, CachedSet) else ()
    leave = soonest(arguments.node, planned, now)
    if leave is None or leave.at >= now + arguments.needs_s:
        return None
    _say(leave_sentence(leave))
    _say(f"not starting {arguments.command[0]}: it needs {arguments.needs_s:g} s")
    return ExitCode.REFUSED


def _run(arguments: Arguments, place: Place, client: Client, cache: SetCache) -> int:
    news: queue.SimpleQueue[_News] = queue.SimpleQueue()
    forwarder = _Forwarder()
    for number in _FORWARDED:
        signal.signal(number, forwarder)
    try:
        command = Command(
            arguments.command,
            on_end=lambda code: news.put(_Ended(code)),
            on_stop=lambda: news.put(_Stopped()),
        )
    except CommandNotStarted as error:
        _say(str(error))
        client.close()
        return ExitCode.NOT_FOUND if error.missing else ExitCode.NOT_EXECUTABLE
    forwarder.attach(command)

    def hear(state: FeedState) -> None:
        exclusions = covering(place, state.exclusions.values())
        if exclusions:
            news.put(_Excluded(exclusions))
        news.put(_Planned(state.planned))

    watch = ExclusionWatch(client, hear, _say, cache)
    watch.start()
    code = _follow(command, news, arguments)
    command.take_back_terminal()
    if watch.stop():
        client.close()  # else the thread still uses it; the process ends anyway
    return code


def _follow(command: Command, news: queue.SimpleQueue[_News], arguments: Arguments) -> int:
    notice = LeaveNotice(arguments.node, arguments.leave_notice_s, arguments.leave_file)
    grace_s = arguments.grace_s
    while True:
        try:
            item = news.get(timeout=notice.wait_s(time.time()))
        except queue.Empty:
            _ask(command, notice, arguments.leave_signal)
            continue
        match item:
            case _Planned(leaves=leaves):
                if notice.hear(leaves, time.time()):
                    notice.remove()
            case _Ended(code=code):
                return code
            case _Stopped():
                command.stop_with()
            case _Excluded(exclusions=exclusions):
                _explain(exclusions)
                _say(f"ending the command: SIGTERM now, SIGKILL after {grace_s:g} s")
                if not command.end(grace_s):
                    _say(f"the command did not end within {grace_s:g} s and was killed")
                return ExitCode.ENDED


def _ask(command: Command, notice: LeaveNotice, number: signal.Signals | None) -> None:
    """Ask the command to stop at its next border; it goes on until it does, or the time comes."""
    leave = notice.ask(time.time())
    if leave is None:
        return
    _say(leave_sentence(leave))
    trouble = notice.write(leave)
    if trouble:
        _say(f"the command cannot be told by its file: {trouble}")
    if number is not None:
        _say(f"asking the command to stop at its next border: {number.name}")
        command.forward(number)


class _Forwarder:
    """Hands signals on to the command; one that comes while it starts is kept until it has."""

    def __init__(self) -> None:
        self._command: Command | None = None
        self._early: list[int] = []

    def attach(self, command: Command) -> None:
        """From now on signals go to `command`."""
        self._command = command
        while self._early:
            command.forward(self._early.pop(0))

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self._command is None:
            self._early.append(number)
        else:
            self._command.forward(number)


def _explain(exclusions: Sequence[Exclusion]) -> None:
    for item in exclusions:
        _say(sentence(item))
        if item.decision_id:
            _say(f"to take it back: gpuwarden decisions revoke {item.decision_id} --reason TEXT")


def _say(text: str) -> None:
    """Tell the user; standard output belongs to the command."""
    sys.stderr.write(f"gpuwarden-run: {text}\n")
    sys.stderr.flush()
