"""Whatever happens in whatever order: one node, one joiner, and nobody past an obstacle."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from gpuwarden_verdict.entities import Contact
from gpuwarden_verdict.standby import (
    BookChange,
    Lease,
    Look,
    Shelf,
    Spare,
    SpareState,
    choose,
    obstacles_of,
)

DAY_S = 86_400.0
SPARES = [f"s{number}" for number in range(4)]
LEAVERS = [f"n{number}" for number in range(8)]


def look(spare: Spare, dice: random.Random, now: float) -> Look:
    return Look(
        spare=spare,
        contact=dice.choice([Contact.LIVE, Contact.LIVE, Contact.SILENT]),
        incidents=dice.choice([0, 0, 0, 1]),
        healthy=dice.random() < 0.8,
        proof_at=dice.choice([None, now - 0.5 * DAY_S, now - 2 * DAY_S]),
        rack=dice.choice(["", "r1"]),
        lemon=dice.choice([0.0, 0.0, 1.0]),
    )


@pytest.mark.parametrize("seed", range(20))
def test_under_any_interleaving_a_spare_works_for_one_and_a_node_has_one(seed: int) -> None:
    dice, shelf, epochs = random.Random(seed), Shelf(), list[int]()
    shelf = shelf.after(
        BookChange(spares=tuple(Spare(n, "t", SpareState.WARM, 0.0, "ana") for n in SPARES))
    )
    for step in range(200):
        now, leaver = 10 * DAY_S + step, dice.choice(LEAVERS)
        standing = shelf.lease_for(leaver)
        if standing is not None and dice.random() < 0.5:
            back = replace(shelf.spares[standing.joiner], state=SpareState.COLD)
            ended = standing.ended("ana", "back", now)
            shelf = shelf.after(BookChange(spares=(back,), leases=(ended,)))
        elif standing is None:
            looks = [look(spare, dice, now) for spare in shelf.spares.values()]
            choice = choose("r1", "", looks, DAY_S, now)
            if choice is None:
                assert all(obstacles_of(one, DAY_S, now) for one in looks)
                continue
            assert obstacles_of(choice.look, DAY_S, now) == ()
            spare, epoch = choice.look.spare, shelf.last_epoch + 1
            lease = Lease(epoch, spare.node_id, leaver, "t", "dec-1", choice.why, "gpuwarden", now)
            leased = replace(spare, state=SpareState.LEASED)
            shelf = shelf.after(BookChange(spares=(leased,), leases=(lease,)))
            epochs.append(epoch)
        leavers = [one.leaver for one in shelf.leases.values()]
        assert len(leavers) == len(set(leavers))
        at_work = {name for name, one in shelf.spares.items() if one.state is SpareState.LEASED}
        assert at_work == shelf.leases.keys()
    assert epochs == sorted(set(epochs)), "an epoch never comes again"
