"""Values of a policy file, each with its key and the mend."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from gpuwarden_verdict.policy.document import Mode
from gpuwarden_verdict.policy.problem import PolicyError


def refuse_unknown(where: str, entry: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """Refuse keys that mean nothing: a misspelt limit is no limit.

    Raises:
        PolicyError: Names the first of them.
    """
    for key, value in entry.items():
        if key not in known:
            name = f"{where}.{key}" if where else key
            raise PolicyError(name, value, f"unknown key; known are {', '.join(known)}")


def read_table(where: str, value: object) -> Mapping[str, Any]:
    """A table."""
    if not isinstance(value, dict):
        raise PolicyError(where, value, "write a table")
    return value


def read_text(where: str, value: object) -> str:
    """A text that says something."""
    if not isinstance(value, str) or not value.strip():
        raise PolicyError(where, value, "write a name in quotes")
    return value


def read_texts(where: str, value: object, example: str) -> tuple[str, ...]:
    """Some texts; `example` is what the mend shows."""
    if not isinstance(value, list) or not value:
        raise PolicyError(where, value, f"write {example}")
    return tuple(read_text(where, one) for one in value)


def read_mode(where: str, value: object) -> Mode:
    """observe, advise or act."""
    if value not in tuple(Mode):
        raise PolicyError(where, value, f"write one of {', '.join(Mode)}")
    return Mode(str(value))


def read_flag(where: str, value: object) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise PolicyError(where, value, "write true or false")
    return value


def read_number(where: str, value: object, *, least: float, most: float) -> float:
    """A number within limits, both included."""
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    if not fits or not math.isfinite(float(str(value))) or not least <= float(str(value)) <= most:
        limit = f"from {least:g} to {most:g}" if math.isfinite(most) else f"of at least {least:g}"
        raise PolicyError(where, value, f"write a number {limit}")
    return float(str(value))


def read_nodes_limit(where: str, value: object) -> int:
    """A number of nodes."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise PolicyError(where, value, "write a whole number of nodes of at least 0")
    return value


read_seconds = partial(read_number, least=0, most=math.inf)
read_share = partial(read_number, least=0, most=1)
