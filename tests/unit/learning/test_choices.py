"""Which versions are used, as a person's word moves them."""

from __future__ import annotations

import pytest

from gpuwarden_server.learning.registry.domain import (
    MOST_FORMER,
    Choice,
    ChoiceError,
    Chosen,
    by_preference,
    challenged,
    promoted,
    rolled_back,
)

A, B, C = (Chosen(name, name * 64, 1.0, "ana") for name in "abc")


def names(choice: Choice) -> tuple[str, str, str]:
    used = choice.promoted.version if choice.promoted else ""
    other = choice.challenger.version if choice.challenger else ""
    return used, "".join(one.version for one in choice.former), other


def test_promote_and_roll_back_walk_one_path() -> None:
    choice = promoted(promoted(promoted(Choice(), A), B), C)
    assert names(choice) == ("c", "ab", "")
    back = rolled_back(choice, 9.0, "bob")
    assert names(back) == ("b", "a", "")
    assert back.promoted is not None
    assert (back.promoted.since, back.promoted.author) == (9.0, "bob")
    first = rolled_back(back, 9.0, "bob")
    with pytest.raises(ChoiceError):
        rolled_back(first, 9.0, "bob")


def test_promoting_again_changes_nothing() -> None:
    choice = promoted(Choice(), A)
    assert promoted(choice, Chosen("a", "a" * 64, 5.0, "bob")) is choice


def test_the_same_name_over_other_files_is_another_version() -> None:
    choice = promoted(promoted(Choice(), A), Chosen("a", "0" * 64, 5.0, "bob"))
    assert len(choice.former) == 1


def test_a_promoted_challenger_challenges_no_more() -> None:
    choice = challenged(promoted(Choice(), A), B)
    assert names(choice) == ("a", "", "b")
    assert names(promoted(choice, B)) == ("b", "a", "")
    assert names(promoted(choice, C)) == ("c", "a", "b")


def test_a_challenger_begins_ends_and_is_never_the_promoted_one() -> None:
    choice = promoted(Choice(), A)
    with pytest.raises(ChoiceError, match="promoted"):
        challenged(choice, A)
    with_b = challenged(choice, B)
    assert challenged(with_b, B) is with_b
    assert names(challenged(with_b, None)) == ("a", "", "")
    assert challenged(choice, None) is choice


def test_what_was_before_is_taken_where_the_promoted_one_cannot_be() -> None:
    choice = promoted(promoted(promoted(Choice(), A), B), C)
    assert "".join(one.version for one in by_preference(choice)) == "cba"
    assert choice.versions == {"a", "b", "c"}


def test_former_versions_are_not_kept_for_ever() -> None:
    choice = Choice()
    for number in range(3 * MOST_FORMER):
        choice = promoted(choice, Chosen(f"v{number}", "0" * 64, 1.0))
    assert len(choice.former) == MOST_FORMER
