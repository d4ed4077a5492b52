from __future__ import annotations

from dataclasses import replace

from gpuwarden_verdict.standby import NO_CHANGE, BookChange, Lease, Shelf, Spare, SpareState


def spare(name: str, state: SpareState = SpareState.WARM) -> Spare:
    return Spare(name, "train", state, 1.0, "ana")


def lease(epoch: int, joiner: str, leaver: str) -> Lease:
    return Lease(epoch, joiner, leaver, "train", "dec-1", "near", "gpuwarden", 10.0)


LEASED = BookChange(spares=(spare("s1", SpareState.LEASED),), leases=(lease(1, "s1", "n1"),))


def test_a_lease_begins_and_ends_and_its_epoch_never_comes_again() -> None:
    shelf = Shelf().after(BookChange(spares=(spare("s1"), spare("s2"))))
    assert shelf.stands_by("s1")
    leased = shelf.after(LEASED)
    assert (leased.joiner_of("n1"), leased.joiner_of("n2")) == ("s1", None)
    assert not leased.stands_by("s1")
    assert leased.sentence("s1") == "works for n1 (lease 1: near)"
    assert leased.sentence("n1") == "replaced by s1 (lease 1: near)"
    ended = leased.leases["s1"].ended("ana", "back", 20.0)
    free = leased.after(BookChange(spares=(spare("s1", SpareState.COLD),), leases=(ended,)))
    assert (free.joiner_of("n1"), free.last_epoch) == (None, 1)
    assert free.stands_by("s1")
    assert free.sentence("s1") == "stands by for pool train, cold"
    assert free.sentence("n1") == ""


def test_the_last_value_of_a_change_counts_and_nothing_changes_nothing() -> None:
    first = BookChange(spares=(spare("s1"),))
    both = first.joined(BookChange(spares=(replace(spare("s1"), pool="other"),)))
    assert Shelf().after(both).spares["s1"].pool == "other"
    shelf = Shelf().after(first)
    assert shelf.after(NO_CHANGE) is shelf
    assert shelf.after(BookChange(removed=("s1", "s9"))).spares == {}


def test_a_name_changes_on_both_sides_of_a_lease() -> None:
    renames = (("n1", "n9"), ("s1", "s9"))
    shelf = Shelf().after(LEASED).after(BookChange(renames=renames))
    assert shelf.joiner_of("n9") == "s9"
    assert (shelf.leases["s9"].joiner, shelf.spares["s9"].node_id) == ("s9", "s9")
