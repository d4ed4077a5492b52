"""`gpuwarden-agent check`: lists plug-in checks, and has the running agent run one of them now."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum

import msgspec

from gpuwarden_agent.checks.definitions import CheckDefinition, load_checks
from gpuwarden_agent.checks.orders import (
    LONGEST_WAIT_S,
    OrderFolder,
    RunAnswer,
    RunOrder,
    Said,
    Stage,
)
from gpuwarden_agent.config import AgentSettings, ConfigError
from gpuwarden_agent.identity import read_boot_id
from gpuwarden_agent.maintenance import AgentNote, RunFolder
from gpuwarden_agent.run_files import uptime_s

_LOOK_EVERY_S = 0.1
_END_PATIENCE_S = 30.0
"""Ending a run takes some 5 s beyond its deadline, and the agent looks once an interval."""


class CheckExit(IntEnum):
    """How the command ends."""

    PASSED = 0
    FAILED = 1  # warning or critical
    UNUSABLE = 2  # a setting or argument cannot be used
    UNKNOWN = 3  # it ran and said nothing that can be used
    NOT_RUN = 4  # no agent, maintenance, GPUs in use, no such check …


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """What was asked on the command line.

    Attributes:
        name: Of the check.
        wait_s: Longest wait until it starts, seconds.
        even_if_busy: Start it though GPUs are in use.
        as_json: Print one JSON object.
    """

    name: str
    wait_s: float = 120.0
    even_if_busy: bool = False
    as_json: bool = False


class _NotRun(Exception):
    """It did not run; the message says why and names the mend."""


def list_checks(settings: AgentSettings, *, as_json: bool) -> CheckExit:
    """Print the checks that the settings name.

    Raises:
        ConfigError: A definition cannot be used.
    """
    checks = load_checks(settings.checks) if settings.checks is not None else ()
    if as_json:
        _print_json([_definition_json(one) for one in checks])
        return CheckExit.PASSED
    if not checks:
        _say("GPUWARDEN_AGENT_CHECKS names no checks.")
    for one in checks:
        proves = ", proves repair" if one.proves_repair else ""
        _say(f"{one.name:<24} {one.when}, each {one.interval_s:g} s{proves}")
    return CheckExit.PASSED


def run_one_check(settings: AgentSettings, request: CheckRequest) -> CheckExit:
    """Order a run, wait for its end, and print what came of it.

    Raises:
        ConfigError: The time to wait cannot be used.
    """
    if not 0 < request.wait_s <= LONGEST_WAIT_S:
        raise ConfigError(f"--wait {request.wait_s:g}: give seconds up to {LONGEST_WAIT_S:g}.")
    boot_id = read_boot_id(settings.proc_root)
    run_folder = RunFolder(settings.run_folder)
    try:
        _await_agent(run_folder)
        answer = _order(OrderFolder(settings.run_folder, boot_id), run_folder, request)
    except _NotRun as why:
        return _not_run(request, str(why))
    except OSError as error:
        mend = "Run it as root or as the agent's user, with the agent's settings (--env-file)."
        return _not_run(request, f"{settings.run_folder}: {error.strerror}. {mend}")
    if answer.stage is Stage.REFUSED:
        return _not_run(request, f"{answer.reason}. {answer.mend}")
    note = run_folder.note()
    return _tell(request, answer, note)


def _await_agent(folder: RunFolder) -> None:
    note = folder.note()
    if note is None:
        raise _NotRun(
            f"no agent runs with its files in {folder.path}. Start it, or name its settings "
            "with --env-file: the agent runs the check and tells the server."
        )
    if note.released or note.held:
        raise _NotRun("the agent is in maintenance: `gpuwarden-agent maintenance stop` first.")


def _order(orders: OrderFolder, folder: RunFolder, request: CheckRequest) -> RunAnswer:
    order = RunOrder(
        id=secrets.token_hex(8),
        check=request.name,
        boot_id=orders.own_boot_id,
        until_s=uptime_s() + request.wait_s,
        even_if_busy=request.even_if_busy,
    )
    with _given(orders, order):
        return _await_end(orders, folder, order, request.wait_s)


@contextmanager
def _given(orders: OrderFolder, order: RunOrder) -> Iterator[None]:
    orders.give(order)
    try:
        yield
    finally:
        orders.take_back(order.id)


def _await_end(orders: OrderFolder, folder: RunFolder, order: RunOrder, wait_s: float) -> RunAnswer:
    until = time.monotonic() + wait_s
    told: tuple[Stage, str] | None = None
    answer: RunAnswer | None = None
    while time.monotonic() < until:
        answer = orders.answer(order.id) or answer
        if answer is not None and (answer.stage, answer.reason) != told:
            if answer.stage in (Stage.ENDED, Stage.REFUSED):
                return answer
            if answer.stage is Stage.RUNS:
                until = time.monotonic() + answer.deadline_s + _END_PATIENCE_S
            told = (answer.stage, answer.reason)
            _progress(answer)
        if folder.note() is None:
            raise _NotRun("the agent ended, and a run with it. Start the agent, and order it again")
        time.sleep(_LOOK_EVERY_S)
    raise _NotRun(_why_not(answer, wait_s))


def _why_not(answer: RunAnswer | None, wait_s: float) -> str:
    if answer is None:
        return f"the agent did not answer within {wait_s:g} s. Look into its log"
    if answer.stage is Stage.RUNS:
        return "it began, and the agent has not told its end. Look into the agent's log"
    return f"it did not start within {wait_s:g} s: {answer.reason}. {answer.mend}"


def _progress(answer: RunAnswer) -> None:
    words = f"{answer.check} {answer.stage}"
    if answer.stage is Stage.RUNS:
        words += f", at most {answer.deadline_s:g} s"
    _complain(f"{words}: {answer.reason}. {answer.mend}" if answer.reason else words)


def _tell(request: CheckRequest, answer: RunAnswer, note: AgentNote | None) -> CheckExit:
    code = _exit_of(answer.said)
    away = [reason for source, reason in (note.troubles if note else ()) if source == "delivery"]
    if request.as_json:
        whole = msgspec.to_builtins(answer)
        _print_json({**whole, "exit": int(code), "delivery": away[0] if away else ""})
        return code
    for one in answer.said:
        reason = f" ({one.reason})" if one.reason else ""
        figures = f" | {one.figures}" if one.figures else ""
        _say(f"{answer.check} {one.entity or 'node'}: {one.state}{reason} {one.text}{figures}")
    if answer.mend:
        _say(answer.mend)
    _say(_what_follows(code, answer, away))
    return code


def _what_follows(code: CheckExit, answer: RunAnswer, away: list[str]) -> str:
    if code is CheckExit.UNKNOWN:
        return f"It passes and fails nothing; took {answer.took_s:g} s."
    sent = f"The agent keeps it until it can send it: {away[0]}." if away else "Told the server."
    proof = ""
    if code is CheckExit.PASSED:
        proof = " It ends a repair." if answer.proves_repair else " It is no proof of a repair."
    return f"Took {answer.took_s:g} s. {sent}{proof}"


def _exit_of(said: tuple[Said, ...]) -> CheckExit:
    states = {one.state for one in said}
    if states & {"warning", "critical"}:
        return CheckExit.FAILED
    return CheckExit.PASSED if states == {"ok"} else CheckExit.UNKNOWN


def _not_run(request: CheckRequest, why: str) -> CheckExit:
    if request.as_json:
        _print_json({"check": request.name, "exit": int(CheckExit.NOT_RUN), "reason": why})
    _complain(f"{request.name} was not run: {why.rstrip('.')}.")
    return CheckExit.NOT_RUN


def _definition_json(check: CheckDefinition) -> dict[str, object]:
    return {
        "name": check.name,
        "when": check.when.value,
        "interval_s": check.interval_s,
        "deadline_s": check.deadline_s,
        "proves_repair": check.proves_repair,
        "command": list(check.command),
    }


def _print_json(value: object) -> None:
    text = msgspec.json.format(msgspec.json.encode(value), indent=1)
    sys.stdout.write(text.decode() + "\n")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


def _complain(line: str) -> None:
    sys.stderr.write(f"gpuwarden-agent: {line}\n")
