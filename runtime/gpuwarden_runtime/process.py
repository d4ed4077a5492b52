"""One command in a process group of its own: start, forward signals, end with grace."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

_POLL_S = 0.05
# After SIGKILL the kernel ends a process as soon as it leaves its system call; one stuck in the
# driver (state D) may never do so, and waiting for it would hang the launcher as well.
_KILL_WAIT_S = 5.0


class CommandNotStarted(Exception):
    """The command could not be executed.

    Attributes:
        missing: True where there is no such command, False where it may not be executed.
    """

    def __init__(self, command: str, error: OSError) -> None:
        super().__init__(f"{command}: {error.strerror or error}")
        self.missing = isinstance(error, FileNotFoundError)


class Command:
    """A running command.

    Where we own the terminal the command gets it, as a shell gives it to a job.

    Args:
        words: Program and arguments.
        on_end: Called from a thread of its own with the exit code once the command has ended: its
            own code, or 128 + N after signal N as shells report it.
        on_stop: Called likewise when the command was stopped from the terminal (Ctrl-Z).

    Raises:
        CommandNotStarted: It could not be executed.
    """

    def __init__(
        self, words: Sequence[str], on_end: Callable[[int], None], on_stop: Callable[[], None]
    ) -> None:
        self._terminal = _terminal_of_ours()
        try:
            self._process = subprocess.Popen(
                list(words),
                process_group=0,
                # The child takes the terminal itself: it may read before we would have handed it
                # over. No other thread runs yet that could hold a lock in the fork.
                preexec_fn=None if self._terminal is None else self._take_terminal,
            )
        except OSError as error:
            self.take_back_terminal()
            raise CommandNotStarted(words[0], error) from error
        self._group = self._process.pid
        self._on_end = on_end
        self._on_stop = on_stop
        threading.Thread(target=self._wait, name="command", daemon=True).start()

    def forward(self, number: int) -> None:
        """Send a signal to the whole group."""
        with suppress(ProcessLookupError):
            os.killpg(self._group, number)

    def end(self, grace_s: float) -> bool:
        """SIGTERM to the group, then SIGKILL to whatever of it is left after the grace.

        Returns:
            True where SIGTERM was enough.
        """
        self.forward(signal.SIGTERM)
        self.forward(signal.SIGCONT)  # a stopped process does not see SIGTERM
        if self._is_gone_within(grace_s):
            return True
        self.forward(signal.SIGKILL)
        self._is_gone_within(_KILL_WAIT_S)
        return False

    def stop_with(self) -> None:
        """Stop ourselves as the command was stopped, and let it go on when we do."""
        self.take_back_terminal()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._terminal = _terminal_of_ours()  # none where the shell continued us with `bg`
        self._hand_terminal(self._group)
        self.forward(signal.SIGCONT)

    def take_back_terminal(self) -> None:
        """Make our own group the terminal's foreground again."""
        self._hand_terminal(os.getpgrp())

    def _wait(self) -> None:
        while True:
            _, how = os.waitpid(self._process.pid, os.WUNTRACED)
            if not os.WIFSTOPPED(how):
                break
            if self._terminal is not None:
                self._on_stop()
        code = os.waitstatus_to_exitcode(how)
        self._process.returncode = code  # reaped here, not by Popen
        self._on_end(code if code >= 0 else 128 - code)

    def _is_gone_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if not self._group_lives():
                return True
            time.sleep(_POLL_S)
        return not self._group_lives()

    def _group_lives(self) -> bool:
        try:
            os.killpg(self._group, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True  # a member changed its user
        # Orphans of the group that nobody reaps (a container without init) still count for kill.
        return self._process.returncode is None or _has_live_member(self._group)

    def _take_terminal(self) -> None:
        self._hand_terminal(os.getpgrp())

    def _hand_terminal(self, group: int) -> None:
        if self._terminal is None:
            return
        # A background group that changes the foreground is stopped by SIGTTOU unless it ignores it
        # (POSIX, tcsetpgrp).
        before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        with suppress(OSError):
            os.tcsetpgrp(self._terminal, group)
        signal.signal(signal.SIGTTOU, before)


def _terminal_of_ours() -> int | None:
    """Descriptor of the terminal whose foreground we are, None where there is none."""
    try:
        return 0 if os.tcgetpgrp(0) == os.getpgrp() else None
    except OSError:
        return None


def _has_live_member(group: int) -> bool:
    """True where a process of the group is not a zombie, as /proc/PID/stat tells (proc(5))."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError, ValueError, IndexError):
            # "4321 (python train.py) S 1 4321 …": state and process group after the last ")"
            fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[2]) == group and fields[0] not in "ZX":
                return True
    return False
