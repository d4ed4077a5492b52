"""What of an open minute outlasts kill -9."""

from __future__ import annotations

import math
import time
from contextlib import closing
from pathlib import Path

import pytest

from gpuwarden_wire.batches import Stream
from tests.builders.server import (
    Feeder,
    ServerProcess,
    gpu_table,
    make_gpu,
    make_settings,
    wait_until,
)

GPU = "GPU-node-1-0"


@pytest.mark.serial
def test_an_open_minute_outlasts_kill_9(tmp_path: Path) -> None:
    process = ServerProcess(make_settings(tmp_path))
    try:
        server = process.start()
        begin = math.floor(time.time() / 60.0 - 2.0) * 60.0
        feeder = Feeder(server, server.mint("agent", "node-1"), "node-1")
        feeder.introduce([make_gpu(0)])
        first, second = (
            feeder.batch(Stream.TELEMETRY, tables=(table,), schemas=(schema,))
            for table, schema in (
                gpu_table({GPU: (50.0, 300.0, 1.0)}, begin),
                gpu_table({GPU: (70.0, 300.0, 3.0)}, begin + 20.0),
            )
        )
        wait_until(lambda: feeder.send(first).durable_seq == 1, "a checkpoint has it", 30.0)
        feeder.send(second)
        process.kill()
        for client in (server.admin, feeder.client):
            client.close()
        server = process.start()
        with closing(Feeder(server, feeder.key, "node-1", feeder.spool_id)) as again:
            again.send(second)  # as an agent does with what was not durable
        asked: dict[str, str | float] = {
            "entity_kind": "gpu",
            "entity": GPU,
            "metric": "gpu_temperature_celsius",
            "from": begin,
            "to": begin + 60,
        }
        (heat,) = server.admin.get("/v1/history", params=asked).json()["series"]
        assert (heat["min"], heat["mean"], heat["last"]) == ([50.0], [60.0], [70.0])
        server.admin.close()
    finally:
        process.close()
