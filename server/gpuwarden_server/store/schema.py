"""All tables: importing this module fills STATE and HISTORY."""

from __future__ import annotations

from gpuwarden_server.store import (
    tables_access,
    tables_actuators,
    tables_checkpoints,
    tables_diagnosis,
    tables_doors,
    tables_fleet,
    tables_history,
    tables_inventory,
    tables_jobs,
    tables_judging,
    tables_learning,
    tables_lease,
    tables_links,
    tables_names,
    tables_notifications,
    tables_pins,
    tables_policies,
    tables_progress,
    tables_standby,
    tables_web,
)
from gpuwarden_server.store.base import HISTORY, STATE

__all__ = ["HISTORY", "STATE", "TABLE_MODULES"]

TABLE_MODULES = (
    tables_access,
    tables_actuators,
    tables_checkpoints,
    tables_diagnosis,
    tables_doors,
    tables_fleet,
    tables_history,
    tables_inventory,
    tables_jobs,
    tables_judging,
    tables_learning,
    tables_lease,
    tables_links,
    tables_names,
    tables_notifications,
    tables_pins,
    tables_standby,
    tables_policies,
    tables_progress,
    tables_web,
)
