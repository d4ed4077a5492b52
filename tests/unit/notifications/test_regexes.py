from __future__ import annotations

import time

import pytest

from gpuwarden_server.notifications.quiet.domain import Matcher, parse_matcher
from gpuwarden_server.notifications.quiet.regexes import LONGEST_PATTERN, whole_match


@pytest.mark.parametrize(
    ("pattern", "meets", "misses"),
    [
        ("gpu-01|gpu-02", ["gpu-01", "gpu-02"], ["gpu-03", "gpu-0", "xgpu-01", ""]),
        (r"n1\.example\.org|n2", ["n1.example.org", "n2"], ["n1xexample.org"]),
        ("gpu-0[1-3]", ["gpu-01", "gpu-03"], ["gpu-04", "gpu-011"]),
        ("gpu-(01|02)", ["gpu-01", "gpu-02"], ["gpu-03"]),
        ("(?:a|b)?c", ["c", "ac", "bc"], ["abc"]),
        (".*", ["", "anything"], ["two\nlines"]),
        ("gpu-.+", ["gpu-1"], ["gpu-"]),
        (r"rack\d{1,2}", ["rack1", "rack12"], ["rack", "rack123"]),
        ("[^a]b", ["xb"], ["ab"]),
        ("", [""], ["x"]),
    ],
)
def test_all_of_a_text_must_match(pattern: str, meets: list[str], misses: list[str]) -> None:
    whole = whole_match(pattern)
    assert [one for one in meets if not whole(one)] == []
    assert [one for one in misses if whole(one)] == []


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(a+)+", "a group is repeated"),
        ("(a|b)*", "a group is repeated"),
        (".*.*.*.*", "more than 3 repetitions"),
        ("(?i)gpu", "not understood"),
        ("(?=x)", "not understood"),
        (r"\pL", "not understood"),
        (r"\1", "not understood"),
        ("[[:alpha:]]", "not understood"),
        ("gpu-(", "no regular expression"),
        ("*", "no regular expression"),
        ("x" * (LONGEST_PATTERN + 1), "longer than"),
    ],
)
def test_what_might_take_for_ever_or_mean_something_else_is_refused(pattern: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        whole_match(pattern)


def test_the_worst_that_is_taken_is_matched_at_once() -> None:
    began = time.process_time()
    assert not whole_match(".*.*.*x")("y" * 253)
    assert time.process_time() - began < 5.0


def test_a_matcher_is_read_as_it_is_written() -> None:
    for text in ("node=~gpu-01|gpu-02", "node!~gpu-.*", "rack=r1*", "pool!=test"):
        assert str(parse_matcher(text)) == text
    assert parse_matcher("node=~gpu-01|gpu-02").holds({"node": "gpu-02"})
    assert parse_matcher("node!~gpu-.*").holds({"node": "cpu-1"})
    assert parse_matcher("node=~x") == Matcher("node", "x", regex=True)
    with pytest.raises(ValueError, match="a group is repeated"):
        parse_matcher("node=~(a+)+")
