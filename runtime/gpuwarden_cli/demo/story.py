"""The story: what fails, what must be seen of it, and what must never be seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpuwarden_cli.demo.installation import Installation
from gpuwarden_cli.demo.pace import Pace
from gpuwarden_cli.demo.sight import Sight
from gpuwarden_runtime.client import Client
from gpuwarden_wire.acknowledgement import Usable

# Who plays what. The simulator runs jobs on nodes 1-8, 9-12, 13-14, 15 and 16: the burst takes a
# job of eight nodes, and no fault stops the job that another one needs.
BURST_NODE = "gpu-0003"
WORN = ("gpu-0010", 3)
LOST = ("gpu-0015", 1)
PORT_NODE, PORT = "gpu-0013", "mlx5_4/1"
HOT = ("gpu-0011", 5)

LEARNED = "learned_score"
"""Name under which the learnt score gives evidence."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What a step may use.

    Attributes:
        installation: The running gpuwarden.
        client: With the operator's key.
        pace: Times.
    """

    installation: Installation
    client: Client
    pace: Pace

    def uuid(self, place: tuple[str, int]) -> str:
        """UUID of a GPU by node and index."""
        return self.installation.fleet.gpu_uuids[place]

    def fail(self, fault: str, entity: str, ramp_s: float | None = None) -> None:
        """Start a fault."""
        self.installation.fleet.fail(fault, entity, ramp_s)

    def repair(self, entity: str) -> None:
        """End the faults of an entity; its node reports a passed check."""
        self.installation.fleet.player.repair(entity)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the story.

    Attributes:
        name: Stable name in the summary.
        title: For people.
        told: What must be seen, in words.
        begin: Makes it happen.
        seen: What is seen of it, "" as long as it is not what is told.
        deadline_s: How long that may take.
        hold_s: How long to look at least, so that what must not come could have come.
    """

    name: str
    title: str
    told: str
    begin: Callable[[Stage], None]
    seen: Callable[[Stage, Sight], str]
    deadline_s: float
    hold_s: float = 0.0


def story(pace: Pace) -> tuple[Step, ...]:
    """All steps in order."""
    return (
        Step(
            "quiet",
            "Quiet: 16 nodes with 8 GPUs each, and this machine",
            "every node reports, 128 GPUs are healthy, nothing is excluded",
            _nothing,
            _seen_quiet,
            pace.step_s + pace.quiet_s,
            pace.quiet_s,
        ),
        Step(
            "application_burst",
            "A program crashes on 64 GPUs: XID 31 and 43 everywhere",
            "the events arrive, and nobody is excluded for them",
            _begin_burst,
            _seen_burst,
            pace.step_s + 2.0 * pace.settle_s,
            2.0 * pace.settle_s + 4.0 * pace.sweep_s,
        ),
        Step(
            "row_remap_failure",
            f"{_named(WORN)}: memory wears out, no spare row is left",
            "the GPU is excluded by rule, class memory",
            lambda stage: stage.fail("row_remap_failure", stage.uuid(WORN), pace.wear_s),
            lambda stage, sight: _seen_excluded(stage, sight, WORN, "memory"),
            pace.step_s + pace.wear_s,
        ),
        Step(
            "gpu_off_bus",
            f"{_named(LOST)}: falls off the bus",
            "the GPU is excluded by rule, class bus",
            lambda stage: stage.fail("gpu_off_bus", stage.uuid(LOST)),
            lambda stage, sight: _seen_excluded(stage, sight, LOST, "bus"),
            pace.step_s,
        ),
        Step(
            "nic_port_down",
            f"{PORT_NODE}: port {PORT} loses its link",
            "the port has an incident of class nic, and no GPU is blamed",
            lambda stage: stage.fail("nic_port_down", f"{PORT_NODE}/{PORT}"),
            _seen_port_down,
            pace.step_s + pace.settle_s,
        ),
        Step(
            "overheating",
            f"{_named(HOT)}: has been growing warmer for a while, no limit is crossed",
            "only the learnt score names it: suspect with its contributions, not excluded",
            _nothing,  # the warmth began with the burst: a trend takes time
            _seen_hot,
            pace.slow_step_s,
        ),
        Step(
            "repair",
            f"{_named(LOST)}: somebody reseats the board",
            "the GPU is in repair and stays excluded",
            _begin_repair,
            lambda stage, sight: _seen_state(stage, sight, "in_repair", Usable.NO),
            pace.step_s,
        ),
        Step(
            "check_passed",
            f"{_named(LOST)}: answers again and passes its check",
            "the exclusion is lifted, the GPU is on probation",
            lambda stage: stage.repair(stage.uuid(LOST)),
            lambda stage, sight: _seen_state(stage, sight, "probation", Usable.YES),
            pace.step_s + pace.dwell_s,
        ),
        Step(
            "return",
            f"{_named(LOST)}: stays sound",
            "the GPU is healthy again, the other exclusions stand",
            _nothing,
            _seen_return,
            pace.step_s + pace.dwell_s,
        ),
    )


