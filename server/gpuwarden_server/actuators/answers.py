"""What programs and receivers of the user's answer to `read`."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gpuwarden_server.actuators.ports import ActuatorError
from gpuwarden_verdict.actuation import Found, Hold


class _Answer(msgspec.Struct, frozen=True):
    """How one node is held there."""

    hold: Hold
    reason: str = ""
    by: str = ""
    jobs: tuple[str, ...] | None = None


_ANSWERS = msgspec.json.Decoder(dict[str, _Answer])


def decode_found(body: bytes, who: str, mend: str) -> Mapping[str, Found]:
    """What is held, by node.

    Raises:
        ActuatorError: It is no such JSON.
    """
    try:
        answers = _ANSWERS.decode(body)
    except msgspec.DecodeError as error:
        raise ActuatorError(f"{who} answered to read with no such JSON: {error}", mend) from error
    return {
        node: Found(one.hold, one.reason, one.by, one.jobs or (), one.jobs is not None)
        for node, one in answers.items()
    }
