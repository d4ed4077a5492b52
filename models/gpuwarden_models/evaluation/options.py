"""What an evaluation is asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Options:
    """Arguments of `gpuwarden evaluate`.

    Attributes:
        state: Folder of what is done so far; a run that is called again goes on there.
        out: Folder for report.md and report.json.
        seed: Everything random hangs on it.
        public: Folder of public data, None where there is none: those parts are left out.
        minutes: No step begins after so long.
        tree_seeds: How often trees of the exclusion benchmark are grown.
    """

    state: Path
    out: Path
    seed: int = 1
    public: Path | None = None
    minutes: float = 45.0
    tree_seeds: int = 3
