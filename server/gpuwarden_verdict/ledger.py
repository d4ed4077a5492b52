"""The part's ledger: what is on record of a GPU board, a port or a node over months.

A board is followed by its serial number, so that its past goes with it into another node, and the
board that comes in its place starts with nothing. What is kept is few: marks with their times.

Bytes: b"GWPL", version (u16), CRC-32 of the rest (u32), length of the header (u32), header (JSON),
then an array of each field of the marks, little-endian.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuwarden_verdict.entities import EntityRef, FaultClass
from gpuwarden_wire.metrics import EntityKind

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

KEPT_S = 365 * 86_400.0
"""Marks are forgotten after this: a decayed sum over 30 days holds nothing of them any more."""
MOST_OF_A_MARK = 64
"""Newest marks of one kind that are kept of a part."""

_MAGIC = b"GWPL"
_VERSION = 1
_PREFIX = struct.Struct("<4sHII")
_FIELDS = (("part", "<u4"), ("mark", "<u2"), ("at", "<f8"), ("weight", "<f8"))


class LedgerFormError(Exception):
    """Bytes that are no ledger; the message says why and what to do."""

    def __init__(self, why: str) -> None:
        super().__init__(f"ledger of parts: {why}; delete it: it fills anew from now on")


class Mark(StrEnum):
    """What is put on record. Severe events are marked by where the fault lay."""

    MEMORY = "memory"
    NVLINK = "nvlink"
    BUS = "bus"
    DRIVER = "driver"
    THERMAL = "thermal"
    POWER = "power"
    NIC = "nic"
    HOST = "host"
    STORAGE = "storage"
    FABRIC = "fabric"
    UNKNOWN = "unknown"
    GPU = "gpu"  # of a node: a GPU in it had a severe event
    EXCLUSION = "exclusion"
    REPAIR = "repair"
    REPLACEMENT = "replacement"  # of a node: another board sits in a slot
    FAILED_JOB = "failed_job"


SEVERE: Mapping[FaultClass, Mark] = {
    fault: Mark(fault.value)
    for fault in FaultClass
    if fault not in (FaultClass.APPLICATION, FaultClass.OPERATOR)
}
"""Mark of a severe event of each class; what a program or a person did is no part's fault."""

SEVERE_MARKS = frozenset(SEVERE.values())
_MARKS = tuple(Mark)
_CODE = {mark: code for code, mark in enumerate(_MARKS)}


def part_name(ref: EntityRef, serial: str = "") -> str:
    """How an entity's part is called in the ledger.

    Args:
        ref: A GPU, a port, a node.
        serial: Of a GPU's board, "" unknown: then its UUID stands for it.
    """
    return f"{ref.kind.value}:{serial or ref.key}"


