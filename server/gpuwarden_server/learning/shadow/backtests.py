"""A backtest that was told, and whether it says anything of this model on this fleet."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import msgspec

from gpuwarden_server.core.errors import ProblemError

SIMULATED = "simulated"
MOST_UNKNOWN = 0.1
"""Share of a recording's entities that may be unknown here: parts are replaced over the years."""
_OWN = "Play this fleet's own history, by `gpuwarden backtest --prometheus` for one."


@dataclass(frozen=True, slots=True)
class ToldBacktest:
    """What somebody says of a backtest.

    Attributes:
        version: Of the model that was played.
        digest: SHA-256 of its MANIFEST.json, hex.
        healthy_days: Entities x days without a fault.
        false_actions: Exclusions that would have been false.
        exclude_confidence: The highest of the limits by which it excluded.
        entities: What was watched, as the model's kind is named here.
        origin: Of the recording: "simulated" or what else made it, "" where it does not say.
        recording_digest: SHA-256 over the recording's files, "" for one that has none.
    """

    version: str
    digest: str
    healthy_days: float
    false_actions: int
    exclude_confidence: float
    entities: frozenset[str]
    origin: str
    recording_digest: str


class _Recording(msgspec.Struct):
    digest: str = ""


class _Source(msgspec.Struct):
    recordings: tuple[_Recording, ...] = ()


class _Facts(msgspec.Struct):
    trained_on: _Source = msgspec.field(default_factory=_Source)


def taught_by(files: Mapping[str, bytes]) -> frozenset[str]:
    """Digests of the recordings that taught a model, by its metrics.json; none without one."""
    try:
        facts = msgspec.json.decode(files.get("metrics.json", b"{}"), type=_Facts)
    except msgspec.DecodeError:
        return frozenset()
    return frozenset(one.digest for one in facts.trained_on.recordings if one.digest)


def refuse_foreign(
    told: ToldBacktest, digest: str, taught: Collection[str], known: Collection[str]
) -> None:
    """Refuse what says nothing of the model that would act, or of the fleet that it would act on.

    Args:
        told: The backtest.
        digest: Of the model of that version here.
        taught: Digests of the recordings that taught it.
        known: Of `told.entities`, those that this server knows.

    Raises:
        ProblemError: 409; says which.
    """
    if told.digest != digest:
        raise _refused(
            f"the model that was played is not the {told.version} of this server: their"
            " MANIFEST.json differ",
            "Fetch this server's with `gpuwarden models fetch`, and play it with --model.",
        )
    if told.origin == SIMULATED:
        raise _refused("the recording is simulated: it says nothing of this fleet", _OWN)
    if told.recording_digest in taught:
        raise _refused(
            f"the recording taught {told.version}: it knows the answers", "Play another time."
        )
    unknown = len(told.entities) - len(known)
    if unknown > MOST_UNKNOWN * len(told.entities):
        raise _refused(
            f"{unknown} of {len(told.entities)} entities of the recording are not known here", _OWN
        )


def _refused(detail: str, mend: str) -> ProblemError:
    return ProblemError(409, "trial_refused", detail, mend)
