"""Whether a program or its definition is safe to trust: who else could have written it."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a file is not trusted.

    Attributes:
        reason: In words, with the path that is to blame.
        mend: What the operator can do about it.
    """

    reason: str
    mend: str


def refusal(path: Path, euid: int | None = None) -> Refusal | None:
    """Why root must not run or obey this file; None where it may, or where we are not root.

    Root runs only what root alone can change: the file must belong to root and be writable for
    nobody else, and no folder above it may be writable for all (a sticky one, such as /tmp, keeps
    others from replacing the file and is let pass).

    Args:
        path: The file; symbolic links are followed. One that cannot be looked at is not refused
            here: opening it tells why.
        euid: Effective user, this process's where None.
    """
    if (os.geteuid() if euid is None else euid) != 0:
        return None
    try:
        real = path.resolve(strict=True)
        found = real.stat()
        folders = [(folder, folder.stat()) for folder in real.parents]
    except (OSError, RuntimeError):
        return None
    if found.st_uid != 0:
        return Refusal(f"{real} belongs to user {found.st_uid}", f"chown root {real}")
    if found.st_mode & stat.S_IWOTH or (found.st_mode & stat.S_IWGRP and found.st_gid != 0):
        return Refusal(f"{real} is writable for others", f"chmod go-w {real}")
    for folder, facts in folders:
        if facts.st_mode & stat.S_IWOTH and not facts.st_mode & stat.S_ISVTX:
            return Refusal(f"its folder {folder} is writable for all", f"chmod o-w {folder}")
    return None
