"""What a rule returns, and the few forms that all rules share."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from gpuwarden_kernel_log.event import LineContext
from gpuwarden_kernel_log.vocabulary import Family, FaultClass, Severity

__all__ = ["TROUBLE", "Finding", "Rule", "RuleSet", "plain_name", "to_pid"]

# Words by which drivers mark a message as trouble.
TROUBLE = re.compile(
    r"fail|error|time(?:d )?-?out|\blost\b|cannot|can't|could not|unable|invalid|unexpected"
    r"|unrecover"
    r"|fatal|assert|abort|\bbad\b|corrupt|reset|stuck|hung|halt|violation|exception|not respond"
    r"|denied",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Finding:
    """A recognised message, before time and host are put to it.

    Attributes:
        start: offset in the message where the recognised text begins.
        The others are those of :class:`KernelEvent`.
    """

    family: Family
    severity: Severity
    fault_class: FaultClass
    start: int = 0
    xid: int | None = None
    sxid: int | None = None
    pci_bus_id: str | None = None
    pid: int | None = None
    process: str | None = None
    action: str | None = None
    application_possible: bool = False
    device: str | None = None
    echo: bool = False
    acts_alone: bool = False


Rule = Callable[[str, LineContext], Finding | None]


@dataclass(frozen=True, slots=True)
class RuleSet:
    """Rules tried in order on a message that holds one of the tokens.

    Attributes:
        tokens: lower-case strings; a message without any of them cannot match.
        rules: tried in order, the first answer wins.
    """

    tokens: tuple[str, ...]
    rules: tuple[Rule, ...]


def to_pid(digits: str | None) -> int | None:
    """A process id; None where the line has none."""
    return int(digits) if digits and digits.isascii() and digits.isdigit() else None


def plain_name(name: str | None) -> str | None:
    """A process name without quotes; None where the line has none or says <unknown>."""
    cleaned = (name or "").strip().strip("'\"")
    return None if not cleaned or cleaned == "<unknown>" else cleaned
