"""XIDs of exporters: what changed between two looks is news, what stands there is not."""

from __future__ import annotations

from gpuwarden_exporters.rules import XidForm, XidSeries
from gpuwarden_exporters.xids import XidNews, XidWatch

GPU, OTHER = "GPU-a", "GPU-b"
Looks = list[tuple[XidSeries, float]]


def last(code: float, uuid: str = GPU) -> Looks:
    return [(XidSeries(XidForm.LAST_CODE, uuid), code)]


def counted(code: int, count: float, uuid: str = GPU) -> Looks:
    return [(XidSeries(XidForm.COUNTED, uuid, code), count)]


def windowed(code: int | None, count: float, uuid: str = GPU) -> Looks:
    return [(XidSeries(XidForm.IN_WINDOW, uuid, code), count)]


class Watched:
    """A watch whose looks follow each other without a gap, unless told."""

    def __init__(self) -> None:
        self.watch = XidWatch()
        self.unbroken = False

    def look(self, xids: Looks, gpus: tuple[str, ...] = (GPU,)) -> list[XidNews]:
        news = self.watch.note(xids, set(gpus), unbroken=self.unbroken)
        self.unbroken = True
        return news


def test_the_last_code_at_first_sight_is_no_fault() -> None:
    assert Watched().look(last(79)) == []


def test_a_last_code_that_changes_is_news_once() -> None:
    watched = Watched()
    assert watched.look(last(0)) == []
    assert watched.look(last(43)) == [XidNews(GPU, 43, 1)]
    assert watched.look(last(43)) == []
    assert watched.look(last(79)) == [XidNews(GPU, 79, 1)]
    assert watched.look(last(0)) == []


def test_a_last_code_appears_with_the_first_xid_of_a_gpu() -> None:
    watched = Watched()
    watched.look([])
    assert watched.look(last(79)) == [XidNews(GPU, 79, 1)]


def test_a_last_code_that_appears_with_its_gpu_or_after_a_gap_may_be_old() -> None:
    watched = Watched()
    watched.look([], gpus=())
    assert watched.look(last(79)) == []
    watched.unbroken = False
    assert watched.look(last(48, OTHER), gpus=(GPU, OTHER)) == []


def test_a_last_code_that_changed_during_a_gap_is_news() -> None:
    watched = Watched()
    watched.look(last(43))
    watched.unbroken = False
    assert watched.look(last(79)) == [XidNews(GPU, 79, 1)]


def test_a_series_that_is_away_for_a_while_brings_no_news() -> None:
    watched = Watched()
    watched.look(last(79) + counted(48, 3, OTHER), gpus=(GPU, OTHER))
    watched.look([], gpus=(GPU, OTHER))
    assert watched.look(last(79) + counted(48, 3, OTHER), gpus=(GPU, OTHER)) == []


def test_rows_of_instances_that_disagree_are_no_news_at_every_look() -> None:
    watched = Watched()
    watched.look(last(0) + last(0))
    both = last(79) + last(0)
    assert watched.look(both) == [XidNews(GPU, 79, 1)]
    assert watched.look(both) == []


def test_a_counter_tells_repeats_of_one_code() -> None:
    watched = Watched()
    assert watched.look(counted(79, 2)) == []
    assert watched.look(counted(79, 5)) == [XidNews(GPU, 79, 3)]
    assert watched.look(counted(79, 5)) == []


def test_a_counter_appears_with_its_first_xid() -> None:
    watched = Watched()
    watched.look([])
    assert watched.look(counted(94, 1)) == [XidNews(GPU, 94, 1)]


def test_a_counter_that_begins_anew_counts_all_since() -> None:
    watched = Watched()
    watched.look(counted(79, 7))
    assert watched.look(counted(79, 2)) == [XidNews(GPU, 79, 2)]


def test_a_window_tells_what_entered_it_and_not_what_left() -> None:
    watched = Watched()
    watched.look(windowed(None, 0))
    assert watched.look(windowed(48, 2)) == [XidNews(GPU, 48, 2)]
    assert watched.look(windowed(48, 1)) == []
    assert watched.look(windowed(None, 0)) == []
    assert watched.look(windowed(48, 1)) == [XidNews(GPU, 48, 1)]


def test_one_xid_is_told_once_by_the_best_of_several_series() -> None:
    watched = Watched()
    watched.look(last(0) + windowed(None, 0))
    news = watched.look(last(79) + windowed(79, 1) + counted(79, 1))
    assert news == [XidNews(GPU, 79, 1)]
    assert watched.look(last(79) + windowed(79, 2) + counted(79, 2)) == [XidNews(GPU, 79, 1)]


def test_the_exporters_own_time_of_an_xid_is_kept() -> None:
    watched = Watched()
    watched.look([])
    seen = [(XidSeries(XidForm.SEEN_AT, GPU, 79), 1700000000.5)]
    assert watched.look(counted(79, 1) + seen) == [XidNews(GPU, 79, 1, 1700000000.5)]


def test_nonsense_for_a_code_is_passed_over() -> None:
    watched = Watched()
    watched.look(last(0))
    assert watched.look(last(-1)) == []
    assert watched.look(last(float("nan"))) == []
    assert watched.look(last(1e12)) == []
