"""Plug-in checks: their last results as readings, each change of state as an event."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpuwarden_agent.checks.definitions import CheckDefinition, When, load_checks
from gpuwarden_agent.checks.idle import IdleWatch
from gpuwarden_agent.checks.ordered import OrderedRuns
from gpuwarden_agent.checks.orders import OrderFolder
from gpuwarden_agent.checks.results import CheckResult, CheckState, results_of
from gpuwarden_agent.checks.runner import CheckRunner, Run
from gpuwarden_agent.collectors.context import CollectorContext
from gpuwarden_agent.collectors.contract import Collector, Conditions, Harvest
from gpuwarden_agent.logs import get_logger
from gpuwarden_wire.acknowledgement import NodeVerdict
from gpuwarden_wire.events import Attribute, Event, EventKind, GpuIdentity
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import Reading, Stale, Unavailable

_log = get_logger("checks")

_DEADLINE_S = 10.0
"""Gathering results takes no time; runs have deadlines and threads of their own."""

_SEVERITIES = {CheckState.OK: "info", CheckState.WARNING: "warning", CheckState.CRITICAL: "error"}
_IN_REPAIR = "in_repair"
_MENDS = {
    "no_such_file": "Install the program, or mend `command` of the check.",
    "not_executable": "Make it executable: chmod +x.",
    "not_a_program": "Give it a first line such as #!/bin/sh.",
    "deadline_exceeded": "Find out why it hangs, or raise `deadline_s` of the check.",
    "not_killable": "It waits in the kernel; look for blocked tasks in the kernel log.",
    "too_much_output": "Let it print one line.",
    "output_too_long": "Let it print one JSON object a line, 64 KiB in all.",
    "no_such_gpu": "Let it name a GPU of this node by gpu_uuid or pci_bus_id.",
}

Key = tuple[EntityKind, str, str]
"""Entity kind, gpu_uuid, and the PCI address of a GPU whose uuid is not known."""


@dataclass(slots=True)
class _Said:
    """What a check said last about one entity.

    Attributes:
        result: Of the last run.
        at: Monotonic seconds of its end.
        told: State that the last event told, None before the first.
    """

    result: CheckResult
    at: float
    told: CheckState | None = None


_Standing = dict[Key, _Said]
"""What one check said, by entity."""


class CheckCollector:
    """Gathers what runs of plug-in checks brought and starts the next ones.

    A state that could not be found out is a reading that says why, and own trouble: it neither
    fails nor passes anything.
    """

    name = "checks"
    deadline_s = _DEADLINE_S

    def __init__(
        self,
        checks: Sequence[CheckDefinition],
        interval_s: float,
        boot_id: str,
        *,
        gpus: Callable[[], Sequence[GpuIdentity]],
        conditions: Conditions,
        verdict: Callable[[], NodeVerdict | None],
        orders: OrderFolder,
        idle: Callable[[], bool | None] = lambda: None,
        runner: CheckRunner | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.interval_s = interval_s
        self._checks = {check.name: check for check in checks}
        self._standings: dict[str, _Standing] = {check.name: {} for check in checks}
        self._boot_id = boot_id
        self._gpus = gpus
        self._conditions = conditions
        self._verdict = verdict
        self._idle = idle
        self._in_repair_before: frozenset[str] = frozenset()
        self._unsure: set[str] = set()
        self._runner = runner or CheckRunner(checks)
        self._ordered = OrderedRuns(orders, self._checks, self._runner)
        self._monotonic = monotonic

    def collect(self, now: float) -> Harvest:
        """Results that came since the last call, and the readings of all checks."""
        events = [one for run in self._runner.finished() for one in self._take(run, now)]
        self._hurry_repairs()
        self._ordered.look()
        self._start_due()
        return Harvest(rows=self._rows(), events=tuple(events))

    def close(self) -> None:
        """End what runs."""
        self._runner.close()

    def _hurry_repairs(self) -> None:
        """Checks that may end a repair are due as soon as one has begun."""
        verdict = self._verdict()
        told = () if verdict is None else (verdict.node, *verdict.gpus)
        in_repair = frozenset(one.entity for one in told if one.state == _IN_REPAIR)
        if in_repair - self._in_repair_before:
            proving = (check.name for check in self._checks.values() if check.proves_repair)
            self._runner.make_due(proving)
        self._in_repair_before = in_repair

    def _start_due(self) -> None:
        waiting = [one.name for one in self._checks.values() if one.when is When.IDLE]
        idle = self._idle() if waiting else None

        def may_start(check: CheckDefinition) -> bool:
            free = check.when is When.ALWAYS or idle is True
            return free or self._ordered.even_if_busy(check.name)

        self._runner.start_due(may_start, self._ordered.wanted)
        self._ordered.tell(idle=idle)
        for name in waiting:
            self._tell_unsure(name, unsure=idle is None)

    def _tell_unsure(self, name: str, *, unsure: bool) -> None:
        """That nobody knows whether the node is idle is own trouble: the check waits for good."""
        source = f"check:{name}"
        if unsure:
            self._unsure.add(name)
            mend = 'NVML must be on and answer for every GPU, else give it when = "always".'
            self._conditions.trouble(source, "idle_unknown", mend)
        elif name in self._unsure:
            self._unsure.discard(name)
            self._conditions.fine(source)

    # results

    def _take(self, run: Run, now: float) -> list[Event]:
        standing = self._standings[run.check.name]
        if run.outcome.reason == "agent_ends":
            self._ordered.ended(run, (), "Maintenance began, or the agent ended; order it again.")
            return []
        results = [self._placed(one) for one in results_of(run.check, run.outcome)]
        ordered = self._ordered.took(run)
        self._ordered.ended(run, results, _mend_of(run, results))
        at = self._monotonic()
        whole = len(results) == 1 and results[0].state is CheckState.UNKNOWN
        if whole and not (results[0].gpu_uuid or results[0].pci_bus_id):
            for key in (*standing,) or (_NODE,):  # nothing is known of what it spoke about
                self._note(standing, key, results[0], at)
            self._tell_trouble(run, results[0])
            return []
        self._tell_trouble(run, _first_unknown(results))
        events: list[Event] = []
        for result in results:
            said = self._note(standing, _key(result), result, at)
            events += self._told(run, said, _key(result), now, ordered=ordered)
        self._note_absent(standing, {_key(one) for one in results}, at)
        return events

    def _placed(self, result: CheckResult) -> CheckResult:
        """With the GPU's uuid and address filled in; a GPU that is not this node's is unknown."""
        if not (result.gpu_uuid or result.pci_bus_id):
            return result
        gpus = self._gpus()
        for gpu in gpus:
            same = result.gpu_uuid == gpu.gpu_uuid or (
                not result.gpu_uuid and result.pci_bus_id == gpu.pci_bus_id
            )
            if same:
                return _with_gpu(result, gpu.gpu_uuid, gpu.pci_bus_id)
        if not gpus:
            return result  # not known yet which there are
        named = result.gpu_uuid or result.pci_bus_id
        why = Unavailable("no_such_gpu")
        return CheckResult(
            CheckState.UNKNOWN,
            f"it names GPU {named}, which this node has not",
            why.reason,
            readings=dict.fromkeys(result.readings, why),
        )

    @staticmethod
    def _note(standing: _Standing, key: Key, result: CheckResult, at: float) -> _Said:
        said = standing.get(key)
        if said is None:
            said = standing[key] = _Said(result, at)
        said.result, said.at = result, at
        return said

    @staticmethod
    def _note_absent(standing: _Standing, present: set[Key], at: float) -> None:
        """What the check spoke about before and does not now is unknown, not as it was."""
        for key, said in standing.items():
            if key not in present:
                why = Unavailable("not_reported")
                readings = dict.fromkeys(said.result.readings, why)
                said.result = CheckResult(CheckState.UNKNOWN, "", why.reason, readings=readings)
                said.at = at

    # events

    def _told(self, run: Run, said: _Said, key: Key, now: float, *, ordered: bool) -> list[Event]:
        """The event of a result: on each change, of an ordered run, and of a proof of repair."""
        state = said.result.state
        if state is CheckState.UNKNOWN:
            return []
        proves = state is CheckState.OK and run.check.proves_repair and self._in_repair(key)
        if state is said.told and not proves and not ordered:
            return []
        before, said.told = said.told, state
        _log.info(
            "check_changed", check=run.check.name, entity=key[1] or key[2], state=state.name.lower()
        )
        return [self._event(run, said.result, key, before, now)]

    def _event(
        self, run: Run, result: CheckResult, key: Key, before: CheckState | None, now: float
    ) -> Event:
        passed = result.state is CheckState.OK
        kind = EventKind.CHECK_PASSED if passed else EventKind.CHECK_FAILED
        stamp = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
        entity = key[1] or key[2]
        facts: dict[str, Attribute] = {
            "plug_in": True,
            "check": run.check.name,
            "state": result.state.name.lower(),
            "before": before.name.lower() if before is not None else None,
            "fault_class": run.check.fault_class.value,
            "proves_repair": run.check.proves_repair,
            "figures": result.figures,
            "took_s": round(run.outcome.took_s, 3),
        }
        return Event(
            id=f"{kind}:{self._boot_id}:{run.check.name}:{entity}:{stamp}",
            kind=kind,
            # A pass speaks of the time when the check began, a failure of when it was seen.
            observed_at=run.began_at if passed else now,
            entity_kind=key[0],
            entity=key[1],
            pci_bus_id=result.pci_bus_id or None,
            severity=_SEVERITIES[result.state],
            text=result.text,
            attributes={name: fact for name, fact in facts.items() if fact not in (None, "")},
        )

    def _tell_trouble(self, run: Run, unknown: CheckResult | None) -> None:
        """A check that says nothing is own trouble, and no verdict about anything."""
        source = f"check:{run.check.name}"
        if unknown is None:
            self._conditions.fine(source)
            return
        mend = _mend_of(run, [unknown])
        said = f" It said: {unknown.text[:200]}" if unknown.text else ""
        self._conditions.trouble(source, unknown.reason, mend + said, renew=True)

    def _in_repair(self, key: Key) -> bool:
        verdict = self._verdict()
        if verdict is None:
            return False
        if key[0] is EntityKind.NODE:
            return any(one.state == _IN_REPAIR for one in (verdict.node, *verdict.gpus))
        return any(one.entity == key[1] and one.state == _IN_REPAIR for one in verdict.gpus)

    # readings

    def _rows(self) -> dict[EntityKind, Mapping[str, Mapping[str, Reading]]]:
        rows: dict[EntityKind, dict[str, dict[str, Reading]]] = {}
        now = self._monotonic()
        for name, standing in self._standings.items():
            check = self._checks[name]
            for (kind, entity, address), said in standing.items():
                if kind is EntityKind.NODE or entity or not address:
                    row = rows.setdefault(kind, {}).setdefault(entity, {})
                    row.update(_row(check, said, now))
        return {kind: dict(entities) for kind, entities in rows.items()}


_NODE: Key = (EntityKind.NODE, "", "")


def _key(result: CheckResult) -> Key:
    if result.gpu_uuid:
        return (EntityKind.GPU, result.gpu_uuid, "")
    if result.pci_bus_id:
        return (EntityKind.GPU, "", result.pci_bus_id)
    return _NODE


def _with_gpu(result: CheckResult, gpu_uuid: str, pci_bus_id: str) -> CheckResult:
    return CheckResult(
        result.state,
        result.text,
        result.reason,
        gpu_uuid,
        pci_bus_id,
        result.readings,
        result.figures,
    )


def _first_unknown(results: Sequence[CheckResult]) -> CheckResult | None:
    return next((one for one in results if one.state is CheckState.UNKNOWN), None)


def _mend_of(run: Run, results: Sequence[CheckResult]) -> str:
    """What the operator can do about a run that said nothing, "" where it did."""
    unknown = _first_unknown(results)
    if unknown is None:
        return ""
    return run.mend or _MENDS.get(unknown.reason, "Run it by hand to see what it says.")


def _row(check: CheckDefinition, said: _Said, now: float) -> dict[str, Reading]:
    """State and readings; once a further run should have ended long ago, only their age."""
    age_s = now - said.at
    if age_s > 2 * check.interval_s + check.deadline_s:
        return dict.fromkeys(check.metrics, Stale(round(age_s, 3)))
    unknown = said.result.state is CheckState.UNKNOWN
    state = Unavailable(said.result.reason) if unknown else float(said.result.state)
    row: dict[str, Reading] = {check.metric: state}
    for name in check.readings:
        row[check.reading_metric(name)] = said.result.readings[name]
    return row


def build(context: CollectorContext) -> Collector | None:
    """The collector where the settings name checks.

    Raises:
        ConfigError: A definition cannot be used.
    """
    path = context.settings.checks
    checks = load_checks(path) if path is not None else ()
    if not checks:
        return None
    return CheckCollector(
        checks,
        context.settings.interval_s,
        context.boot_id,
        gpus=context.gpus,
        conditions=context.conditions,
        verdict=context.verdict,
        orders=OrderFolder(context.settings.run_folder, context.boot_id),
        idle=_idle_watch(context).look,
    )


def _idle_watch(context: CollectorContext) -> IdleWatch:
    probe, folder = context.nvml_probe, context.settings.hpc_job_folder
    return IdleWatch(probe.processes if probe is not None else None, context.gpus, folder)
