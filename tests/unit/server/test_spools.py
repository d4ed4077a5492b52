from __future__ import annotations

import pytest

from gpuwarden_server.ingest.spools import Claim, Standing, claim_of


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
