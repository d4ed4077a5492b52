from __future__ import annotations

from gpuwarden_server.ingest.state import REST_S, WORK_S, GiveWay


class Hands:
    """A clock that only work and rest move."""

    def __init__(self) -> None:
        self.now = 0.0
        self.rests: list[float] = []

    def work(self, seconds: float) -> None:
        self.now += seconds

    def rest(self, seconds: float) -> None:
        self.rests.append(seconds)
        self.now += seconds


def test_long_work_rests_now_and_then_and_short_work_never() -> None:
    hands = Hands()
    give_way = GiveWay(lambda: hands.now, hands.rest)
    for _ in range(4):
        hands.work(0.24 * WORK_S)
        give_way()
    assert hands.rests == []
    for _ in range(3):
        hands.work(3 * WORK_S)
        give_way()
        give_way()  # it has just rested
    assert hands.rests == [REST_S] * 3
