"""Which spare to take: first who may not be taken, then who is nearest, soundest and warmest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from gpuwarden_verdict.entities import Contact
from gpuwarden_verdict.standby.domain import Spare, SpareState

_WARMTH = {SpareState.WARM: 0, SpareState.WARMING: 1}
_COLD = 2


class Obstacle(StrEnum):
    """Why a spare may not be taken; nobody, no person either, gets one past these."""

    LEASED = "leased"
    RETURNING = "returning"  # its lease has expired; nobody said yet that its work is over
    SILENT = "silent"  # its agent is not heard of
    EXCLUDED = "excluded"  # an exclusion of it, or of one of its GPUs, is in force
    INCIDENT = "open_incident"
    NOT_HEALTHY = "not_healthy"  # suspect, in repair or on probation, itself or one of its GPUs
    MAINTENANCE = "maintenance"
    NO_PROOF = "no_proof"  # no check of it ever passed
    PROOF_TOO_OLD = "proof_too_old"
    PROOF_OVERTAKEN = "proof_overtaken"  # a fault, or a part that came in, is newer than the proof
    NO_GPUS = "no_gpus"  # no GPU of it is known: it can take over nothing
    NO_POOL = "no_pool"  # the policy has no pool of its name any more


@dataclass(frozen=True, slots=True)
class Look:
    """What is known of a spare at one moment.

    Attributes:
        spare: As the book has it.
        contact: Whether its agent is heard of.
        excluded: An exclusion of it or of one of its GPUs is in force.
        incidents: Open incidents of it and of its parts.
        healthy: It and its GPUs are in the healthy state.
        maintenance: What it is under, in words, "" for none.
        proof_at: Newest passed check of it as a whole, epoch seconds, None for never.
        rack: "" unknown, as below.
        leaf: Leaf switch.
        lemon: Its weight in the list of lemons, 0 where it is not in it.
        leased: A lease of it holds, whatever the book says of its state.
        proof_from: When the latest fault of it or its parts was seen, or its newest part came in,
            epoch seconds: what was proven before that is proven no more.
        has_gpus: Whether any GPU of it is known.
        has_pool: Whether the policy has its pool.
    """

    spare: Spare
    contact: Contact
    excluded: bool = False
    incidents: int = 0
    healthy: bool = True
    maintenance: str = ""
    proof_at: float | None = None
    rack: str = ""
    leaf: str = ""
    lemon: float = 0.0
    leased: bool = False
    proof_from: float = 0.0
    has_gpus: bool = True
    has_pool: bool = True


@dataclass(frozen=True, slots=True)
class Choice:
    """A spare that is taken, and why it."""

    look: Look
    why: str


def obstacles_of(look: Look, proof_s: float, now: float) -> tuple[Obstacle, ...]:
    """Why a spare may not be taken; empty where it may.

    Args:
        look: What is known of it.
        proof_s: Oldest proof of health that is taken, seconds.
        now: Epoch seconds.
    """
    proof = look.proof_at
    found = {
        Obstacle.LEASED: look.leased or look.spare.state is SpareState.LEASED,
        Obstacle.RETURNING: look.spare.state is SpareState.RETURNING,
        Obstacle.SILENT: look.contact is not Contact.LIVE,
        Obstacle.EXCLUDED: look.excluded,
        Obstacle.INCIDENT: look.incidents > 0,
        Obstacle.NOT_HEALTHY: not look.healthy,
        Obstacle.MAINTENANCE: bool(look.maintenance),
        Obstacle.NO_PROOF: proof is None,
        Obstacle.PROOF_TOO_OLD: proof is not None and now - proof > proof_s,
        Obstacle.PROOF_OVERTAKEN: proof is not None and proof < look.proof_from,
        Obstacle.NO_GPUS: not look.has_gpus,
        Obstacle.NO_POOL: not look.has_pool,
    }
    return tuple(obstacle for obstacle, stands in found.items() if stands)


def choose(
    rack: str, leaf: str, looks: Iterable[Look], proof_s: float, now: float
) -> Choice | None:
    """The spare for a node: no lemon before any lemon, then the nearest, warmest, latest proven.

    Args:
        rack: Where the leaver stands, "" unknown.
        leaf: Its leaf switch, "" unknown.
        looks: Spares of its pool.
        proof_s: Oldest proof of health that is taken, seconds.
        now: Epoch seconds.

    Returns:
        None where none may be taken.
    """
    able = [look for look in looks if not obstacles_of(look, proof_s, now)]
    best = min(able, key=lambda look: _order(look, rack, leaf, now), default=None)
    return None if best is None else Choice(best, words_of(best, rack, leaf, now))


def words_of(look: Look, rack: str, leaf: str, now: float) -> str:
    """Why a spare is a good or a poor one, in words."""
    place = ("same leaf switch", "same rack", "elsewhere")[_distance(look, rack, leaf)]
    proof = "never" if look.proof_at is None else f"{(now - look.proof_at) / 3600:.1f} h ago"
    lemon = f", in the list of lemons with {look.lemon:.1f}" if look.lemon else ""
    return f"{place}, {look.spare.state.value}, proven {proof}{lemon}"


def _order(look: Look, rack: str, leaf: str, now: float) -> tuple[float, int, int, float, str]:
    return (
        look.lemon,
        _distance(look, rack, leaf),
        _WARMTH.get(look.spare.state, _COLD),
        now - (look.proof_at or 0.0),
        look.spare.node_id,
    )


def _distance(look: Look, rack: str, leaf: str) -> int:
    if leaf and look.leaf == leaf:
        return 0
    return 1 if rack and look.rack == rack else 2
