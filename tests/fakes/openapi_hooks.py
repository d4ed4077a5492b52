"""What schemathesis cannot guess: cursors of pages, policies, and its own key."""

from __future__ import annotations

import os
from typing import Any

import schemathesis
from hypothesis import strategies

from gpuwarden_server.core.pages import CURSOR_FORMAT, Cursor, encode_cursor
from gpuwarden_server.policies.schemas import POLICY_FORMAT

# Newest first or by name: all of a list is behind the first of these.
_CURSORS = [encode_cursor(Cursor(4e9, name)) for name in ("", "gpu-017")]

schemathesis.openapi.format(CURSOR_FORMAT, strategies.sampled_from(_CURSORS))
_POLICIES = ["", '[defaults]\nmode = "advise"\n', '[[pools]]\nname = "a"\nnodes = ["gpu-*"]\n']
schemathesis.openapi.format(POLICY_FORMAT, strategies.sampled_from(_POLICIES))
_KNOWN = {"node": ["gpu-017", "gpu-018"], "entity": ["GPU-gpu-017-0", "GPU-gpu-018-0"]}
_OWN_KEY = os.environ.get("FUZZ_KEY_ID", "")


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Spare the key that the requests are made with: a new secret for it would end the run."""
    if case.path_parameters and case.path_parameters.get("key_id") == _OWN_KEY:
        case.path_parameters["key_id"] = "key-000000000000"


@schemathesis.hook
def map_query(context: Any, query: Any) -> Any:
    """Mostly ask about what there is: lists that are narrowed to nothing lead nowhere."""
    for name, known in _KNOWN.items():
        value = query.get(name) if query else None
        if isinstance(value, str) and len(value) % 4:
            query[name] = known[len(value) % len(known)]
    return query
