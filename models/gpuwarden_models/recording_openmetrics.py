"""OpenMetrics text with timestamps, read line by line once and kept by time on disk.

A file may hold its samples series after series or moment after moment, and be larger than memory:
one pass turns it into small binary files of a quarter of an hour each, from which any stretch of
time is read again. prometheus_client's parser makes objects of all lines, which takes many times as
long (bench/recording.py), and does not say which line it cannot read.
"""

from __future__ import annotations

import gzip
import shutil
import tempfile
import weakref
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, NoReturn

import numpy as np
from numpy.typing import NDArray

from gpuwarden_exporters.exposition import parse_series
from gpuwarden_models.recording_series import Block, Catalogue, Slot, Span
from gpuwarden_models.recording_tables import RecordingError
from gpuwarden_models.recording_times import check_times

_BUCKET_S = 900.0
_READ_BYTES = 8 << 20
_RECORD = np.dtype([("series", "<i4"), ("at", "<f8"), ("value", "<f8")])
_END = b"# EOF"
_NOTHING = -1


class OpenMetricsSource:
    """All OpenMetrics files of a recording."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._folder = Path(tempfile.mkdtemp(prefix="gpuwarden-recording-"))
        # When the source is no longer used, or the process ends.
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._series: dict[bytes, int] = {}
        self._slots: list[tuple[Slot, ...]] = []
        self._known = 0
        self._first, self._last = np.inf, -np.inf

    def survey(self, catalogue: Catalogue) -> Span | None:
        """Read every file once."""
        for path in self._paths:
            self._take(path, catalogue)
        if self._known == 0:
            return None
        return Span(self._first, self._last, len(self._slots))

    def blocks(self, begin: float, until: float) -> list[Block]:
        """Samples of a stretch of time."""
        parts = [np.empty(0, dtype=_RECORD)]
        for bucket in range(_bucket(begin), _bucket(until) + 1):
            path = self._path(bucket)
            if path.exists():
                part = np.fromfile(path, dtype=_RECORD)
                parts.append(part[(part["at"] >= begin) & (part["at"] < until)])
        return _blocks(np.concatenate(parts), self._slots)

    def _take(self, path: Path, catalogue: Catalogue) -> None:
        reader = _Reader(path)
        for lines in reader.chunks():
            self._take_lines(reader, lines, catalogue)
        reader.check_end()

    def _take_lines(self, reader: _Reader, lines: list[bytes], catalogue: Catalogue) -> None:
        series: list[int] = []
        stamps: list[bytes] = []
        values: list[bytes] = []
        known = self._series
        for place, line in enumerate(lines):
            parts = line.rsplit(b" ", 2)
            number = known.get(parts[0])
            if number is None:
                if not line or line.startswith(b"#"):
                    continue
                parts = reader.sample(place, line).rsplit(b" ", 2)
                number = self._number(reader, place, parts[0], catalogue)
            if number >= 0:
                if len(parts) != 3:
                    reader.refuse(place, line, "it has no value or no timestamp behind the series")
                series.append(number)
                values.append(parts[1])
                stamps.append(parts[2])
        self._keep(reader, series, stamps, values)

    def _number(self, reader: _Reader, place: int, series: bytes, catalogue: Catalogue) -> int:
        """Number of a series, new where it has none; _NOTHING where it means nothing to us."""
        if (number := self._series.get(series)) is not None:
            return number
        parsed = parse_series(series.decode("utf-8", errors="replace"))
        if parsed is None:
            reader.refuse(place, series, "not a series")
        slots = catalogue.slots(*parsed)
        number = len(self._slots) if slots else _NOTHING
        if slots:
            self._slots.append(slots)
        self._series[series] = number
        return number

    def _keep(
        self, reader: _Reader, series: list[int], stamps: list[bytes], values: list[bytes]
    ) -> None:
        if not series:
            return
        record = np.empty(len(series), dtype=_RECORD)
        record["series"] = series
        record["at"] = reader.numbers(stamps)
        record["value"] = reader.numbers(values)
        check_times(record["at"], lambda row: reader.place_of(stamps[row], "of time"))
        record = record[~np.isnan(record["value"])]  # a marker of staleness, or no number
        if record.size == 0:
            return
        self._known += record.size
        self._first = min(self._first, float(record["at"].min()))
        self._last = max(self._last, float(record["at"].max()))
        bucket = np.floor(record["at"] / _BUCKET_S).astype(np.int64)
        order = np.argsort(bucket, kind="stable")
        cuts = np.flatnonzero(np.diff(bucket[order])) + 1
        for part in np.split(order, cuts):
            with self._path(int(bucket[part[0]])).open("ab") as file:
                file.write(record[part].tobytes())

    def _path(self, bucket: int) -> Path:
        return self._folder / str(bucket)


class _Reader:
    """Lines of one file in chunks, and where in it we are."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._passed = 0
        self._lines: list[bytes] = []
        self._ended = False

    def chunks(self) -> Iterator[list[bytes]]:
        """Whole lines, some megabytes at a time.

        Raises:
            RecordingError: The file breaks off or cannot be unpacked.
        """
        rest = b""
        try:
            with _opened(self._path) as file:
                while chunk := file.read(_READ_BYTES):
                    whole = _split(rest + chunk)
                    rest = whole.pop()
                    yield from self._chunk(whole)
        except (OSError, EOFError, zlib.error) as error:
            raise RecordingError(
                f"{self._path}: {error}; write it again, or move it out of the recording"
            ) from error
        if rest:
            yield from self._chunk([rest])

    def _chunk(self, lines: list[bytes]) -> Iterator[list[bytes]]:
        if self._ended and any(lines):
            self.refuse(0, next(line for line in lines if line), "it stands behind # EOF")
        if _END in lines:
            end = lines.index(_END)
            self._ended = True
            if any(behind := lines[end + 1 :]):
                self.refuse(end + 1, behind[0], "it stands behind # EOF")
        self._lines = lines
        yield lines
        self._passed += len(lines)

    def sample(self, place: int, line: bytes) -> bytes:
        """A line that is not the quick case, in its form: without blanks around and exemplar."""
        bare = line.strip().split(b" # ")[0] if b" # {" in line else line.strip()
        series, _, rest = bare.rpartition(b"}")
        words = rest.split() if series else bare.split()[1:]
        if len(words) == 1:
            self.refuse(place, line, "it has no timestamp")
        if len(words) != 2:
            self.refuse(place, line, "not a series, a value and a time in seconds")
        head = series + b"}" if series else bare.split()[0]
        return b" ".join((head, *words))

    def numbers(self, words: Sequence[bytes]) -> NDArray[np.float64]:
        """Numbers as they are written.

        Raises:
            RecordingError: One is none.
        """
        try:
            return np.array(words).astype(np.float64)
        except ValueError:
            for word in words:
                try:
                    float(word)
                except ValueError:
                    raise RecordingError(self.place_of(word, "no number")) from None
            raise

    def place_of(self, word: bytes, why: str) -> str:
        """Where in this chunk a word stands as value or time, for a message."""
        for place, line in enumerate(self._lines):
            if word in line.split()[-2:]:
                return (
                    f"{self._path}, line {self._passed + place + 1}: {_short(line)}: {why}"
                    f" ({_short(word)}); mend the line, or take it out"
                )
        return f"{self._path}: {why} ({_short(word)})"

    def refuse(self, place: int, line: bytes, why: str) -> NoReturn:
        """Raise the error that names a line of the present chunk."""
        raise RecordingError(
            f"{self._path}, line {self._passed + place + 1}: {_short(line)}: {why};"
            " mend the line, or take it out"
        )

    def check_end(self) -> None:
        """Raise where the file lacks its last line: it was cut off."""
        if not self._ended:
            raise RecordingError(
                f"{self._path}: does not end with # EOF, so it was cut off after line"
                f" {self._passed}; write it again, or add that line if it is whole"
            )


