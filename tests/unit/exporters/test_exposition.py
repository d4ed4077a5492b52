from __future__ import annotations

import math

import pytest

from gpuwarden_exporters.exposition import (
    LONGEST_LINE,
    parse_series,
    parse_value,
    sample_lines,
    split_sample,
)


def test_only_samples_are_lines_and_only_line_feeds_end_them() -> None:
    text = '# HELP a b\n\n  \na{x="one\u2028two"} 1\r\nb 2'
    assert list(sample_lines(text)) == ['a{x="one\u2028two"} 1', "b 2"]


@pytest.mark.parametrize(
    ("line", "sample"),
    [
        ("up 1", ("up", "1")),
        ("up 1 1700000000000", ("up", "1")),
        ('a{b="c d"} 2.5', ('a{b="c d"}', "2.5")),
        ('a{b="}"} 2 1700000000000', ('a{b="}"}', "2")),
        ('a{b="c", } 2', ('a{b="c", }', "2")),
        ("up", None),
        ("up 1 2 3", None),
        ('a{b="c"}', None),
        ("<html><body>no metrics here today</body></html>", None),
        ("a" * (LONGEST_LINE + 1), None),
    ],
)
def test_a_sample_is_a_series_and_a_value(line: str, sample: tuple[str, str] | None) -> None:
    assert split_sample(line) == sample


@pytest.mark.parametrize(
    ("series", "parsed"),
    [
        ("up", ("up", {})),
        ("up{}", ("up", {})),
        ('a{b="c",d="e f"}', ("a", {"b": "c", "d": "e f"})),
        ('a{ b="c" , d="e", }', ("a", {"b": "c", "d": "e"})),
        (r'a{b="say \"hi\"\n\\o/"}', ("a", {"b": 'say "hi"\n\\o/'})),
        ('a{b="{x}"}', ("a", {"b": "{x}"})),
        ("0a", None),
        ("a b", None),
        ('a{b="c"', None),
        ("a{b=c}", None),
        ('a{b="c" d="e"}', None),
        ('a{b="c",b="d"}', None),
        ('a{b="c"}}', None),
        ("a{,}", None),
    ],
)
def test_a_series_is_a_name_and_labels(
    series: str, parsed: tuple[str, dict[str, str]] | None
) -> None:
    assert parse_series(series) == parsed


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-3", -3),
        ("9223372036854775794", 9223372036854775794),
        ("1e3", 1000.0),
        ("+Inf", math.inf),
        ("12345678901234567890123", 1.2345678901234568e22),
        ("1_000", None),
        ("", None),
        ("N/A", None),
        ("0x10", None),
        ("²", None),
        ("--1", None),
    ],
)
def test_a_value_is_a_number(text: str, value: float | None) -> None:
    assert parse_value(text) == value


def test_a_whole_number_stays_whole_and_nan_is_a_number_here() -> None:
    assert isinstance(parse_value("9223372036854775794"), int)
    assert math.isnan(parse_value("NaN") or 0)
