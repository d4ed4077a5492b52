"""The book of spares: who stands by, who is leased for whom, and which one to take. Pure."""

from gpuwarden_verdict.standby.choosing import Choice, Look, Obstacle, choose, obstacles_of
from gpuwarden_verdict.standby.domain import (
    NO_CHANGE,
    BookChange,
    Lease,
    Shelf,
    Spare,
    SpareState,
)
from gpuwarden_verdict.standby.rules import NO_PROMOTION, StandbyRules, parse_standby

__all__ = [
    "NO_CHANGE",
    "NO_PROMOTION",
    "BookChange",
    "Choice",
    "Lease",
    "Look",
    "Obstacle",
    "Shelf",
    "Spare",
    "SpareState",
    "StandbyRules",
    "choose",
    "obstacles_of",
    "parse_standby",
]
