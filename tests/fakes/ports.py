"""Ports of this machine for programs that are told theirs."""

from __future__ import annotations

import atexit
import socket

_kept: list[socket.socket] = []


def free_port() -> int:
    """A port that nobody listens on, and that nobody else is given while this process lives.

    A socket bound to it is kept. It does not listen: connections are refused, and one that sets
    SO_REUSEADDR, as servers do, may listen there. A port that is only looked up and let go is
    given to the next who asks, and tests run beside each other.
    """
    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind(("127.0.0.1", 0))
    _kept.append(kept)
    return int(kept.getsockname()[1])


@atexit.register
def _let_go() -> None:
    for kept in _kept:
        kept.close()
