"""What a bearer key may be made of, for all who send one."""

from __future__ import annotations

KEY_MEND = "give the whole key as `gpuwarden keys create` printed it: gw_ and 43 characters"


def key_fault(key: str) -> str:
    """Why a key cannot be sent in a header, "" where it can.

    The text never shows the key, only the first character that is wrong and its place. RFC 6750
    (2.1) allows visible ASCII alone; what is not of this server is for the server to say.

    Args:
        key: The key without surrounding blanks.
    """
    for place, character in enumerate(key, start=1):
        if not "!" <= character <= "~":
            return f"character {place} of the key is {_named(character)}, which no key has"
    return ""


def _named(character: str) -> str:
    code = f"U+{ord(character):04X}"
    if character.isspace():
        return f"a blank or line break ({code})"
    if character.isascii():
        return f"a control character ({code})"
    return f"{character} ({code})" if character.isprintable() else code
