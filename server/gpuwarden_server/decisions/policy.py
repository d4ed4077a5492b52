"""The policy of the settings, read once at the start."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gpuwarden_server.core.errors import StartError
from gpuwarden_verdict.detectors import DETECTOR_SETTINGS
from gpuwarden_verdict.policy.document import Mode, PolicyDocument
from gpuwarden_verdict.policy.parse import PolicyError, override_mode, parse_policy


@dataclass(frozen=True, slots=True)
class LoadedPolicy:
    """A policy, and what it was read from.

    Attributes:
        document: What it says.
        text: TOML, "" for the built-in rules.
        mode: Of the settings, None where they name none.
    """

    document: PolicyDocument
    text: str
    mode: Mode | None


def load_policy(file: Path | None, mode: Mode | None) -> LoadedPolicy:
    """The policy of the settings.

    Args:
        file: TOML; None for one pool with the defaults.
        mode: Mode of the pool that the file does not name, where the settings give one.

    Raises:
        StartError: The file cannot be read or is not a policy; names the key and the mend.
    """
    text = "" if file is None else _read(file)
    try:
        return LoadedPolicy(make_policy(text, mode), text, mode)
    except PolicyError as error:
        raise StartError(
            f"policy file {file}: {error.key} = {error.value!r} cannot be used",
            f"Correct it: {error.mend}.",
        ) from error


def make_policy(text: str, mode: Mode | None) -> PolicyDocument:
    """The document of a text, with the mode of the settings.

    Raises:
        PolicyError: It is no policy of this version; names the key and the mend.
    """
    document = parse_policy(text, detectors=DETECTOR_SETTINGS)
    return document if mode is None else override_mode(document, mode)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StartError(
            f"policy file {file} cannot be read: {error}",
            "Set GPUWARDEN_POLICY_FILE to a TOML file that the server may read, or unset it.",
        ) from error
