"""Adds what an installed server needs beside code to standard wheels: migrations and models.

An editable install reads both from the checkout, so no second copy can drift.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# Folder in the checkout -> package that finds it beside its own code when installed.
SHIPPED = {
    "migrations": "gpuwarden_server/_migrations",
    "models/artifacts": "gpuwarden_server/_artifacts",
}


class ShippedFolders(BuildHookInterface[Any]):
    """Force-includes SHIPPED into standard wheels only."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before a build; `version` is "standard" or "editable"."""
        if version != "standard":
            return
        for folder, target in SHIPPED.items():
            for path in sorted((Path(self.root) / folder).rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    relative = path.relative_to(Path(self.root) / folder)
                    build_data["force_include"][str(path)] = f"{target}/{relative}"
