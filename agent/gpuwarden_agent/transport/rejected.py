"""Batches that the server refuses for ever: kept aside, bounded, for people to look at."""

from __future__ import annotations

import json
from pathlib import Path

from gpuwarden_agent.transport.answers import Reply
from gpuwarden_wire.batches import Batch
from gpuwarden_wire.codec import encode_batch

MAX_FILES = 64
MAX_BYTES = 16 * 1024 * 1024


class RejectedFolder:
    """Holds the newest refused batches, each as it was sent beside the reason."""

    def __init__(
        self, folder: Path, max_files: int = MAX_FILES, max_bytes: int = MAX_BYTES
    ) -> None:
        self._folder = folder
        self._max_files = max_files
        self._max_bytes = max_bytes

    def keep(self, batch: Batch, reply: Reply, now: float) -> Path | None:
        """Write a batch and why it was refused; the oldest make room.

        Returns:
            The batch's file; None where the disk does not take it.
        """
        name = f"{int(now * 1000):013d}-{batch.stream}-{batch.seq}-{reply.status_code}"
        path = self._folder / f"{name}.msgpack"
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            path.write_bytes(encode_batch(batch))
            path.with_suffix(".json").write_text(json.dumps(_reason(batch, reply), indent=1))
        except OSError:
            return None
        self._make_room()
        return path

    def _make_room(self) -> None:
        files = sorted(self._folder.glob("*.msgpack"))
        sizes = [path.stat().st_size for path in files]
        while files and (len(files) > self._max_files or sum(sizes) > self._max_bytes):
            oldest = files.pop(0)
            sizes.pop(0)
            oldest.unlink(missing_ok=True)
            oldest.with_suffix(".json").unlink(missing_ok=True)


def _reason(batch: Batch, reply: Reply) -> dict[str, object]:
    problem = reply.problem
    return {
        "node_id": batch.node_id,
        "spool_id": batch.spool_id,
        "stream": batch.stream,
        "seq": batch.seq,
        "events": len(batch.events),
        "http_status": reply.status_code,
        "code": problem.code if problem else "",
        "detail": problem.detail if problem else "",
        "mend": problem.mend if problem else "",
    }
