"""What event detectors share: a signal from an event, and tables of one kernel family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gpuwarden_kernel_log import Family, KernelEvent, LineContext, parse_line
from gpuwarden_verdict.context import NodeContext, source_of
from gpuwarden_verdict.detectors.about import CLEARED_BY, About
from gpuwarden_verdict.entities import (
    SEVERITY_RANK,
    EntityRef,
    FaultClass,
    RecommendedAction,
    Rung,
    Severity,
)
from gpuwarden_verdict.origin import origin_proven
from gpuwarden_verdict.signals import Persistence, Plane, Signal
from gpuwarden_wire.events import Event, EventKind
from gpuwarden_wire.metrics import DEVICE_KINDS, EntityKind

HOUR_S = 3600.0
DAY_S = 86400.0

UNPROVEN_SCORE = 0.7
"""Most that a kernel line of unproven origin weighs: below any exclusion, enough for advice, and
together with another plane of evidence that may exclude, as much as the kernel's own word."""
_UNPROVEN = "origin not proven: a program may have written this line"


@dataclass(frozen=True, slots=True)
class Weight:
    """How a piece of evidence weighs.

    Attributes:
        score: 0..1.
        severity: Urgency.
        persistence: How the condition ends.
        ttl_s: How long it counts without renewal, seconds.
        action: Recommended.
        acts_alone: May decide by itself.
        max_rung: Highest rung it may support.
    """

    score: float
    severity: Severity
    persistence: Persistence = Persistence.EVENT
    ttl_s: float = DAY_S
    action: RecommendedAction = RecommendedAction.INVESTIGATE
    acts_alone: bool = False
    max_rung: Rung = Rung.EXCLUDE


def event_signal(
    event: Event,
    ref: EntityRef,
    node: NodeContext,
    *,
    detector: str,
    version: int,
    fault_class: FaultClass,
    weight: Weight,
    sentence: str,
    plane: Plane = Plane.EVENTS,
    echo: bool = False,
    application_possible: bool = False,
) -> Signal:
    """A signal that stands on one event; of unproven origin it asks for a look and no more."""
    if not origin_proven(event):
        weight = _at_most_suspect(weight)
        sentence = f"{sentence} ({_UNPROVEN})"
    numbers = {"count": float(event.count)}
    numbers |= {"xid": float(event.xid)} if event.xid is not None else {}
    numbers |= {"sxid": float(event.sxid)} if event.sxid is not None else {}
    return Signal(
        entity=ref,
        fault_class=fault_class,
        score=weight.score,
        severity=weight.severity,
        plane=plane,
        sentence=sentence,
        detector=detector,
        detector_version=version,
        observed_at=event.observed_at,
        expires_at=event.observed_at + weight.ttl_s,
        persistence=weight.persistence,
        action=weight.action,
        acts_alone=weight.acts_alone,
        echo=echo,
        application_possible=application_possible,
        numbers=numbers,
        event_ids=(event.id,),
        boot_id=node.boot_id,
        max_rung=weight.max_rung,
        source=source_of(event),
        count=event.count,
        place=(event.pci_bus_id or "") if ref.kind is EntityKind.NODE else "",
    )


def parsed_line(event: Event, node: NodeContext) -> KernelEvent | None:
    """The kernel line of an event, read again: the server's catalogue decides, not the agent's.

    None where the event is no kernel line, or its text was cut so short that it is no longer of the
    event's family.
    """
    if event.kind is not EventKind.KERNEL_LOG or not event.text:
        return None
    parsed = parse_line(event.text, LineContext(driver_version=driver_version(node)))
    if parsed is None or parsed.family.value != event.family:
        return None
    return parsed if _said_to_act_alone(event) else replace(parsed, acts_alone=False)


def severity_of(event: Event, parsed: KernelEvent | None) -> Severity:
    """Severity of a kernel line; where it cannot be read again, as the agent saw it."""
    if parsed is not None:
        return Severity(parsed.severity.value)
    known = event.severity in tuple(Severity)
    return Severity(event.severity) if known else Severity.WARNING


def where(event: Event, ref: EntityRef) -> str:
    """The entity in words, with the PCI address where the line had one."""
    name = {EntityKind.GPU: "GPU", EntityKind.NIC: "NIC"}.get(ref.kind, ref.kind.value)
    address = f" at {event.pci_bus_id}" if event.pci_bus_id else ""
    return f"{name} {ref.key}{address}"


def times(event: Event) -> str:
    """How often an event happened, "" for once."""
    return f" ({event.count} times)" if event.count > 1 else ""


@dataclass(frozen=True, slots=True)
class FamilyDetector:
    """Signals from kernel lines of some families, weighed by the severity of the line.

    Attributes:
        name: Detector.
        version: Raised on any change of its results.
        families: Families it reads.
        fault_class: Where the fault lies.
        weights: By severity; one that is not there gives no signal.
        says: What the lines mean, in words.
        kinds: Kinds of entity that it speaks about; lines joined to another give no signal.
        quiet_after_boot: Whether lines of the first minutes after a boot mean nothing.
    """

    name: str
    version: int
    families: frozenset[Family]
    fault_class: FaultClass
    weights: Mapping[Severity, Weight]
    says: str
    kinds: frozenset[EntityKind] = frozenset(DEVICE_KINDS)
    quiet_after_boot: bool = False

    @property
    def about(self) -> About:
        """The detector in words."""
        gravest = max(self.weights, key=SEVERITY_RANK.__getitem__)
        mildest = min(self.weights, key=SEVERITY_RANK.__getitem__)
        grace = ", not in the grace after a boot" if self.quiet_after_boot else ""
        return About(
            Plane.EVENTS,
            tuple(sorted(self.families)),
            self.says,
            f"each line from {mildest} on{grace}",
            max(weight.max_rung for weight in self.weights.values()),
            CLEARED_BY[self.weights[gravest].persistence],
        )

    def detect_event(self, event: Event, ref: EntityRef, node: NodeContext) -> list[Signal]:
        """One signal for a line of these families that weighs anything."""
        if event.kind is not EventKind.KERNEL_LOG or event.family not in self.families:
            return []
        if ref.kind not in self.kinds:
            return []
        if self.quiet_after_boot and node.in_boot_grace(event.observed_at):
            return []
        parsed = parsed_line(event, node)
        weight = self.weights.get(severity_of(event, parsed))
        if weight is None:
            return []
        signal = event_signal(
            event,
            ref,
            node,
            detector=self.name,
            version=self.version,
            fault_class=self.fault_class,
            weight=weight,
            sentence=f"{self.says} on {where(event, ref)}{times(event)}: {event.text[:200]}",
            echo=parsed is not None and parsed.echo,
        )
        return [signal]


def _at_most_suspect(weight: Weight) -> Weight:
    grave = SEVERITY_RANK[weight.severity] > SEVERITY_RANK[Severity.ERROR]
    return replace(
        weight,
        score=min(weight.score, UNPROVEN_SCORE),
        severity=Severity.ERROR if grave else weight.severity,
        acts_alone=False,
        max_rung=min(weight.max_rung, Rung.SUSPECT),
    )


def _said_to_act_alone(event: Event) -> bool:
    """Whether the agent lets the line act alone; "fault_class" stands in all that it reads."""
    read = event.attributes
    return origin_proven(event) and ("fault_class" not in read or bool(read.get("acts_alone")))


def driver_version(node: NodeContext) -> str | None:
    """Version of the node's NVIDIA driver; None where no GPU of it is known."""
    return next((gpu.driver_version for gpu in node.gpus.values() if gpu.driver_version), None)
