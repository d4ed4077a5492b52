"""Which node a path is about, for keys that are narrowed to some nodes."""

from __future__ import annotations

from collections.abc import Mapping

from gpuwarden_server.access.authorisation import NodeOf
from gpuwarden_server.decisions import repository as decisions
from gpuwarden_server.fleet.directory import FleetDirectory
from gpuwarden_server.incidents import repository as incidents
from gpuwarden_server.store.database import Database


def nodes_of(state: Database, directory: FleetDirectory) -> Mapping[str, NodeOf]:
    """By name of a path's parameter, how the node of what it names is found."""

    def of_gpu(gpu_uuid: str) -> str | None:
        gpu = directory.gpu(gpu_uuid)
        return None if gpu is None else gpu.node_id

    def of_incident(incident_id: str) -> str | None:
        with state.read() as connection:
            incident = incidents.read_one(connection, incident_id)
        return None if incident is None else incident.entity.node_id

    def of_decision(decision_id: str) -> str | None:
        with state.read() as connection:
            found = decisions.read_one(connection, decision_id)
        return None if found is None else found[0].entity.node_id

    return {"gpu_uuid": of_gpu, "incident_id": of_incident, "decision_id": of_decision}
