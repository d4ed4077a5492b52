"""What sweep detectors remember from one sweep to the next.

Two sorts of things: planes hold one number an entity and follow the rows of the views, however
entities come, go and move; tables hold a few numbers a scope (a model, a pool), such as a learnt
limit. Both are kept a detector and a name. The owner (a server's judge, a backtest) keeps one
memory for its life and may store its bytes.

Bytes: b"GWSM", version (u16), CRC-32 of the rest (u32), length of the header (u32), header (JSON),
then the arrays one after the other, little-endian, in the header's order.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from gpuwarden_verdict.entities import EntityRef, renamed_ref
from gpuwarden_verdict.windows import KindView
from gpuwarden_wire.metrics import EntityKind

AnyArray = npt.NDArray[Any]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
_PlaneKey = tuple[str, str]  # detector, name

T = TypeVar("T")

NO_CODE = -1
"""Code of an entity without a word."""

WAITING_KEPT_S = 30 * 86_400.0
"""What was imported and is not claimed for so long is forgotten."""

_MAGIC = b"GWSM"
_VERSION = 1
_PREFIX = struct.Struct("<4sHII")
_MEND = "delete it: detectors learn anew what it held"
_FLOATS = ("<f4", "<f8")


class MemoryFormError(Exception):
    """Bytes that are no memory of sweeps; the message says why and what to do."""

    def __init__(self, why: str) -> None:
        super().__init__(f"memory of sweeps: {why}; {_MEND}")


@dataclass(slots=True)
class _KindMemory:
    """Planes of one kind, in the row order of the view that was seen last.

    Attributes:
        seen: The list of entities of that view, as it was handed over.
        refs: Its entities; a copy, since a live view's list grows in place.
        planes: By detector and name, shape (N,).
        initial: What a new entity starts at, by detector and name.
        waiting: Imported entities that did not go since: row in their planes by key.
        stored: Their planes; a detector that is blind so far has not asked for its own yet.
        seen_at: When a sweep last saw each of their rows, epoch seconds.
        asked_at: When a sweep last asked for each of their planes, epoch seconds.
    """

    seen: Sequence[EntityRef] = ()
    refs: list[EntityRef] = field(default_factory=list)
    planes: dict[_PlaneKey, AnyArray] = field(default_factory=dict)
    initial: dict[_PlaneKey, float] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)
    stored: dict[_PlaneKey, AnyArray] = field(default_factory=dict)
    seen_at: list[float] = field(default_factory=list)
    asked_at: dict[_PlaneKey, float] = field(default_factory=dict)


@dataclass(slots=True)
class _Codes:
    """Codes of one name, and what they were made of: see `SweepMemory.codes`."""

    seen: Sequence[EntityRef]
    refs: list[EntityRef]
    keys: list[str]
    source: object = None
    codes: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    words: list[str] = field(default_factory=list)

    def take(self, words: Mapping[str, str] | Callable[[str], str]) -> None:
        """Number the words; jobs change often, so that no Python runs for each entity."""
        word_of = words.get if isinstance(words, Mapping) else words
        named = list(map(word_of, self.keys))
        self.words = sorted(word for word in set(named) if word)
        numbers: dict[str | None, int] = {word: n for n, word in enumerate(self.words)}
        numbers |= {"": NO_CODE, None: NO_CODE}
        self.codes = np.fromiter(map(numbers.__getitem__, named), np.int64, len(named))


class SweepMemory:
    """Planes and tables of sweep detectors. Used by one thread, during sweeps."""

    def __init__(self) -> None:
        """Make an empty one."""
        self._kinds: dict[EntityKind, _KindMemory] = {}
        self._tables: dict[tuple[str, str, str], F64] = {}
        self._swept_at: dict[str, float] = {}
        self._codes: dict[str, _Codes] = {}
        self._lasting: dict[Hashable, tuple[I64, Any]] = {}
        self._sweep: object = None
        self._scratch: dict[Any, Any] = {}

    def plane(
        self,
        view: KindView,
        detector: str,
        name: str,
        initial: float = 0.0,
        dtype: npt.DTypeLike = np.float32,
    ) -> AnyArray:
        """Numbers of a detector, one an entity of the view; write into it to remember.

        Ask for it in every sweep: the array of a former sweep is outdated once entities came, went
        or moved. An entity that went and comes back starts anew.

        Args:
            view: All entities of one kind.
            detector: Whose it is.
            name: Which of its planes.
            initial: What an entity starts at.
            dtype: float32 or float64.

        Returns:
            Shape (N,), in row order of the view.
        """
        if not len(view):
            return np.empty(0, dtype)
        kind = self._kinds.setdefault(view.refs[0].kind, _KindMemory())
        _follow(kind, view.refs)
        key = detector, name
        plane = kind.planes.get(key)
        if plane is None:
            plane = np.full(len(view), initial, dtype)
            kind.initial[key] = initial
            kind.planes[key] = plane
            _take_over_waiting(kind, key, kind.refs, plane)
        return plane

    def table(self, detector: str, name: str, scope: str, size: int) -> F64:
        """Numbers of a detector for one scope; write into it to remember.

        Args:
            detector: Whose it is.
            name: Which of its tables.
            scope: A model, a pool, or what the detector tells apart.
            size: How many numbers; where another size is kept, it starts anew.

        Returns:
            float64, shape (size,), NaN before they were first written.
        """
        key = detector, name, scope
        kept = self._tables.get(key)
        if kept is None or kept.size != size:
            kept = self._tables[key] = np.full(size, np.nan)
        return kept

    def written(self, detector: str, name: str, scope: str) -> F64 | None:
        """What `table` gives, None where nothing was written; callable from any thread."""
        return self._tables.get((detector, name, scope))

    def tables(self) -> Mapping[tuple[str, str, str], F64]:
        """All tables, by detector, name and scope."""
        return self._tables

    def codes(
        self, view: KindView, name: str, words: Mapping[str, str] | Callable[[str], str]
    ) -> I64:
        """A number for each entity's word, made anew only when entities or words change.

        Codes follow the words' alphabet, so that equal fleets get equal codes. Not exported.

        Args:
            view: All entities of one kind.
            name: Which codes; one name for one kind.
            words: Word by key of an entity, never changed in place; or a function that gives it,
                always the same for the same key. "" and no entry are no word.

        Returns:
            int64, shape (N,), NO_CODE where there is no word.
        """
        kept, refs = self._codes.get(name), view.refs
        if (
            kept is None
            or len(kept.refs) != len(refs)
            or not (kept.seen is refs or kept.refs == refs)
        ):
            kept = self._codes[name] = _Codes(refs, list(refs), [ref.key for ref in refs])
        kept.seen = refs
        if kept.source is not words and kept.source != words:
            kept.take(words)
        kept.source = words
        return kept.codes

    def words(self, name: str) -> Sequence[str]:
        """The words of `codes` made last under a name, by code."""
        return self._codes[name].words

    def lasting(self, key: Hashable, codes: I64, make: Callable[[I64], T]) -> T:
        """What is made of codes that seldom change, made anew only when they do. Not exported.

        Args:
            key: What it is.
            codes: int64, shape (N,).
            make: Makes it of the codes, and keeps no hold of them.
        """
        kept = self._lasting.get(key)
        if kept is None or not np.array_equal(kept[0], codes):
            kept = self._lasting[key] = codes.copy(), make(codes)
        return cast("T", kept[1])

    def scratch(self, sweep: object) -> dict[Any, Any]:
        """What detectors of one sweep share with each other; empty again at the next.

        Args:
            sweep: Tells sweeps apart, by identity: its `FleetContext`.
        """
        if self._sweep is not sweep:
            self._sweep = sweep
            self._scratch = {}
        return self._scratch

    def end_sweep(self) -> None:
        """Let go of what detectors shared in it: of a large fleet it is hundreds of megabytes."""
        self._sweep, self._scratch = None, {}

    def elapsed_s(self, detector: str, now: float) -> float:
        """Seconds since the detector's sweep before this one; 0 at its first, never below 0.

        Call it once a sweep: `now` (epoch seconds) is remembered.
        """
        before = self._swept_at.get(detector, now)
        self._swept_at[detector] = now
        return max(0.0, now - before)

    def rename_node(self, old: str, new: str) -> None:
        """A node is called `new` from now on; what is remembered of it and its devices stays."""
        for kind in self._kinds.values():
            kind.refs = [renamed_ref(ref, old, new) for ref in kind.refs]
            kind.seen = ()
            kind.waiting = {_renamed_key(k, old, new): row for k, row in kind.waiting.items()}

    def export(self) -> bytes:
        """All that is remembered of entities of the last views, and all tables.

        What was imported and is not claimed yet is handed on, for WAITING_KEPT_S.
        """
        content: list[bytes] = []
        now = max(self._swept_at.values(), default=0.0)
        header = {
            "kinds": [_described(kind, one, content, now) for kind, one in self._kinds.items()],
            "tables": [[*key, _append(t, content)] for key, t in self._tables.items()],
            "swept_at": self._swept_at,
        }
        head = json.dumps(header, separators=(",", ":")).encode()
        checksum = 0
        for piece in (head, *content):
            checksum = zlib.crc32(piece, checksum)
        return b"".join([_PREFIX.pack(_MAGIC, _VERSION, checksum, len(head)), head, *content])

    @classmethod
    def imported(cls, blob: bytes) -> SweepMemory:
        """The memory that `export` gave.

        Raises:
            MemoryFormError: Not a memory, damaged, or of another form.
        """
        header, content = _checked(blob)
        memory = cls()
        reader = _Reader(content)
        try:
            memory._swept_at = dict(header["swept_at"])
            at = max(memory._swept_at.values(), default=0.0)
            for described in header["kinds"]:
                kind = EntityKind(described["kind"])
                memory._kinds[kind] = _imported_kind(described, reader, at)
            for detector, name, scope, form in header["tables"]:
                memory._tables[detector, name, scope] = reader.array(form)
        except (KeyError, TypeError, ValueError) as error:
            raise MemoryFormError(f"a part is not as it should be ({error})") from error
        return memory


def _renamed_key(key: str, old: str, new: str) -> str:
    named = key == old or key.startswith(f"{old}/")
    return new + key[len(old) :] if named else key


def _follow(kind: _KindMemory, refs: Sequence[EntityRef]) -> None:
    """Bring planes into the row order of `refs`; costs nothing where nothing changed."""
    if refs is kind.seen and len(refs) == len(kind.refs):
        return
    former, kind.seen = kind.refs, refs
    if former == refs:  # compares objects first: the same entities cost a millisecond in 80,000
        return
    kind.refs = list(refs)
    if kind.waiting:
        for gone in {ref.key for ref in former} - {ref.key for ref in refs}:
            kind.waiting.pop(gone, None)  # it went: it starts anew when it comes back
    if not kind.planes:
        return
    index = {ref.key: row for row, ref in enumerate(former)}
    rows = np.fromiter((index.get(ref.key, -1) for ref in kind.refs), np.int64, len(kind.refs))
    known, new = rows >= 0, [kind.refs[row] for row in np.flatnonzero(rows < 0).tolist()]
    for key, old in kind.planes.items():
        plane = np.full(rows.size, kind.initial[key], old.dtype)
        plane[known] = old[rows[known]]
        if new and kind.waiting:
            fresh = plane[~known]
            _take_over_waiting(kind, key, new, fresh)
            plane[~known] = fresh
        kind.planes[key] = plane


def _take_over_waiting(
    kind: _KindMemory, key: _PlaneKey, refs: Sequence[EntityRef], plane: AnyArray
) -> None:
    """Fill `plane`, one number an entity of `refs`, with what was imported for them."""
    stored = kind.stored.get(key)
    if stored is None:
        return
    rows = np.fromiter((kind.waiting.get(ref.key, -1) for ref in refs), np.int64, len(refs))
    plane[rows >= 0] = stored[rows[rows >= 0]]


def _described(
    kind: EntityKind, memory: _KindMemory, content: list[bytes], now: float
) -> dict[str, Any]:
    """One kind: the rows of its last view, and after them those that wait."""
    keys = [ref.key for ref in memory.refs]
    known, since = set(keys), now - WAITING_KEPT_S
    waiting = {
        key: row
        for key, row in memory.waiting.items()
        if key not in known and memory.seen_at[row] >= since
    }
    asked_at = {key: at for key, at in memory.asked_at.items() if at >= since}
    asked_at |= dict.fromkeys(memory.planes, now)
    rows = np.array(list(waiting.values()), np.int64)
    return {
        "kind": kind.value,
        "keys": [*keys, *waiting],
        "planes": [
            [*key, memory.initial[key], _append(_whole(memory, key, rows), content)]
            for key in asked_at
        ],
        "waiting_seen_at": [memory.seen_at[row] for row in waiting.values()],
        "asked_at": list(asked_at.values()),
    }


def _whole(memory: _KindMemory, key: _PlaneKey, waiting: I64) -> AnyArray:
    """A plane of the rows of the last view, and after them of rows of what was imported."""
    plane, stored, initial = memory.planes.get(key), memory.stored.get(key), memory.initial[key]
    if stored is None:
        assert plane is not None
        return np.concatenate([plane, np.full(waiting.size, initial, plane.dtype)])
    if plane is None:
        plane = np.full(len(memory.refs), initial, stored.dtype)
        _take_over_waiting(memory, key, memory.refs, plane)
    return np.concatenate([plane, stored[waiting].astype(plane.dtype)])


def _imported_kind(described: Mapping[str, Any], reader: _Reader, at: float) -> _KindMemory:
    """What `_described` gave; `at` (epoch seconds) is when what did not wait was last seen."""
    kind, keys, planes = _KindMemory(), described["keys"], described["planes"]
    kind.waiting = {key: row for row, key in enumerate(keys)}
    waited = described.get("waiting_seen_at", [])  # not in what former releases stored
    kind.seen_at = [at] * (len(keys) - len(waited)) + waited
    asked_at = described.get("asked_at", [at] * len(planes))
    for (detector, name, initial, form), asked in zip(planes, asked_at, strict=True):
        key = detector, name
        kind.initial[key], kind.stored[key] = initial, reader.array(form)
        kind.asked_at[key] = asked
    return kind


def _append(array: AnyArray, content: list[bytes]) -> list[Any]:
    plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    content.append(plain.tobytes())
    return [plain.dtype.str, plain.size]


def _checked(blob: bytes) -> tuple[dict[str, Any], memoryview]:
    if len(blob) < _PREFIX.size or not blob.startswith(_MAGIC):
        raise MemoryFormError("not written by gpuwarden")
    _, version, checksum, head_size = _PREFIX.unpack_from(blob)
    if version != _VERSION:
        raise MemoryFormError(f"form {version}, this program reads form {_VERSION}")
    body = memoryview(blob)[_PREFIX.size :]
    if zlib.crc32(body) != checksum:
        raise MemoryFormError("damaged or cut short (the checksum does not match)")
    header: dict[str, Any] = json.loads(bytes(body[:head_size]))
    return header, body[head_size:]


class _Reader:
    """Takes arrays one after the other."""

    def __init__(self, content: memoryview) -> None:
        self._content = content
        self._offset = 0

    def array(self, form: Sequence[Any]) -> AnyArray:
        """The next one."""
        dtype, size = form
        if dtype not in _FLOATS:
            raise ValueError(f"{dtype} is no float")
        flat = np.frombuffer(self._content, np.dtype(dtype), int(size), self._offset)
        self._offset += flat.nbytes
        return flat.copy()
