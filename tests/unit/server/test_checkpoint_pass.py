from __future__ import annotations

from gpuwarden_server.ingest.checkpoint import BYTES_A_SECOND, LONGEST_PASS_S, pass_length


def test_a_pass_is_as_long_as_asked_for_until_there_is_much_to_write() -> None:
    assert pass_length(30.0, 0) == 30.0
    assert pass_length(30.0, 20 * BYTES_A_SECOND) == 30.0
    assert pass_length(30.0, 120 * BYTES_A_SECOND) == 120.0
    assert pass_length(30.0, 10**12) == LONGEST_PASS_S
    assert pass_length(0.2, BYTES_A_SECOND // 10) == 0.2
