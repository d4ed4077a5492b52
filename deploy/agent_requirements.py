"""Prints the part of requirements.lock that the agent needs: its pins, with their hashes.

python deploy/agent_requirements.py pyproject.toml requirements.lock > agent.lock
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def agent_requirements(pyproject: str, lock: str) -> str:
    """The entries of the lock for the project's base dependencies, which depend on nothing.

    Raises:
        KeyError: A base dependency has no pin.
    """
    wanted = tomllib.loads(pyproject)["project"]["dependencies"]
    pins = {_name(block): block for block in _blocks(lock)}
    return "".join(pins[_name(one)] for one in wanted)


def _blocks(lock: str) -> list[str]:
    """Each pin with its lines of hashes: those begin with a blank."""
    return re.findall(r"^[A-Za-z0-9].*\n(?:[ \t].*\n)*", lock, re.MULTILINE)


def _name(requirement: str) -> str:
    found = _NAME.match(requirement)
    return re.sub(r"[-_.]+", "-", found[0]).lower() if found else ""


if __name__ == "__main__":
    project, pinned = (Path(one).read_text("utf-8") for one in sys.argv[1:3])
    sys.stdout.write(agent_requirements(project, pinned))
