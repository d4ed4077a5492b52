"""A Prometheus' own history as a recording: raw samples over its HTTP API, a stretch at a time.

Raw samples (a range selector), not `query_range`: that one repeats a series' last number for five
minutes after it ended, in which a GPU that fell off would still be there, and moves every sample to
the steps of the query.
"""

from __future__ import annotations

import base64
import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np

from gpuwarden_models.names import KEY_COLUMNS
from gpuwarden_models.recording import History, Tables
from gpuwarden_models.recording_series import Block, Catalogue, Slot, Span, may_tell
from gpuwarden_models.recording_tables import RecordingError, read_fleet, read_jobs
from gpuwarden_wire.metrics import EntityKind

_TIMEOUT_S = 120.0
_NUMBERS_A_QUERY = 1_000_000
_QUICKEST_SCRAPE_S = 5.0
_NAMES_A_QUERY = 40
_SHORTEST_S = 60.0
_TOO_MUCH = ("too many samples", "exceed", "limit", "timed out", "timeout")
_MOUNT_POINTS = ("node_mountstats_nfs_mountpoint_info", "node_filesystem_size_bytes")


class _Series(msgspec.Struct, frozen=True):
    metric: dict[str, str]
    values: list[tuple[float, str]] = []


class _Matrix(msgspec.Struct, frozen=True):
    result: list[_Series]


class _MatrixAnswer(msgspec.Struct, frozen=True):
    data: _Matrix


class _LabelsAnswer(msgspec.Struct, frozen=True):
    data: list[dict[str, str]]


class _NamesAnswer(msgspec.Struct, frozen=True):
    data: list[str]


_Answer = TypeVar("_Answer")


class _Refused(RecordingError):
    """Prometheus would not answer; a shorter stretch of time may do."""


def read_prometheus(
    url: str,
    start: float,
    end: float,
    tables: Tables,
    *,
    kinds: Sequence[EntityKind] = tuple(KEY_COLUMNS),
    interval_s: float | None = None,
) -> History:
    """What a Prometheus, or another that has its query API, kept of a fleet.

    Args:
        url: Its address; "http://user:password@host:9090/prefix" where it asks for one.
        start: Epoch seconds.
        end: Epoch seconds.
        tables: What is known beside the metrics; see `tables_beside`.
        kinds: What to read.
        interval_s: Time between frames, None for the usual time between scrapes.

    Raises:
        RecordingError: It does not answer, or has nothing that we know; says what to do.
    """
    if not end > start:
        raise RecordingError(f"the end ({end:.0f}) is not after the start ({start:.0f})")
    source = PrometheusSource(url, start, end)
    catalogue = Catalogue(tuple(kinds))
    span = source.survey(catalogue)
    if span is None:
        why = f"series {catalogue.nameless} names no node" if catalogue.nameless else "none"
        raise RecordingError(
            f"{source.name}: no series from {start:.0f} to {end:.0f} of dcgm-exporter or"
            f" node_exporter that names its node ({why}); look at the times and at its targets"
        )
    return History(source, catalogue, span, tables, interval_s)


def tables_beside(fleet: Path | None, jobs: Path | None, kernel_logs: Path | None) -> Tables:
    """What a Prometheus does not know, from files of a recording's form.

    Raises:
        RecordingError: A file is not there or cannot be read.
    """
    for path in (fleet, jobs, kernel_logs):
        if path is not None and not path.exists():
            raise RecordingError(f"{path}: no such file or folder; mend it, or leave it out")
    return Tables(
        fleet=read_fleet(fleet) if fleet else (),
        jobs=read_jobs(jobs) if jobs else (),
        kernel=kernel_logs or Path("no-kernel-logs"),
    )


