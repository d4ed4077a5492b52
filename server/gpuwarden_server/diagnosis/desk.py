"""Answers one question: which window, which nodes, and what the diagnosis says of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuwarden_server.core.clock import Clock
from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.diagnosis.reading import MOST_NODES, Asked, StepSource, WindowReader, no_steps
from gpuwarden_server.fleet.directory import FleetDirectory
from gpuwarden_server.history.domain import SHAPES, Level
from gpuwarden_server.history.feature import History
from gpuwarden_server.inventory.book import Placements
from gpuwarden_server.jobs import repository
from gpuwarden_server.jobs.domain import JobRun, possible_names
from gpuwarden_server.store.database import Database
from gpuwarden_verdict.diagnosis import Diagnosis, Window, diagnose

USUAL_S = 3600.0
"""What is asked about where nobody says."""
MOST_S = 86_400.0
LEAST_STEPS = 4
MOST_NODE_STEPS = MOST_NODES * 240
"""Nodes times steps of one answer: a gigabyte of readings would be more than it may take."""


@dataclass(frozen=True, slots=True)
class DiagnosisParts:
    """What the desk works with.

    Attributes:
        state: state.db.
        history: What was measured.
        directory: Nodes and GPUs.
        placements: Where nodes are.
        clock: Time.
    """

    state: Database
    history: History
    directory: FleetDirectory
    placements: Placements
    clock: Clock


@dataclass(frozen=True, slots=True)
class Answer:
    """A diagnosis, and the window that it is of.

    Attributes:
        diagnosis: What it says.
        window: What it read.
        asked: What was asked.
        nodes_left_out: Nodes of the job or fleet beyond the bound of one answer.
    """

    diagnosis: Diagnosis
    window: Window
    asked: Asked
    nodes_left_out: int


class DiagnosisDesk:
    """Makes diagnoses; any thread."""

    def __init__(self, parts: DiagnosisParts, steps: StepSource = no_steps) -> None:
        self._parts = parts
        self._reader = WindowReader(parts.history.reader, parts.directory, parts.placements, steps)

    def diagnose(
        self, job: str | None, begin: float | None, end: float | None, past_s: float | None
    ) -> Answer:
        """Who is to blame.

        Args:
            job: As a person names it; None for the fleet.
            begin: Epoch seconds; None for an hour before the end.
            end: Epoch seconds; None for now, or for the end of a job that has ended.
            past_s: How much before it is compared with, seconds; None for as much again.

        Raises:
            ProblemError: 404 no such job; 409 several; 422 a window that cannot be.
        """
        now = self._parts.clock.now()
        name = None if job is None else self._name(job)
        own = [] if name is None else _latest(self._runs_of(name))
        end = min(now, self._end(own, now)) if end is None else end
        begin = self._begin(own, end) if begin is None else begin
        asked, left_out = self._asked(own, name, begin, end, past_s)
        window = self._reader.read(asked)
        if window.steps - window.first < LEAST_STEPS:
            raise ProblemError(
                422,
                "window_too_short",
                f"{window.steps - window.first} steps of {asked.step_s} s are in the window",
                f"Ask for {LEAST_STEPS * asked.step_s} s or more.",
            )
        return Answer(diagnose(window, name or ""), window, asked, left_out)

    def _name(self, text: str) -> str:
        names = sorted({run.job for run in self._runs_of(*possible_names(text))})
        if len(names) == 1:
            return names[0]
        if names:
            raise ProblemError(
                409, "ambiguous_job", f"{text!r} may be {' or '.join(names)}", "Say which: KIND:ID."
            )
        raise ProblemError(
            404,
            "not_found",
            f"no job {text!r} is known",
            "Name it as KIND:ID (slurm:4711); agents see jobs by the processes of GPUs. Without "
            "a job, ask of the fleet.",
        )

    def _runs_of(self, *names: str) -> list[JobRun]:
        with self._parts.state.read() as connection:
            return repository.read_runs(connection, names)

    def _end(self, own: Sequence[JobRun], now: float) -> float:
        ended = [run.until for run in own if run.until is not None]
        return max(ended) if own and len(ended) == len(own) else now

    def _begin(self, own: Sequence[JobRun], end: float) -> float:
        since = min((run.since for run in own), default=end - USUAL_S)
        return max(end - USUAL_S, min(since, end - 600.0))

    def _asked(
        self,
        own: Sequence[JobRun],
        name: str | None,
        begin: float,
        end: float,
        past_s: float | None,
    ) -> tuple[Asked, int]:
        _check(begin, end)
        past = begin - (end - begin if past_s is None else past_s)
        kept_from = self._parts.clock.now() - self._parts.history.keeping.seconds[Level.MINUTE]
        level = Level.MINUTE if begin >= kept_from else Level.QUARTER
        step_s = SHAPES[level].step_s
        # A step that has not ended would look as if little had happened in it.
        begin, end = begin // step_s * step_s, end // step_s * step_s
        with self._parts.state.read() as connection:
            runs = repository.read_runs_between(connection, begin, end)
        nodes = self._nodes(own, runs)
        if name is not None and not {run.node_id for run in own} & set(nodes):
            raise ProblemError(
                404, "not_found", f"no node of {name} is known any more", "Ask of the fleet."
            )
        chosen = tuple(nodes[:MOST_NODES])
        spans = runs if name is None else [run for run in runs if run.job != name] + list(own)
        asked = Asked(chosen, tuple(spans), past, begin, end, level, step_s)
        _check_size(len(chosen), round((end - past) / step_s))
        wanted = {run.node_id for run in own} if name else set(nodes)
        return asked, len(wanted - set(chosen))

    def _nodes(self, own: Sequence[JobRun], runs: Iterable[JobRun]) -> list[str]:
        """The job's nodes, then those of other jobs, then the rest of the fleet."""
        known = [node.node_id for node in self._parts.directory.nodes()]
        first = [run.node_id for run in own]
        order = [*first, *(run.node_id for run in runs), *sorted(known)]
        return [node for node in dict.fromkeys(order) if self._parts.directory.node(node)]


def _check(begin: float, end: float) -> None:
    if not begin < end:
        raise ProblemError(
            422, "invalid_range", f"from={begin:g} is not before to={end:g}", "Swap them."
        )
    if end - begin > MOST_S:
        raise ProblemError(
            422,
            "range_too_long",
            f"a window of {(end - begin) / 3600:.1f} h",
            f"Ask for {MOST_S / 3600:g} h or less.",
        )


def _check_size(nodes: int, steps: int) -> None:
    if nodes * steps > MOST_NODE_STEPS:
        raise ProblemError(
            422,
            "too_many_points",
            f"{steps} steps of {nodes} nodes, the past included",
            f"Ask for {MOST_NODE_STEPS // nodes} steps or less: a shorter window, or less past.",
        )


def _latest(runs: Sequence[JobRun]) -> list[JobRun]:
    """The newest run of an id that was used again."""
    kept: list[JobRun] = []
    for run in sorted(runs, key=lambda one: one.since, reverse=True):
        if kept and run.until is not None and run.until < min(k.since for k in kept) - USUAL_S:
            break
        kept.append(run)
    return kept
