from __future__ import annotations

import pytest

from gpuwarden_verdict.engine.spools import (
    DOOR_SPOOL,
    Claim,
    Standing,
    claim_of,
    standing_beside_door,
)


@pytest.mark.parametrize(
    ("standing", "live", "silent_s", "interval_s", "claim"),
    [
        (None, False, 0.0, 0.0, Claim.FIRST),
        (None, True, 14.9, 5.0, Claim.REFUSED),
        (None, True, 15.0, 5.0, Claim.TAKES_OVER),
        (None, True, 14.9, 0.0, Claim.REFUSED),  # cadence unknown: the default of 5 s
        (None, True, 15.0, 0.0, Claim.TAKES_OVER),
        (None, True, 100.0, 60.0, Claim.REFUSED),
        (Standing.LIVE, True, 1e9, 5.0, Claim.LIVE),
        (Standing.SUPERSEDED, True, 1e9, 5.0, Claim.HISTORY),  # it never acts again
        (Standing.SUPERSEDED, True, 0.0, 5.0, Claim.HISTORY),
    ],
)
def test_who_speaks_for_a_node(
    standing: Standing | None, live: bool, silent_s: float, interval_s: float, claim: Claim
) -> None:
    assert claim_of(standing, live, silent_s, interval_s) is claim


OLD, NEW = "a" * 32, "b" * 32
SUPERSEDED = Standing.SUPERSEDED


@pytest.mark.parametrize(
    ("spool_id", "standing", "live_spool", "judged_as"),
    [
        (DOOR_SPOOL, None, "", None),
        (DOOR_SPOOL, Standing.LIVE, DOOR_SPOOL, Standing.LIVE),
        (DOOR_SPOOL, SUPERSEDED, NEW, None),  # may speak again, once the agent is silent
        (NEW, SUPERSEDED, DOOR_SPOOL, None),  # the agent is back
        (OLD, SUPERSEDED, DOOR_SPOOL, SUPERSEDED),  # its backlog is history all the same
        (OLD, SUPERSEDED, NEW, SUPERSEDED),
        (NEW, Standing.LIVE, NEW, Standing.LIVE),
    ],
)
def test_agents_and_the_door_take_turns(
    spool_id: str, standing: Standing | None, live_spool: str, judged_as: Standing | None
) -> None:
    assert standing_beside_door(spool_id, standing, live_spool, NEW) is judged_as