class PrometheusSource:
    """Samples of one Prometheus.

    Attributes:
        name: Its address without credentials.
    """

    def __init__(self, url: str, start: float, end: float) -> None:
        """Nothing is asked yet.

        Raises:
            RecordingError: No address.
        """
        parts = urllib.parse.urlsplit(url if "//" in url else f"//{url}", "http")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise RecordingError(f"{parts.hostname or 'the address'}: give http://HOST:9090")
        host = parts.netloc.rpartition("@")[2]
        self.name = f"{parts.scheme}://{host}{parts.path.rstrip('/')}"
        self._headers: dict[str, str] = {}
        if parts.username is not None:
            words = (urllib.parse.unquote(word or "") for word in (parts.username, parts.password))
            token = base64.b64encode(":".join(words).encode()).decode()
            self._headers["Authorization"] = f"Basic {token}"
        self._start, self._end = start, end
        self._counts: dict[str, int] = {}
        self._slots: dict[frozenset[tuple[str, str]], tuple[Slot, ...]] = {}

    def survey(self, catalogue: Catalogue) -> Span | None:
        """Ask for the names and labels of all series."""
        times = {"start": f"{self._start:.3f}", "end": f"{self._end:.3f}"}
        listed = self._ask("label/__name__/values", times, _NamesAnswer)
        names = sorted(name for name in listed.data if may_tell(name) or name in _MOUNT_POINTS)
        for first in range(0, len(names), _NAMES_A_QUERY):
            chosen = names[first : first + _NAMES_A_QUERY]
            asked = {**times, "match[]": _selector(chosen)}
            for labels in self._ask("series", asked, _LabelsAnswer).data:
                self._note(labels, catalogue)
        if not self._counts:
            return None
        return Span(self._start, self._end, sum(self._counts.values()))

    def blocks(self, begin: float, until: float) -> list[Block]:
        """Samples of a stretch of time."""
        begin, until = max(begin, self._start), min(until, self._end + 0.001)
        if until <= begin:
            return []
        return [
            block
            for names in self._groups(until - begin)
            for series in self._matrix(names, begin, until)
            for block in self._blocks(series, begin, until)
        ]

    def _note(self, labels: dict[str, str], catalogue: Catalogue) -> None:
        key = frozenset(labels.items())
        name = labels.pop("__name__", "")
        slots = catalogue.slots(name, labels)
        if slots:
            self._slots[key] = slots
            self._counts[name] = self._counts.get(name, 0) + 1

    def _groups(self, span_s: float) -> Iterator[list[str]]:
        """Names that one query can ask for together."""
        group: list[str] = []
        numbers = 0.0
        for name, count in sorted(self._counts.items()):
            own = count * max(span_s / _QUICKEST_SCRAPE_S, 1.0)
            if group and (numbers + own > _NUMBERS_A_QUERY or len(group) >= _NAMES_A_QUERY):
                yield group
                group, numbers = [], 0.0
            group.append(name)
            numbers += own
        if group:
            yield group

    def _matrix(self, names: Sequence[str], begin: float, until: float) -> Iterator[_Series]:
        # A range may be open or closed at its beginning: a little more is asked for than wanted.
        span_ms = round((until - begin) * 1000) + 1
        query = {"query": f"{_selector(names)}[{span_ms}ms]", "time": f"{until:.3f}"}
        try:
            answer = self._ask("query", query, _MatrixAnswer)
        except _Refused:
            if until - begin < _SHORTEST_S:
                raise
            middle = (begin + until) / 2
            yield from self._matrix(names, begin, middle)
            yield from self._matrix(names, middle, until)
        else:
            yield from answer.data.result

    def _blocks(self, series: _Series, begin: float, until: float) -> Iterator[Block]:
        slots = self._slots.get(frozenset(series.metric.items()), ())
        if not slots:
            return
        at = np.array([moment for moment, _ in series.values], dtype=np.float64)
        value = np.array([number for _, number in series.values]).astype(np.float64)
        there = (at >= begin) & (at < until) & ~np.isnan(value)
        at, value = at[there], value[there]
        for slot in slots:
            kept = value if np.isnan(slot.constant) else np.full(at.size, slot.constant)
            yield Block(slot.channel, np.full(at.size, slot.row, dtype=np.int64), at, kept)

    def _ask(self, path: str, fields: Mapping[str, str], form: type[_Answer]) -> _Answer:
        body = urllib.parse.urlencode(fields).encode()
        request = urllib.request.Request(f"{self.name}/api/v1/{path}", headers=self._headers)
        if path.startswith("label/"):  # takes GET only
            request.full_url = f"{request.full_url}?{body.decode()}"
        else:
            request.data = body
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
                return msgspec.json.decode(response.read(), type=form)
        except urllib.error.HTTPError as error:
            raise self._refusal(error) from error
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise RecordingError(
                f"{self.name}: {reason}; is it the address of a Prometheus?"
            ) from error
        except msgspec.DecodeError as error:
            raise RecordingError(
                f"{self.name}/api/v1/{path}: the answer is none of Prometheus ({error})"
            ) from error

    def _refusal(self, error: urllib.error.HTTPError) -> RecordingError:
        try:
            said = str(json.loads(error.read()).get("error", error.reason))
        except (ValueError, AttributeError):
            said = str(error.reason)
        text = f"{self.name}: {error.code} {said[:300]}"
        if any(word in said for word in _TOO_MUCH):
            return _Refused(f"{text}; raise its --query.max-samples, or read less at once")
        mend = "put user and password into the address" if error.code == 401 else "look at its log"
        return RecordingError(f"{text}; {mend}")


def _selector(names: Sequence[str]) -> str:
    return '{__name__=~"' + "|".join(names) + '"}'