def forbidden(stage: Stage, sight: Sight) -> tuple[str, ...]:
    """What is seen that the story rules out, a sentence each."""
    allowed = {stage.uuid(WORN), stage.uuid(LOST), PORT_NODE}
    found = [
        f"{item.entity_kind} {item.entity} of {item.node_id} is excluded: {item.reason}"
        for item in sight.exclusions
        if item.entity not in allowed
    ]
    hot = stage.uuid(HOT)
    found += [
        f"{item.detector} speaks about {_named(HOT)}: {item.sentence}"
        for incident in sight.incidents_of(hot)
        for item in incident.evidence
        if item.detector != LEARNED
    ]
    return tuple(found)


def told_events(stage: Stage) -> tuple[frozenset[str], frozenset[str]]:
    """Ids of the events that were played, and of those that the server acknowledged."""
    player = stage.installation.fleet.player
    acknowledged = player.acknowledged_event_ids()
    return frozenset(player.event_ids()), acknowledged


def _named(place: tuple[str, int]) -> str:
    return f"{place[0]} GPU {place[1]}"


def _nothing(stage: Stage) -> None:
    """The step only looks."""


def _seen_quiet(stage: Stage, sight: Sight) -> str:
    played = [sight.nodes.get(node) for node in stage.installation.fleet.nodes]
    own = sight.nodes.get(stage.installation.node)
    if own is None or own.last_seen_at is None:
        return ""
    present = [node for node in played if node is not None and node.usable is Usable.YES]
    gpus = sum(len(node.gpus) for node in present)
    if len(present) < len(played) or gpus < 8 * len(played) or sight.exclusions:
        return ""
    trouble = "; ".join(f"{item.source}: {item.reason}" for item in own.trouble)
    said = f", which cannot read {trouble}" if trouble else ""
    return f"{len(present)} nodes, {gpus} GPUs, nothing excluded; this machine reports{said}"


def _begin_burst(stage: Stage) -> None:
    stage.fail("application_burst", BURST_NODE)
    stage.fail("slow_overheating", stage.uuid(HOT), stage.pace.ramp_s)


def _seen_burst(stage: Stage, sight: Sight) -> str:
    stored = stage.client.raw("/v1/events", {"node": BURST_NODE, "limit": 1000})["items"]
    codes = sorted({item["xid"] for item in stored if item.get("xid") in (31, 43)})
    if codes != [31, 43] or sight.exclusions:
        return ""
    seen = sum(1 for item in stored if item.get("xid") in (31, 43))
    return f"{seen} events with XID 31 and 43 on {BURST_NODE} alone, nobody excluded"


def _seen_excluded(stage: Stage, sight: Sight, place: tuple[str, int], fault_class: str) -> str:
    uuid = stage.uuid(place)
    item, line = sight.exclusion_of(uuid), sight.gpu(*place)
    classes = [incident.fault_class for incident in sight.incidents_of(uuid)]
    if item is None or item.decided_by != "rule" or fault_class not in classes:
        return ""
    if line is None or line.usable is not Usable.NO:
        return ""
    return f"excluded by {item.decided_by}, state {line.state}: {item.reason}"


def _seen_port_down(stage: Stage, sight: Sight) -> str:
    entity = f"{PORT_NODE}/{PORT}"
    incidents = [item for item in sight.live_incidents() if item.entity == entity]
    node = sight.nodes.get(PORT_NODE)
    if not incidents or incidents[0].fault_class != "nic" or node is None:
        return ""
    blamed = [line for line in node.gpus if sight.incidents_of(line.gpu_uuid)]
    if blamed:
        return ""
    return f"{incidents[0].severity} incident of {entity}: {incidents[0].why}; node {node.state}"


def _seen_hot(stage: Stage, sight: Sight) -> str:
    uuid, line = stage.uuid(HOT), sight.gpu(*HOT)
    detectors = {
        item.detector for incident in sight.incidents_of(uuid) for item in incident.evidence
    }
    if line is None or line.state != "suspect" or detectors != {LEARNED}:
        return ""
    why = stage.client.why_gpu(uuid)
    if why.risk is None or why.verdict.usable is Usable.NO:
        return ""
    terms = [term for term in why.risk.contributions if term.name != "intercept"]
    first = max(terms, key=lambda term: term.log_odds, default=None)
    named = "" if first is None else f", most of it from {first.name} {first.log_odds:+.1f}"
    held = ""
    if why.gate is not None and why.gate.missing:
        held = f"; it may not act alone: {why.gate.missing[0]}"
    return f"suspect at {why.risk.probability:.0%}{named}{held}"


def _begin_repair(stage: Stage) -> None:
    stage.client.repair_gpu(stage.uuid(LOST), "demo: the board was reseated")


def _seen_state(stage: Stage, sight: Sight, state: str, usable: Usable) -> str:
    line, excluded = sight.gpu(*LOST), sight.exclusion_of(stage.uuid(LOST)) is not None
    if line is None or line.state != state or line.usable is not usable:
        return ""
    if excluded is not (usable is Usable.NO):
        return ""
    return f"state {line.state}, usable {line.usable}, epoch {sight.epoch}"


def _seen_return(stage: Stage, sight: Sight) -> str:
    line = sight.gpu(*LOST)
    if sight.exclusion_of(stage.uuid(WORN)) is None:
        return ""
    if line is None or line.state != "healthy" or line.usable is not Usable.YES:
        return ""
    return f"state healthy, usable yes; {len(sight.exclusions)} still excluded"