def _split(text: bytes) -> list[bytes]:
    return (text.replace(b"\r\n", b"\n") if b"\r" in text else text).split(b"\n")


def _opened(path: Path) -> gzip.GzipFile | IO[bytes]:
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")


def _short(text: bytes) -> str:
    return text[:160].decode("utf-8", errors="replace")


def _bucket(at: float) -> int:
    return int(at // _BUCKET_S)


def _blocks(record: NDArray[np.void], slots: Sequence[tuple[Slot, ...]]) -> list[Block]:
    """Samples by channel."""
    most = max((len(one) for one in slots), default=0)
    found: list[Block] = []
    for number in range(most):
        channel = np.array([_of(one, number, "channel") for one in slots], dtype=np.int64)
        row = np.array([_of(one, number, "row") for one in slots], dtype=np.int64)
        constant = np.array([_of(one, number, "constant") for one in slots], dtype=np.float64)
        of_sample = channel[record["series"]]
        order = np.argsort(of_sample, kind="stable")
        cuts = np.flatnonzero(np.diff(of_sample[order])) + 1
        for part in np.split(order, cuts):
            if part.size and of_sample[part[0]] >= 0:
                series = record["series"][part]
                said = constant[series]
                value = np.where(np.isnan(said), record["value"][part], said)
                place = int(of_sample[part[0]])
                found.append(Block(place, row[series], record["at"][part].copy(), value))
    return found


def _of(slots: tuple[Slot, ...], number: int, what: str) -> float:
    if number >= len(slots):
        return -1.0
    slot = slots[number]
    return {"channel": slot.channel, "row": slot.row, "constant": slot.constant}[what]


def openmetrics_files(folder: Path) -> tuple[Path, ...]:
    """OpenMetrics files of a recording, in order of name."""
    metrics = folder / "metrics"
    return tuple(sorted({*metrics.glob("*.om"), *metrics.glob("*.om.gz")}))
