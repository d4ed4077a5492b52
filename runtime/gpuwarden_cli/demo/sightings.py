"""What must be seen of each step: "" as long as it is not, else what is seen, in words."""

from __future__ import annotations

from gpuwarden_cli.demo.sight import Sight
from gpuwarden_cli.demo.stage import (
    BURST_NODE,
    HOT,
    LEARNED,
    LOST,
    PORT,
    PORT_NODE,
    SPARE,
    WORN,
    Stage,
)
from gpuwarden_wire.acknowledgement import Usable


def seen_quiet(stage: Stage, sight: Sight) -> str:
    """Every node reports, every GPU is there, nothing is excluded."""
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


def seen_burst(stage: Stage, sight: Sight) -> str:
    """The events of the burst are stored, and nobody is excluded."""
    stored = stage.client.raw("/v1/events", {"node": BURST_NODE, "limit": 1000})["items"]
    codes = sorted({item["xid"] for item in stored if item.get("xid") in (31, 43)})
    if codes != [31, 43] or sight.exclusions:
        return ""
    seen = sum(1 for item in stored if item.get("xid") in (31, 43))
    return f"{seen} events with XID 31 and 43 on {BURST_NODE}, one of its nodes; nobody excluded"


def seen_excluded(stage: Stage, sight: Sight, place: tuple[str, int], fault_class: str) -> str:
    """A GPU is excluded by rule, with an incident of the class."""
    uuid = stage.uuid(place)
    item, line = sight.exclusion_of(uuid), sight.gpu(*place)
    classes = [incident.fault_class for incident in sight.incidents_of(uuid)]
    if item is None or item.decided_by != "rule" or fault_class not in classes:
        return ""
    if line is None or line.usable is not Usable.NO:
        return ""
    return f"excluded by {item.decided_by}, state {line.state}: {item.reason}"


def seen_spare(stage: Stage, sight: Sight) -> str:
    """The spare stands by, proven and warm, and nothing stands against it."""
    spare = next((one for one in sight.standby.spares if one.node_id == SPARE), None)
    if spare is None or spare.state != "warm" or spare.obstacles:
        return ""
    return f"{SPARE} stands by for pool {spare.pool}: warm, its check has passed"


def seen_promoted(stage: Stage, sight: Sight) -> str:
    """The lost GPU is excluded, and its exclusion names the spare that works for its node."""
    excluded = seen_excluded(stage, sight, LOST, "bus")
    item = sight.exclusion_of(stage.uuid(LOST))
    lease = next((one for one in sight.standby.leases if one.joiner == SPARE), None)
    if not excluded or item is None or item.joiner != SPARE:
        return ""
    if lease is None or lease.leaver != LOST[0]:
        return ""
    return f"{excluded}; {SPARE} works for {LOST[0]} (lease {lease.epoch}: {lease.reason})"


def seen_released(stage: Stage, sight: Sight) -> str:
    """The lease has ended, the spare stands by again, and the node that left is in use."""
    spare = next((one for one in sight.standby.spares if one.node_id == SPARE), None)
    node = sight.nodes.get(LOST[0])
    if sight.standby.leases or spare is None or spare.obstacles:
        return ""
    if node is None or node.usable is not Usable.YES:
        return ""
    return f"{LOST[0]} is in use, {SPARE} stands by again, {spare.state}; no lease is left"


def seen_port_down(stage: Stage, sight: Sight) -> str:
    """The port has its incident, and no GPU of the node is blamed."""
    entity = f"{PORT_NODE}/{PORT}"
    incidents = [item for item in sight.live_incidents() if item.entity == entity]
    node = sight.nodes.get(PORT_NODE)
    if not incidents or incidents[0].fault_class != "nic" or node is None:
        return ""
    blamed = [line for line in node.gpus if sight.incidents_of(line.gpu_uuid)]
    if blamed:
        return ""
    return f"{incidents[0].severity} incident of {entity}: {incidents[0].why}; node {node.state}"


def seen_hot(stage: Stage, sight: Sight) -> str:
    """The overheating GPU is suspect by the learnt score alone, and not excluded."""
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


def seen_in_repair(stage: Stage, sight: Sight) -> str:
    """The lost GPU is in repair and still excluded."""
    line = sight.gpu(*LOST)
    if line is None or line.state != "in_repair" or line.usable is not Usable.NO:
        return ""
    if sight.exclusion_of(stage.uuid(LOST)) is None:
        return ""
    return f"state {line.state}, usable {line.usable}, epoch {sight.epoch}"


def seen_on_probation(stage: Stage, sight: Sight) -> str:
    """The lost GPU is on probation and its exclusion gone; its node's may take a dwell longer."""
    line = sight.gpu(*LOST)
    if line is None or line.state != "probation":
        return ""
    if sight.exclusion_of(stage.uuid(LOST)) is not None:
        return ""
    node = sight.exclusion_of(LOST[0])
    left = "" if node is None else f"; the node's own still stands: {node.reason}"
    return f"state {line.state}, its exclusion is lifted, epoch {sight.epoch}{left}"


def seen_return(stage: Stage, sight: Sight) -> str:
    """The lost GPU is healthy again, and the worn one still excluded."""
    line = sight.gpu(*LOST)
    if sight.exclusion_of(stage.uuid(WORN)) is None:
        return ""
    if line is None or line.state != "healthy" or line.usable is not Usable.YES:
        return ""
    return f"state healthy, usable yes; {len(sight.exclusions)} still excluded"
