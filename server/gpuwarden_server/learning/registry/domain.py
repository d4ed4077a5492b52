"""Which versions of a model are used, as values, and how a person's word moves them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpuwarden_verdict.features import FEATURE_SETS

MODEL_KINDS = tuple(FEATURE_SETS)
"""What a model may judge."""
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
"""What versions, and files of a model, may be called."""
MOST_FORMER = 20
"""Versions that a rollback can walk back."""


class ChoiceError(Exception):
    """A move that means nothing as things stand; the message says why."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A version in a role.

    Attributes:
        version: Name of the artifact.
        digest: SHA-256 of its MANIFEST.json when it was chosen: that very model is meant.
        since: Epoch seconds.
        author: Name of the key; "" for what the model folder itself names.
    """

    version: str
    digest: str
    since: float
    author: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """What is used for one kind of entity.

    Attributes:
        promoted: What judges; None: what the model folder names.
        former: What was promoted before, oldest first.
        challenger: What is scored in shadow beside it, None for none.
    """

    promoted: Chosen | None = None
    former: tuple[Chosen, ...] = ()
    challenger: Chosen | None = None

    @property
    def versions(self) -> frozenset[str]:
        """All that are in use or that a rollback leads to."""
        named = (*self.former, self.promoted, self.challenger)
        return frozenset(one.version for one in named if one is not None)


def promoted(choice: Choice, wanted: Chosen) -> Choice:
    """The choice with `wanted` in use; the same where it is already. A challenger of it ends."""
    now = choice.promoted
    if now is not None and same(now, wanted):
        return choice
    former = (*choice.former, now) if now is not None else choice.former
    challenger = choice.challenger
    if challenger is not None and same(challenger, wanted):
        challenger = None
    return Choice(wanted, former[-MOST_FORMER:], challenger)


def rolled_back(choice: Choice, at: float, author: str) -> Choice:
    """The choice with what was promoted before.

    Raises:
        ChoiceError: Nothing was.
    """
    if not choice.former:
        raise ChoiceError("no version was promoted before the one in use")
    back = replace(choice.former[-1], since=at, author=author)
    return replace(choice, promoted=back, former=choice.former[:-1])


def challenged(choice: Choice, wanted: Chosen | None) -> Choice:
    """The choice with another challenger, None for none; the same where it stands so already.

    Raises:
        ChoiceError: It is the promoted one.
    """
    if wanted is None:
        return replace(choice, challenger=None) if choice.challenger is not None else choice
    if choice.promoted is not None and same(choice.promoted, wanted):
        raise ChoiceError(f"version {wanted.version} is the promoted one: it cannot challenge it")
    if choice.challenger is not None and same(choice.challenger, wanted):
        return choice
    return replace(choice, challenger=wanted)


def same(one: Chosen, other: Chosen) -> bool:
    """Whether both name the same files."""
    return (one.version, one.digest) == (other.version, other.digest)


def by_preference(choice: Choice) -> Sequence[Chosen]:
    """What may be used, best first: the promoted one, then what was before it."""
    first = () if choice.promoted is None else (choice.promoted,)
    return (*first, *reversed(choice.former))
