"""The pure judge: from events and windows to incidents and decisions, over values alone.

The server uses its parts over a database; `FleetEngine` composes them for use in process.
"""

from gpuwarden_verdict.engine.fleet_engine import FleetEngine
from gpuwarden_verdict.engine.hearing import Heard
from gpuwarden_verdict.engine.risks import ModelRisks

__all__ = ["FleetEngine", "Heard", "ModelRisks"]