@dataclass(slots=True)
class _Part:
    """What is on record of one part: weight by mark and time, and the entities it was seen as."""

    marks: dict[tuple[Mark, float], float] = field(default_factory=dict)
    refs: dict[tuple[EntityKind, str], None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class LedgerReading:
    """The ledger at one moment, as arrays; M marks of all parts.

    Attributes:
        keys: Entity keys of the parts that have marks, by kind.
        parts: Part of each of these keys, by kind.
        part: Part of each mark, int64, shape (M,).
        mark: Code of each mark, its place in Mark, int64, shape (M,).
        at: When, epoch seconds, shape (M,).
        weight: What it counts for, shape (M,).
        size: Number of parts.
    """

    keys: Mapping[EntityKind, tuple[str, ...]] = field(default_factory=dict)
    parts: Mapping[EntityKind, I64] = field(default_factory=dict)
    part: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    mark: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    at: F64 = field(default_factory=lambda: np.empty(0))
    weight: F64 = field(default_factory=lambda: np.empty(0))
    size: int = 0

    def counted(
        self,
        kind: EntityKind,
        marks: Collection[Mark],
        now: float,
        window_s: float,
        least_age_s: float = 0.0,
    ) -> F64:
        """Sum of the weights of marks within a window, one number an entity of `keys[kind]`.

        Args:
            kind: Of the entities.
            marks: Which.
            now: Epoch seconds.
            window_s: None older than this.
            least_age_s: None younger than this.
        """
        age = now - self.at
        within = (age <= window_s) & (age >= least_age_s)
        return self._summed(kind, marks, np.where(within, self.weight, 0.0))

    def decayed(
        self,
        kind: EntityKind,
        marks: Collection[Mark],
        now: float,
        constant_s: float,
        least_age_s: float = 0.0,
    ) -> F64:
        """As `counted`, each mark weighing less the older it is, with a time constant."""
        age = np.maximum(now - self.at, 0.0)
        worth = self.weight * np.exp(-age / constant_s)
        return self._summed(kind, marks, np.where(now - self.at >= least_age_s, worth, 0.0))

    def _summed(self, kind: EntityKind, marks: Collection[Mark], worth: F64) -> F64:
        if kind not in self.keys:
            return np.empty(0)
        chosen: Bool = np.isin(self.mark, [_CODE[mark] for mark in marks])
        totals = np.bincount(self.part[chosen], worth[chosen], self.size)
        return totals.astype(np.float64)[self.parts[kind]]


class PartLedger:
    """Marks by part. Used by one thread; readings may go to any.

    Attributes:
        version: Raised with every change.
    """

    def __init__(self) -> None:
        """Make an empty one."""
        self.version = 0
        self._parts: dict[str, _Part] = {}

    def note(self, part: str, ref: EntityRef, mark: Mark, at: float, weight: float = 1.0) -> None:
        """Put a mark on record; the same one again is one.

        Args:
            part: Its name, `part_name`.
            ref: The entity that the part is now.
            mark: What.
            at: When, epoch seconds.
            weight: What it counts for.
        """
        known = self._parts.setdefault(part, _Part())
        seen, key = (ref.kind, ref.key), (mark, at)
        if known.marks.get(key) == weight and seen in known.refs:
            return
        known.refs[seen] = None
        known.marks[key] = weight
        alike = sorted(when for which, when in known.marks if which is mark)
        for when in alike[:-MOST_OF_A_MARK]:
            del known.marks[mark, when]
        self.version += 1

    def retract(self, part: str, mark: Mark, at: float) -> None:
        """Take a mark back: it turned out to be no fault of the part."""
        known = self._parts.get(part)
        if known is not None and known.marks.pop((mark, at), None) is not None:
            self.version += 1

    def rename_node(self, old: str, new: str) -> None:
        """A node is called `new` from now on; what is on record of it and its ports stays."""
        for name, part in list(self._parts.items()):
            kind, _, key = name.partition(":")
            part.refs = {(k, _renamed(one, old, new)): None for k, one in part.refs}
            if kind != EntityKind.GPU.value and _renamed(key, old, new) != key:
                self._parts[f"{kind}:{_renamed(key, old, new)}"] = self._parts.pop(name)
        self.version += 1

    def marks_of(self, part: str) -> tuple[tuple[Mark, float, float], ...]:
        """What is on record of a part: mark, epoch seconds and weight, oldest first."""
        known = self._parts.get(part)
        if known is None:
            return ()
        found = ((mark, at, weight) for (mark, at), weight in known.marks.items())
        return tuple(sorted(found, key=lambda one: (one[1], one[0])))

    def reading(self) -> LedgerReading:
        """All of it as arrays, for features."""
        parts = [part for part in self._parts.values() if part.marks]
        rows = [
            (number, _CODE[mark], at, weight)
            for number, part in enumerate(parts)
            for (mark, at), weight in part.marks.items()
        ]
        keys: dict[EntityKind, list[str]] = {}
        numbers: dict[EntityKind, list[int]] = {}
        for number, part in enumerate(parts):
            for kind, key in part.refs:
                keys.setdefault(kind, []).append(key)
                numbers.setdefault(kind, []).append(number)
        part_of, mark, at, weight = zip(*rows, strict=True) if rows else ((), (), (), ())
        return LedgerReading(
            keys={kind: tuple(named) for kind, named in keys.items()},
            parts={kind: np.array(held, np.int64) for kind, held in numbers.items()},
            part=np.array(part_of, np.int64),
            mark=np.array(mark, np.int64),
            at=np.array(at, np.float64),
            weight=np.array(weight, np.float64),
            size=len(parts),
        )

    def export(self, now: float) -> bytes:
        """All that is on record and not older than KEPT_S at `now` (epoch seconds)."""
        kept: dict[str, _Part] = {}
        columns: dict[str, list[float]] = {name: [] for name, _ in _FIELDS}
        for name, part in self._parts.items():
            young = {key: w for key, w in part.marks.items() if now - key[1] <= KEPT_S}
            if not young:
                continue
            for (mark, at), weight in young.items():
                row = {"part": len(kept), "mark": _CODE[mark], "at": at, "weight": weight}
                for column, value in row.items():
                    columns[column].append(value)
            kept[name] = part
        header = {
            "marks": [mark.value for mark in _MARKS],
            "parts": [
                [name, [[kind.value, key] for kind, key in part.refs]]
                for name, part in kept.items()
            ],
            "count": len(columns["at"]),
        }
        head = json.dumps(header, separators=(",", ":")).encode()
        arrays = b"".join(np.array(columns[name], form).tobytes() for name, form in _FIELDS)
        checksum = zlib.crc32(arrays, zlib.crc32(head))
        return b"".join([_PREFIX.pack(_MAGIC, _VERSION, checksum, len(head)), head, arrays])

    @classmethod
    def imported(cls, blob: bytes) -> PartLedger:
        """The ledger that `export` gave.

        Raises:
            LedgerFormError: Not a ledger, damaged, or of another form.
        """
        header, content = _checked(blob)
        ledger = cls()
        try:
            for name, refs in header["parts"]:
                known = {(EntityKind(kind), str(key)): None for kind, key in refs}
                ledger._parts[str(name)] = _Part(refs=known)
            parts, marks = list(ledger._parts.values()), [Mark(one) for one in header["marks"]]
            for part, mark, at, weight in _rows(content, int(header["count"])):
                parts[int(part)].marks[marks[int(mark)], float(at)] = float(weight)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise LedgerFormError(f"a part is not as it should be ({error})") from error
        return ledger


def _renamed(key: str, old: str, new: str) -> str:
    named = key == old or key.startswith(f"{old}/")
    return new + key[len(old) :] if named else key


def _checked(blob: bytes) -> tuple[dict[str, Any], bytes]:
    if len(blob) < _PREFIX.size or not blob.startswith(_MAGIC):
        raise LedgerFormError("not written by gpuwarden")
    _, version, checksum, head_size = _PREFIX.unpack_from(blob)
    if version != _VERSION:
        raise LedgerFormError(f"form {version}, this program reads form {_VERSION}")
    body = blob[_PREFIX.size :]
    if zlib.crc32(body) != checksum:
        raise LedgerFormError("damaged or cut short (the checksum does not match)")
    header: dict[str, Any] = json.loads(body[:head_size])
    return header, body[head_size:]


def _rows(content: bytes, count: int) -> Iterator[tuple[Any, ...]]:
    columns, offset = [], 0
    for _, form in _FIELDS:
        column = np.frombuffer(content, form, count, offset)
        offset += column.nbytes
        columns.append(column.tolist())
    return zip(*columns, strict=True)
