"""Regular expressions of other programs, as far as they can be matched in bounded time. Pure.

Alertmanager's are RE2, which never goes back over its text; Python's do, for minutes on end where
repetitions are nested. A pattern is taken where only single signs are repeated, a few times, and
where both mean the same by it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

MOST_REPEATS = 3
LONGEST_PATTERN = 65_536
_TOKEN = re.compile(
    r"(?P<escape>\\.)|(?P<set>\[\^?\]?(?:\\.|[^\]\\\[])*\])|(?P<open>\((?:\?:)?)"
    r"|(?P<repeat>[*+]|\{\d+(?:,\d*)?\})|(?P<sign>[^\\\[])",
    re.DOTALL,
)
_ESCAPES = frozenset("dDwWsS")
_NAMES = re.compile(r"(?:[\w-]|\\[^A-Za-z0-9])+(?:\|(?:[\w-]|\\[^A-Za-z0-9])+)*", re.ASCII)

Meets = Callable[[str], bool]


@lru_cache(maxsize=4096)
def whole_match(pattern: str) -> Meets:
    """Says of a text whether all of it matches.

    Raises:
        ValueError: No regular expression, or one that is not matched here; says which part.
    """
    if len(pattern) > LONGEST_PATTERN:
        raise ValueError(f"longer than {LONGEST_PATTERN} signs")
    if _NAMES.fullmatch(pattern):
        names = frozenset(re.sub(r"\\(.)", r"\1", name) for name in pattern.split("|"))
        return names.__contains__
    _check(pattern)
    try:
        compiled = re.compile(pattern, re.ASCII)
    except re.error as error:
        raise ValueError(f"no regular expression: {error}") from None
    return lambda text: compiled.fullmatch(text) is not None


def _check(pattern: str) -> None:
    at, repeats, before = 0, 0, ""
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None:
            raise ValueError(f"{pattern[at : at + 10]!r} is not understood")
        kind, text = str(token.lastgroup), token[0]
        if kind == "escape" and text[1].isalnum() and text[1] not in _ESCAPES:
            raise ValueError(f"{text!r} is not understood")
        if kind == "repeat":
            repeats += 1
            if before == ")":
                raise ValueError(f"a group is repeated ({text!r}): repeat single signs")
        if kind == "open" and pattern[token.end() : token.end() + 1] == "?":
            raise ValueError("(?…) is not understood")
        before, at = text, token.end()
    if repeats > MOST_REPEATS:
        raise ValueError(f"more than {MOST_REPEATS} repetitions")
