"""Words of acting on a consumer: what is wanted there, what is found, and what follows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gpuwarden_verdict.entities import Rung

TAG = "gpuwarden:"
"""Begins every reason that we write: what does not begin so is somebody else's and never touched.
Frontier's operators resume by themselves only what carries their own reason (CUG 2023, 2024)."""

LONGEST_REASON = 240
"""Characters: `sinfo -R` and `squeue` keep lines that people still read."""


class Hold(StrEnum):
    """How a consumer holds a node."""

    FREE = "free"  # new work may start there
    OURS = "ours"  # taken out, and the reason is ours
    THEIRS = "theirs"  # taken out by a person, another tool or the consumer itself
    ABSENT = "absent"  # the consumer has no such node


class Act(StrEnum):
    """What is done to a node in a consumer."""

    EXCLUDE = "exclude"  # no new work there
    MOVE = "move"  # what runs there leaves
    RELEASE = "release"  # our own exclusion ends
    RESET = "reset"  # a person asks for its excluded GPUs to be reset
    REBOOT = "reboot"  # a person asks for the node to be started anew
    REPLACE = "replace"  # a person asks for another machine in its place


REMEDIES = frozenset({Act.RESET, Act.REBOOT, Act.REPLACE})
"""What is done to hardware: asked for by people, never planned, never repeated by itself."""


class Standing(StrEnum):
    """How a node stands between what we want and what the consumer holds."""

    IN_PLACE = "in_place"  # excluded by us, as wanted
    WAITING = "waiting"  # a step is due
    ALREADY_OUT = "already_out"  # somebody else has it out: nothing is written
    TAKEN_OVER = "taken_over"  # we had it out, and somebody put a reason of their own there
    UNDONE = "undone"  # we had it out, and somebody put it back in
    ORPHAN = "orphan"  # carries our tag, but this server has no record of that: not released
    ABSENT = "absent"  # the consumer does not know it


class Drift(StrEnum):
    """What to do where somebody undid an exclusion of ours."""

    SHOW = "show"  # leave it, say so: a person's hand counts more than our verdict
    REPAIR = "repair"  # exclude it again


_PLAIN = str.maketrans({'"': "'", "=": ":", "[": "(", "]": ")", "\\": "/", "|": "/"})


@dataclass(frozen=True, slots=True)
class Wanted:
    """A node that the exclusions in force take out.

    Attributes:
        node_id: The node.
        rung: Highest rung among its exclusions.
        decisions: Decisions behind it, sorted.
        gpus: GPUs that are excluded one by one; empty where the node is as a whole.
        reason: Leading reason in words.
    """

    node_id: str
    rung: Rung
    decisions: tuple[str, ...]
    gpus: tuple[str, ...]
    reason: str

    @property
    def text(self) -> str:
        """The reason as it is written into a consumer that takes nodes only."""
        part = f" (whole node for {len(self.gpus)} GPU)" if self.gpus else ""
        text = f"{TAG} {','.join(self.decisions)}{part} {self.reason}"
        # One line without quotes, brackets and =: consumers end, sign and tell fields by these.
        return " ".join(text.translate(_PLAIN).split())[:LONGEST_REASON].rstrip()


@dataclass(frozen=True, slots=True)
class Found:
    """What a consumer says of a node.

    Attributes:
        hold: How it holds it.
        reason: As the consumer keeps it, "" for none.
        by: Who wrote it there, "" unknown.
        jobs: Jobs that run there; empty where the consumer does not say.
        jobs_told: Whether it says which run, and so also that none does.
    """

    hold: Hold
    reason: str = ""
    by: str = ""
    jobs: tuple[str, ...] = ()
    jobs_told: bool = True


@dataclass(frozen=True, slots=True)
class Held:
    """What we did to a node last.

    Attributes:
        act: EXCLUDE or RELEASE, whichever was last carried out and seen to be so; a step that was
            only begun does not count.
        decisions: For which decisions; empty after a release.
        moved_for: Decisions for which what ran there was moved.
    """

    act: Act
    decisions: tuple[str, ...] = ()
    moved_for: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """How one node stands, and the steps due.

    Attributes:
        node_id: The node.
        standing: How it stands.
        acts: To carry out, in order; empty for none.
        wanted: What is wanted, None where nothing is.
        found: What was found.
        why: In words, for the page and the log.
    """

    node_id: str
    standing: Standing
    acts: tuple[Act, ...]
    wanted: Wanted | None
    found: Found
    why: str
