"""From a line of a kernel log to events. Total: any bytes in, never an exception out.

A line without any of a few dozen words is dropped before anything is parsed, which is what makes
long ordinary logs cheap. Every repetition in the rules is bounded and lines are cut to
``MAX_LINE``, so no input makes a rule run away.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from gpuwarden_kernel_log.event import KernelEvent, LineContext
from gpuwarden_kernel_log.finding import Finding, RuleSet
from gpuwarden_kernel_log.origin import begins_as_kernel
from gpuwarden_kernel_log.rules_bus import BUS_RULES
from gpuwarden_kernel_log.rules_gpu import GPU_RULES
from gpuwarden_kernel_log.rules_host import HOST_RULES
from gpuwarden_kernel_log.rules_io import IO_RULES
from gpuwarden_kernel_log.vocabulary import Family
from gpuwarden_kernel_log.wrappers import Message, decode_line, split_messages

__all__ = ["parse_events", "parse_line", "scan_lines"]

# Order matters: an AER line of an NVMe or a GPU belongs to the bus.
RULE_SETS: tuple[RuleSet, ...] = (BUS_RULES, GPU_RULES, HOST_RULES, IO_RULES)
_TOKENS = tuple(dict.fromkeys(token for rules in RULE_SETS for token in rules.tokens))
_NO_CONTEXT = LineContext()
# NVRM: The NVIDIA GPU 0000:3b:00.0 \n NVRM: (PCI ID: ...) installed in this system has \n NVRM:
# fallen off ...
_NAMES_A_GPU = "NVRM: The NVIDIA GPU "
_GPU_NAME_REACH = 4  # the driver's sentence is three lines long: nv-pci.c, open-gpu-kernel-modules


def parse_line(line: str | bytes, context: LineContext = _NO_CONTEXT) -> KernelEvent | None:
    """The first event of a physical line.

    Args:
        line: one line of a kernel log in any wrapper; bytes need not be UTF-8.
        context: what the line does not say: zone, year, driver version.

    Returns:
        The event; None where the line is not recognised or has nothing to say.
    """
    events = parse_events(line, context)
    return events[0] if events else None


def parse_events(line: str | bytes, context: LineContext = _NO_CONTEXT) -> tuple[KernelEvent, ...]:
    """All events of a physical line; two messages glued together make two.

    Args:
        line: as for :func:`parse_line`.
        context: as for :func:`parse_line`.
    """
    text = decode_line(line)
    if not _may_matter(text):
        return ()
    events = []
    quoted = False
    for message in split_messages(text, context):
        event = _recognise(replace(message, relayed=message.relayed or quoted), context)
        if event is not None:
            events.append(event)
        # Words in front that are no kernel message of ours: somebody quotes the kernel.
        quoted = quoted or (message.text != "" and (event is None or not event.proven))
    return tuple(_name_lost_gpus(events))


def scan_lines(
    lines: Iterable[bytes | str], context: LineContext = _NO_CONTEXT
) -> Iterator[tuple[int, KernelEvent]]:
    """Events of a whole log with their line numbers.

    Args:
        lines: physical lines, in order.
        context: as for :func:`parse_line`.

    Yields:
        Line number from 1, and an event; a line may yield several. A "fallen off the bus" whose
        address stands a line or two above, as the driver prints it, gets that address.
    """
    address: str | None = None
    named_at = 0
    for number, line in enumerate(lines, start=1):
        for event in parse_events(line, context):
            if event.text.startswith(_NAMES_A_GPU):
                address, named_at = event.pci_bus_id, number
            near = number - named_at < _GPU_NAME_REACH
            yield number, _with_address(event, address) if near else event


def _name_lost_gpus(events: list[KernelEvent]) -> Iterator[KernelEvent]:
    address: str | None = None
    for event in events:
        if event.text.startswith(_NAMES_A_GPU):
            address = event.pci_bus_id
        yield _with_address(event, address)


def _with_address(event: KernelEvent, address: str | None) -> KernelEvent:
    if event.family is Family.GPU_LOST and event.pci_bus_id is None and address is not None:
        return replace(event, pci_bus_id=address)
    return event


def _may_matter(text: str) -> bool:
    lowered = text.lower()
    for token in _TOKENS:  # a plain loop: any() with a generator takes three times as long
        if token in lowered:
            return True
    return text.startswith("{") and '"MESSAGE"' in text


def _recognise(message: Message, context: LineContext) -> KernelEvent | None:
    lowered = message.text.lower()
    for rule_set in RULE_SETS:
        if not any(token in lowered for token in rule_set.tokens):
            continue
        for rule in rule_set.rules:
            finding = rule(message.text, context)
            if finding is not None:
                return _event(message, finding)
    return None


def _event(message: Message, finding: Finding) -> KernelEvent:
    # Any user may write to syslog: a line that a program wrote is evidence, never an order.
    # (`logger -t kernel` passes for the kernel all the same: only /dev/kmsg cannot be forged.)
    proven = not message.relayed and begins_as_kernel(message.text, finding)
    return KernelEvent(
        family=finding.family,
        severity=finding.severity,
        text=message.text[finding.start :],
        observed_at=message.observed_at,
        uptime_s=message.uptime_s,
        xid=finding.xid,
        sxid=finding.sxid,
        pci_bus_id=finding.pci_bus_id,
        pid=finding.pid,
        process=finding.process,
        action=finding.action,
        application_possible=finding.application_possible,
        device=finding.device,
        echo=finding.echo,
        acts_alone=finding.acts_alone and proven,
        fault_class=finding.fault_class,
        host=message.host,
        proven=proven,
    )
