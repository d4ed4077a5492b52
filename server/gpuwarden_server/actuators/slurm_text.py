"""What scontrol and squeue print, as values. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gpuwarden_verdict.actuation import TAG, Found, Hold

# `scontrol -o show node` gives one line a node (Slurm 22.05, man scontrol):
#   NodeName=n2 Arch=x86_64 CoresPerSocket=2 ... State=IDLE+DRAIN ThreadsPerCore=1 ...
#   Reason=gpuwarden: dec-1 row remap failure [root@2026-03-01T10:00:00]
_NODE = re.compile(r"^NodeName=(\S+)")
_STATE = re.compile(r"\sState=(\S+)")
# The reason is the last field but for Comment and Extra, and may hold anything but a newline.
_REASON = re.compile(r"\sReason=(.*?)(?:\s+\[(\S+)@([^\]\s]+)\])?(?:\s+(?:Comment|Extra)=.*)?\s*$")

_OUT = frozenset({"DRAIN", "DRAINED", "DRAINING", "DOWN", "FAIL", "FAILING", "ERROR"})
"""Base states and flags under which slurmctld starts nothing new on a node (man sinfo, NODE STATE
CODES)."""

_DRAINED = frozenset({"DRAIN", "DRAINED", "DRAINING"})


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """A node as Slurm shows it.

    Attributes:
        name: NodeName.
        states: Base state and flags, upper case, without the marks *, ~, #, $ and @.
        reason: Without who wrote it when.
        by: Who wrote it, "" unknown.
    """

    name: str
    states: frozenset[str]
    reason: str
    by: str

    @property
    def is_out(self) -> bool:
        """Whether nothing new starts there."""
        return bool(self.states & _OUT)

    @property
    def is_ours(self) -> bool:
        """Whether we took it out: a node that is down besides a drain that ended is not ours."""
        return bool(self.states & _DRAINED) and self.reason.startswith(TAG)

    def found(self, jobs: tuple[str, ...]) -> Found:
        """As the plan wants it."""
        if not self.is_out:
            return Found(Hold.FREE, jobs=jobs)
        hold = Hold.OURS if self.is_ours else Hold.THEIRS
        reason = self.reason or "+".join(sorted(self.states & _OUT)).lower()
        return Found(hold, reason, self.by, jobs)


def parse_nodes(text: str) -> Mapping[str, SlurmNode]:
    """Nodes of `scontrol -o show node`; lines that name none are passed over."""
    nodes = {}
    for line in text.splitlines():
        named, state = _NODE.match(line), _STATE.search(line)
        if named is None or state is None:
            continue
        words = re.sub(r"[*~#!%$@^-]", "", state[1].upper()).split("+")
        reason = _REASON.search(line)
        text_of, by = (reason[1].strip(), reason[2] or "") if reason else ("", "")
        nodes[named[1]] = SlurmNode(named[1], frozenset(words), text_of, by)
    return nodes
