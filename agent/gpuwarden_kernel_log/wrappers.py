"""From a physical line to the kernel messages in it: every wrapper we met, peeled from the left.

Wrappers nest (a container log around journald around dmesg), so peeling goes on until nothing fits.
What a wrapper says (time, uptime, host, who wrote the line) is kept; the innermost time that can be
told wins.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from gpuwarden_kernel_log import stamps
from gpuwarden_kernel_log.event import LineContext

__all__ = ["MAX_LINE", "Message", "decode_line", "split_messages"]

_MAX_JSON = 65536  # a journald record carries some forty fields around its message
MAX_LINE = 8192  # printk cuts a record at 1024 bytes (LOG_LINE_MAX); this leaves room for wrappers
_MAX_PEELS = 12
_MAX_MESSAGES = 64


@dataclass(frozen=True, slots=True)
class Message:
    """One kernel message and what its wrappers said.

    Attributes:
        text: the message.
        observed_at: UTC time; None if unknown.
        uptime_s: the kernel's monotonic seconds; None if unknown.
        host: host name; None if unknown.
        relayed: a user program wrote the line, not the kernel; anybody can write such a line.
    """

    text: str
    observed_at: datetime | None = None
    uptime_s: float | None = None
    host: str | None = None
    relayed: bool = False


_Reader = Callable[[Message, re.Match[str], LineContext], Message]

_ANSI = re.compile(r"\x1b\[[0-9;]{0,16}[A-Za-z]")
_HOST = r"[A-Za-z0-9][\w.:@-]{0,252}"
_LEVELS = r"(?:emerg|alert|crit|err|error|warn|warning|notice|info|debug)"


def _time(kind: Callable[[str, LineContext], datetime | None]) -> _Reader:
    def read(state: Message, found: re.Match[str], context: LineContext) -> Message:
        moment = kind(found["time"], context)
        host = found.groupdict().get("host")
        return replace(state, observed_at=moment or state.observed_at, host=host or state.host)

    return read


def _uptime(state: Message, found: re.Match[str], context: LineContext) -> Message:
    return replace(state, uptime_s=float(found["uptime"]))


def _kmsg(state: Message, found: re.Match[str], context: LineContext) -> Message:
    relayed = state.relayed or _by_program(found["priority"])
    return replace(state, uptime_s=int(found["micros"]) / 1e6, relayed=relayed)


def _epoch(state: Message, found: re.Match[str], context: LineContext) -> Message:
    micros = int(found["seconds"]) * 1_000_000 + int((found["part"] + "000000")[:6])
    return replace(state, observed_at=stamps.from_epoch(micros) or state.observed_at)


def _host(state: Message, found: re.Match[str], context: LineContext) -> Message:
    return replace(state, host=found.groupdict().get("host") or state.host)


def _container(state: Message, found: re.Match[str], context: LineContext) -> Message:
    moment = stamps.from_iso(found["time"], context)
    return replace(state, observed_at=moment or state.observed_at, relayed=True)


def _timed_priority(state: Message, found: re.Match[str], context: LineContext) -> Message:
    return _priority(_time(stamps.from_iso)(state, found, context), found, context)


def _timed_facility(state: Message, found: re.Match[str], context: LineContext) -> Message:
    return _facility(_time(stamps.from_iso)(state, found, context), found, context)


def _local_zone(state: Message, found: re.Match[str], context: LineContext) -> Message:
    moment = stamps.from_named_zone(found["time"], found["zone"], context)
    return replace(state, observed_at=moment or state.observed_at, host=found["host"])


def _program(state: Message, found: re.Match[str], context: LineContext) -> Message:
    return replace(_host(state, found, context), relayed=True)


def _priority(state: Message, found: re.Match[str], context: LineContext) -> Message:
    return replace(state, relayed=state.relayed or _by_program(found["priority"]))


def _by_program(priority: str) -> bool:
    return int(priority) >> 3 != 0  # facility 0 is the kernel; user space is never given it


def _facility(state: Message, found: re.Match[str], context: LineContext) -> Message:
    return replace(state, relayed=state.relayed or found["facility"] != "kern")


def _quoted(state: Message, found: re.Match[str], context: LineContext) -> Message:
    return replace(state, relayed=True)


def _nothing(state: Message, found: re.Match[str], context: LineContext) -> Message:
    return state


def _rule(pattern: str, reader: _Reader) -> tuple[re.Pattern[str], _Reader]:
    return re.compile(pattern), reader


_PEELS: tuple[tuple[re.Pattern[str], _Reader], ...] = (
    # 6,1234,5678901,-;text   6,1234,5678901,c,caller=T12;text   (/dev/kmsg, Documentation/ABI)
    _rule(r"(?P<priority>\d{1,6}),\d{1,20},(?P<micros>\d{1,18}),[^;]{0,80};", _kmsg),
    # <4>1 2025-01-21T04:41:44.28Z node kernel - - - text   (RFC 5424)
    _rule(
        rf"<(?P<priority>\d{{1,3}})>\d (?P<time>{stamps.ISO}) "
        rf"(?P<host>\S{{1,255}}) kernel \S{{1,128}} \S{{1,32}} "
        r"(?:-|\[[^\]]{0,400}\]) ?(?:\ufeff)?",
        _timed_priority,
    ),
    # <6>
    _rule(r"<(?P<priority>\d{1,3})>", _priority),
    # [   84.300463]   [   84.300463] [  T123]
    _rule(r"\[ {0,8}(?P<uptime>\d{1,9}\.\d{1,9})\](?: ?\[ {0,6}[TC]\d{1,10}\])?:?", _uptime),
    # [  +0.000844] (dmesg -d or -H)   [<    0.000005>]   [Jan21 04:41]
    _rule(r"\[ {0,8}(?:\+ {0,8}\d{1,9}\.\d{1,9}|< {0,8}\d{1,9}\.\d{1,9}>)\]", _nothing),
    _rule(r"\[[^\W\d_]{3}\d\d \d\d:\d\d\]", _nothing),
    # [Sun Feb 23 16:24:18 2025]
    _rule(rf"\[(?P<time>{stamps.WEEKDAY})\]", _time(stamps.from_weekday)),
    # 10.0.0.7: kern: warning: [2026-04-22T21:27:51.29Z]:   (talosctl dmesg)
    _rule(
        rf"(?:(?P<host>\S{{1,255}}): )?(?P<facility>\w{{3,8}}): {{1,8}}{_LEVELS}: {{1,8}}\["
        rf"(?P<time>{stamps.ISO})\]:",
        _timed_facility,
    ),
    # kern  :warn  :   (dmesg -x)
    _rule(rf"(?P<facility>kern|user|daemon|syslog) {{0,6}}: ?{_LEVELS} {{0,6}}:", _facility),
    # 2025-01-21T04:41:44.28Z stdout F   (CRI)
    _rule(rf"(?P<time>{stamps.ISO}) std(?:out|err) [FP] ", _container),
    # Tue 2025-01-21 04:41:44 CET node kernel:   (journalctl -o short-full)
    _rule(
        rf"[^\W\d_]{{2,4}}\.? (?P<time>{stamps.ISO}) (?P<zone>[A-Z]{{3,5}}) (?P<host>{_HOST})"
        rf"(?= kernel: )",
        _local_zone,
    ),
    # Tue 2025-01-21 04:41:44 UTC node kernel:   2025-01-21T04:41:44+0000 node kernel:
    _rule(
        rf"\[?(?:[^\W\d_]{{2,4}}\.? )?(?P<time>{stamps.ISO})\]?(?: (?P<host>{_HOST})"
        r"(?= (?:kernel|[\w./-]{1,48}\[\d{1,10}\]): ?))?(?:: )?",
        _time(stamps.from_iso),
    ),
    # Jan 21 04:41:44 node kernel:   jan. 29 20:50:17 node kernel:   Jul 26 08:17:15 NVRM:
    _rule(
        rf"(?P<time>{stamps.SYSLOG})(?: (?P<host>{_HOST})(?= (?:kernel"
        rf"|[\w./-]{{1,48}}\[\d{{1,10}}\])"
        r": ?))?",
        _time(stamps.from_syslog),
    ),
    # 1737434504.283758 node kernel:   (journalctl -o short-unix)
    _rule(r"(?P<seconds>\d{9,10})\.(?P<part>\d{6}) (?=\S{1,255} kernel: )", _epoch),
    # kernel:   node kernel:   kernel[0]:
    _rule(rf"(?:(?P<host>{_HOST}) )?kernel(?:\[\d{{1,10}}\])?: ?", _host),
    # node gpud[812]:   another program quotes the kernel
    _rule(rf"(?:(?P<host>{_HOST}) )?[A-Za-z][\w./-]{{0,47}}\[\d{{1,10}}\]: ", _program),
    # I0830 11:43:14.123456       1 log_monitor.go:159]   (klog of Kubernetes components)
    _rule(r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{1,9} {1,9}\d{1,9} [\w./-]{1,64}:\d{1,6}\] ", _program),
    # [pod/npd-x2x/npd]   MESSAGE=   (kubectl logs --prefix, journalctl -o verbose)
    _rule(r"\[pod/[\w./-]{1,200}\] ", _program),
    _rule(r"MESSAGE=", _quoted),
    # > quoted mail,  - list item,  * item,  `code`,  "string",  [...] elision, grep's 12: or 12-
    _rule(r"(?:[>*`\"'|]|- |\[\.{3}\]|\d{1,7}[:-](?=[\[<]))", _quoted),
)

# Where a second message starts inside a line: two lines were glued, or a tool put words in front.
_BOUNDARY = re.compile(
    rf"\n|\[ {{0,8}}\d{{1,9}}\.\d{{6}}\] |\[{stamps.WEEKDAY}\] |<\d{{1,3}}>\[ "
    rf"|NVRM: Xid \((?=PCI|[0-9A-Fa-f])|NVRM: GPU(?: at)? (?=PCI|[0-9A-Fa-f]{{4}})"
    r"|nvidia-nvswitch\d{1,3}: SXid"
    rf"|(?<!\S){stamps.SYSLOG} (?=\S{{1,255}} kernel: )"
    rf"|(?<!\S){stamps.ISO} (?=\S{{1,255}} kernel: )"
)


def decode_line(line: str | bytes) -> str:
    """A physical line as text: cut to ``MAX_LINE``, non-UTF-8 bytes replaced, colours taken out."""
    if isinstance(line, bytes):
        most = _MAX_JSON if line.startswith(b"{") else MAX_LINE
        text = line[:most].decode("utf-8", errors="replace")
    else:
        text = line[: _MAX_JSON if line.startswith("{") else MAX_LINE]
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    return text.replace("\x00", "").rstrip()


def split_messages(text: str, context: LineContext) -> list[Message]:
    """The kernel messages of one decoded line, in order, wrappers peeled.

    Args:
        text: a line as :func:`decode_line` leaves it.
        context: zone and year for stamps that lack them.

    Returns:
        At least one message; text without any message in it (words put in front of a wrapper) comes
        back as a message too, for the caller to find nothing in.
    """
    state = Message(text)
    if text.startswith("{"):
        state = _from_json(text) or Message(text[:MAX_LINE])
    messages: list[Message] = []
    rest = state.text
    while rest and len(messages) < _MAX_MESSAGES:
        state, rest = _peel(replace(state, text=rest), context)
        cut = _BOUNDARY.search(rest, 1)
        end = cut.start() if cut else len(rest)
        messages.append(replace(state, text=rest[:end].strip(" \t\r\n")))
        rest = rest[end:]
    return messages


def _peel(state: Message, context: LineContext) -> tuple[Message, str]:
    rest = state.text
    for _ in range(_MAX_PEELS):
        rest = rest.lstrip(" \t\r\n")
        for pattern, reader in _PEELS:
            found = pattern.match(rest)
            if found is not None:
                state = reader(state, found, context)
                rest = rest[found.end() :]
                break
        else:
            break
    return state, rest


def _from_json(text: str) -> Message | None:
    """A journald (-o json) or Docker (json-file) line; None where it is neither.

    Source: systemd.journal-fields(7) and journalctl(1): MESSAGE is a string, or an array of bytes
    where it is not UTF-8.
    """
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    body = _json_text(fields.get("MESSAGE", fields.get("log", fields.get("message"))))
    if body is None:
        return None
    by_kernel = fields.get("_TRANSPORT", fields.get("SYSLOG_IDENTIFIER")) == "kernel"
    host = fields.get("_HOSTNAME")
    return Message(
        text=body,
        observed_at=_json_time(fields),
        uptime_s=_json_uptime(fields),
        host=host if isinstance(host, str) else None,
        relayed=not by_kernel,
    )


def _json_text(value: object) -> str | None:
    if isinstance(value, str):
        return decode_line(value)
    if isinstance(value, list) and all(isinstance(item, int) and 0 <= item < 256 for item in value):
        return decode_line(bytes(value))
    return None


def _json_micros(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 18:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _json_time(fields: dict[str, object]) -> datetime | None:
    micros = _json_micros(fields.get("__REALTIME_TIMESTAMP"))
    if micros is not None:
        return stamps.from_epoch(micros)
    stamp = fields.get("time")
    return stamps.from_iso(stamp, LineContext()) if isinstance(stamp, str) else None


def _json_uptime(fields: dict[str, object]) -> float | None:
    micros = _json_micros(fields.get("_SOURCE_MONOTONIC_TIMESTAMP"))
    return None if micros is None or abs(micros) > 10**18 else micros / 1e6
