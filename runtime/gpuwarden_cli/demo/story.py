"""The story: what fails, what must be seen of it, and what must never be seen."""

from __future__ import annotations

import time

from gpuwarden_cli.demo.pace import Pace
from gpuwarden_cli.demo.sight import Sight
from gpuwarden_cli.demo.sightings import (
    seen_burst,
    seen_excluded,
    seen_hot,
    seen_in_repair,
    seen_on_probation,
    seen_port_down,
    seen_promoted,
    seen_quiet,
    seen_released,
    seen_return,
    seen_spare,
)
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
    Step,
    named,
)


def story(pace: Pace) -> tuple[Step, ...]:
    """All steps in order."""
    return (
        Step(
            "quiet",
            "Quiet: 16 nodes with 8 GPUs each, and this machine",
            "every node reports, 128 GPUs are healthy, nothing is excluded",
            _nothing,
            seen_quiet,
            pace.step_s + pace.quiet_s,
            pace.quiet_s,
        ),
        Step(
            "application_burst",
            "A program crashes on 64 GPUs: XID 31 and 43 everywhere",
            "the events arrive, and nobody is excluded for them",
            _begin_burst,
            seen_burst,
            pace.step_s + 2.0 * pace.settle_s,
            pace.settle_s + 6.0 * pace.sweep_s,
        ),
        *_faults(pace),
        *_way_back(pace),
    )


def _faults(pace: Pace) -> tuple[Step, ...]:
    return (
        Step(
            "standby",
            f"{SPARE}: passes its check and stands by",
            "the spare is in the book, proven and warm",
            _begin_standby,
            seen_spare,
            pace.step_s,
        ),
        Step(
            "gpu_off_bus",
            f"{named(LOST)}: falls off the bus",
            f"the GPU is excluded by rule, class bus, and {SPARE} works for its node from then on",
            lambda stage: stage.fail("gpu_off_bus", stage.uuid(LOST)),
            seen_promoted,
            pace.step_s,
        ),
        Step(
            "row_remap_failure",
            f"{named(WORN)}: memory wears out, no spare row is left",
            "the GPU is excluded by rule, class memory",
            lambda stage: stage.fail("row_remap_failure", stage.uuid(WORN), pace.wear_s),
            lambda stage, sight: seen_excluded(stage, sight, WORN, "memory"),
            pace.step_s + pace.wear_s,
        ),
        Step(
            "nic_port_down",
            f"{PORT_NODE}: port {PORT} loses its link",
            "the port has an incident of class nic, and no GPU is blamed",
            lambda stage: stage.fail("nic_port_down", f"{PORT_NODE}/{PORT}"),
            seen_port_down,
            pace.step_s + pace.settle_s,
        ),
        Step(
            "overheating",
            f"{named(HOT)}: has been growing warmer for a while, no limit is crossed",
            "only the learnt score names it: suspect with its contributions, not excluded",
            _nothing,  # the warmth began with the burst: a trend takes time
            seen_hot,
            pace.slow_step_s,
        ),
    )


def _way_back(pace: Pace) -> tuple[Step, ...]:
    return (
        Step(
            "repair",
            f"{named(LOST)}: somebody reseats the board",
            "the GPU is in repair and stays excluded",
            _begin_repair,
            seen_in_repair,
            pace.step_s,
        ),
        Step(
            "check_passed",
            f"{named(LOST)}: answers again and passes its check",
            "its exclusion is lifted, the GPU is on probation",
            lambda stage: stage.repair(stage.uuid(LOST)),
            seen_on_probation,
            pace.step_s + pace.dwell_s,
        ),
        Step(
            "return",
            f"{named(LOST)}: stays sound",
            "the GPU is healthy and usable again, the other exclusions stand",
            _nothing,
            seen_return,
            pace.step_s + pace.dwell_s,
            steady_s=6.0 * pace.sweep_s,
        ),
        Step(
            "standby_released",
            f"{LOST[0]} works on, {SPARE} stands by again",
            "the lease has ended, and both nodes may be used",
            _release,
            seen_released,
            pace.step_s + pace.dwell_s,
        ),
    )


def forbidden(stage: Stage, sight: Sight) -> tuple[str, ...]:
    """What is seen that the story rules out, a sentence each."""
    # A node without one of its GPUs, or without one of its ports, may be taken out as a whole.
    allowed = {stage.uuid(WORN), stage.uuid(LOST), LOST[0], PORT_NODE}
    found = [
        f"{item.entity_kind} {item.entity} of {item.node_id} is excluded: {item.reason}"
        for item in sight.exclusions
        if item.entity not in allowed
    ]
    hot = stage.uuid(HOT)
    found += [
        f"{item.detector} speaks about {named(HOT)}: {item.sentence}"
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


def _nothing(stage: Stage) -> None:
    """The step only looks."""


def _begin_burst(stage: Stage) -> None:
    stage.fail("application_burst", BURST_NODE)
    # 1.3 of the typical effect: some 24 C above its peers, and still odd for no fixed limit.
    stage.fail("slow_overheating", stage.uuid(HOT), stage.pace.ramp_s, 1.3)


def _begin_standby(stage: Stage) -> None:
    now = time.time()
    passed = {"node": SPARE, "name": "burn_in", "state": "ok", "proves_repair": True}
    stage.client.raw_post("/v1/events", {"events": [{**passed, "observed_at": now}]})
    stage.client.add_standby(SPARE, "demo: it is kept warm", state="warm")


def _release(stage: Stage) -> None:
    stage.client.release_standby(SPARE, "leaver", f"demo: {LOST[0]} is back")


def _begin_repair(stage: Stage) -> None:
    stage.client.repair_gpu(stage.uuid(LOST), "demo: the board was reseated")
