"""What schemathesis cannot guess: cursors that a page could have given."""

from __future__ import annotations

import schemathesis
from hypothesis import strategies

from gpuwarden_server.core.pages import CURSOR_FORMAT, Cursor, encode_cursor

_CURSORS = [encode_cursor(Cursor(at, name)) for at in (0.0, 1.7e9) for name in ("a", "gpu-017")]

schemathesis.openapi.format(CURSOR_FORMAT, strategies.sampled_from(_CURSORS))
