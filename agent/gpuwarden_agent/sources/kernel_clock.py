"""How well the kernel's clock is kept: adjtimex(2), read only."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass

# linux/timex.h
_STA_UNSYNC = 0x0040
_STA_NANO = 0x2000


@dataclass(frozen=True, slots=True)
class ClockState:
    """What the kernel knows of its clock.

    Attributes:
        synchronised: A time service keeps it; False where STA_UNSYNC is set.
        offset_s: Correction that is under way, seconds; either sign.
        error_s: Estimated error, seconds.
    """

    synchronised: bool
    offset_s: float
    error_s: float


class _Timex(ctypes.Structure):
    """`struct timex` of adjtimex(2), with the room that the kernel keeps behind it."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("condition", ctypes.c_int),
        ("constant", ctypes.c_long),
        ("precision", ctypes.c_long),
        ("tolerance", ctypes.c_long),
        ("time", ctypes.c_long * 2),
        ("tick", ctypes.c_long),
        ("rest", ctypes.c_long * 24),
    )


class KernelClock:
    """Asks the kernel; needs no privilege."""

    def __init__(self) -> None:
        library = ctypes.CDLL(None, use_errno=True)
        self._call = library.adjtimex
        self._call.argtypes = (ctypes.POINTER(_Timex),)
        self._call.restype = ctypes.c_int
        self._timex = _Timex()

    def __call__(self) -> ClockState:
        """The clock's state.

        Raises:
            OSError: The kernel refuses (a seccomp filter).
        """
        self._timex.modes = 0  # read, change nothing
        if self._call(ctypes.byref(self._timex)) < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        condition = self._timex.condition
        unit = 1e-9 if condition & _STA_NANO else 1e-6
        return ClockState(
            synchronised=not condition & _STA_UNSYNC,
            offset_s=self._timex.offset * unit,
            error_s=self._timex.esterror * 1e-6,
        )
