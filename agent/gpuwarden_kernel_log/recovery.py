"""XID 154: the recovery action that the driver states."""

from __future__ import annotations

import re

from gpuwarden_kernel_log.vocabulary import FaultClass, RecoveryAction, Severity

__all__ = ["RecoveryAction", "recovery_severity", "stated_recovery_action"]

# 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)
_CHANGED_TO = re.compile(r"\bto (?:0x([0-9A-Fa-f]{1,4}))?\s{0,4}(?:\(([A-Za-z0-9 _-]{1,40})\)?)?")
# Order matters: "Drain and Reset" holds the word reset.
_BY_WORD = (
    ("drain and reset", RecoveryAction.DRAIN_AND_RESET),
    ("drain p2p", RecoveryAction.DRAIN_P2P),
    ("reboot", RecoveryAction.RESTART_BM),
    ("reset", RecoveryAction.RESET_GPU),
    ("none", RecoveryAction.NONE),
)
# nvmlDeviceGpuRecoveryAction_t, nvml.h
_BY_VALUE = (
    RecoveryAction.NONE,
    RecoveryAction.RESET_GPU,
    RecoveryAction.RESTART_BM,
    RecoveryAction.DRAIN_P2P,
    RecoveryAction.DRAIN_AND_RESET,
)
_SEVERITY = {
    RecoveryAction.NONE: Severity.INFO,
    RecoveryAction.DRAIN_P2P: Severity.ERROR,
    RecoveryAction.RESET_GPU: Severity.CRITICAL,
    RecoveryAction.RESTART_BM: Severity.CRITICAL,
    RecoveryAction.DRAIN_AND_RESET: Severity.CRITICAL,
}


def stated_recovery_action(text: str) -> RecoveryAction | None:
    """The action that a line of XID 154 says the GPU now needs.

    Args:
        text: the message.

    Returns:
        The new action, by its words, else by its number; None where the line was cut short or names
        an action that we do not know. Words win: drivers renamed the texts, never their sense.
    """
    changed = None
    for changed in _CHANGED_TO.finditer(text):
        if changed[1] or changed[2]:
            break
    else:
        return None
    words = (changed[2] or "").lower().replace("_", " ").replace("-", " ")
    for word, action in _BY_WORD:
        if word in words:
            return action
    value = int(changed[1], 16) if changed[1] else len(_BY_VALUE)
    return _BY_VALUE[value] if not words and value < len(_BY_VALUE) else None


def recovery_severity(action: RecoveryAction | None) -> tuple[Severity, FaultClass, bool]:
    """Severity, fault class and acts_alone of a 154.

    Its class is that of the first cause beside it, which one line cannot know: always unknown. It
    acts alone when the driver asks for a reset, a reboot or a drain; a text cut short never does.
    """
    if action is None:
        return Severity.WARNING, FaultClass.UNKNOWN, False
    return _SEVERITY[action], FaultClass.UNKNOWN, action is not RecoveryAction.NONE
