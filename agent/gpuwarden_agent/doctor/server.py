"""Key, certificates, the server's answer to a harmless question, and the clock against its own."""

from __future__ import annotations

import socket
import ssl
import stat
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import quote

import msgspec

from gpuwarden_agent.config import AgentSettings
from gpuwarden_agent.doctor.finding import Finding, Level
from gpuwarden_agent.transport.connection import Answer, ConnectionFailed, ServerConnection
from gpuwarden_agent.transport.key import KeySource, KeyUnavailable
from gpuwarden_agent.transport.tls import TlsUnusable, tls_context
from gpuwarden_wire.codec import decode_problem

_AREA = "server"
_MOST_SKEW_S = 5.0
"""Clocks inform and never order; but a page that shows times this far apart confuses people."""

_KEY_MEND = "Make one: `gpuwarden keys create --role agent --node {node}`, and put it in the file."


class _Answered(msgspec.Struct):
    """What our own server always says."""

    feed_id: str
    epoch: int


def look_at_server(settings: AgentSettings) -> Iterator[Finding]:
    """Everything on the way to the server; nothing of this node is sent."""
    if not settings.server_url:
        yield Finding(
            _AREA,
            "address",
            Level.VITAL,
            "GPUWARDEN_AGENT_SERVER_URL is not set",
            "Set it, or name the agent's settings: doctor --env-file /etc/gpuwarden/agent.env",
        )
        return
    key = ""
    try:
        key = KeySource(settings.key, settings.key_file).current()
    except KeyUnavailable as problem:
        mend = _KEY_MEND.format(node=settings.own_node_id)
        yield Finding(_AREA, "key", Level.VITAL, str(problem), mend)
    else:
        yield _key(settings.key_file)
    try:
        tls = _tls(settings)
    except TlsUnusable as unusable:
        yield Finding(_AREA, "TLS", Level.VITAL, str(unusable))
        return
    if settings.client_key_file is not None:
        yield _private("client key", settings.client_key_file)
    yield from _asked(settings, tls, key)


def _tls(settings: AgentSettings) -> ssl.SSLContext | None:
    if not settings.server_url.startswith("https:"):
        return None
    return tls_context(settings.ca_file, settings.client_cert_file, settings.client_key_file)


def _key(path: Path | None) -> Finding:
    if path is None:
        mend = "Prefer a file: processes of the same user can read an environment."
        return Finding(_AREA, "key", Level.WARNING, "given in the environment", mend)
    return _private("key", path)


def _private(name: str, path: Path) -> Finding:
    mode = path.stat().st_mode
    if mode & (stat.S_IRWXO | stat.S_IWGRP):
        mend = f"chmod 640 {path}, or 600"
        says = f"{path} has mode {stat.S_IMODE(mode):o}: others may read or change it"
        return Finding(_AREA, name, Level.WARNING, says, mend)
    return Finding(_AREA, name, Level.FINE, f"{path}, mode {stat.S_IMODE(mode):o}")


def _asked(settings: AgentSettings, tls: ssl.SSLContext | None, key: str) -> Iterator[Finding]:
    connection = ServerConnection(settings.server_url, settings.request_timeout_s, tls)
    path = f"/v1/verdicts?node={quote(settings.own_node_id)}"
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    began, sent_at = time.monotonic(), time.time()
    try:
        connection.open()
        answer = connection.get(path, headers)
    except ConnectionFailed as failure:
        yield Finding(_AREA, "reachability", Level.VITAL, str(failure), mend_of(failure, settings))
        return
    finally:
        connection.close()
    took_s = time.monotonic() - began
    yield _answered(answer, took_s, settings)
    yield _clock(answer.date, sent_at, took_s)


def mend_of(failure: ConnectionFailed, settings: AgentSettings) -> str:
    """What to do about a server that gave no answer, by what stood in the way."""
    match failure.__cause__:
        case ssl.SSLCertVerificationError():
            return (
                "Set GPUWARDEN_AGENT_CA_FILE to the authority that signed the server's "
                "certificate, and use the name that stands in it."
            )
        case ssl.SSLError() as error if "WRONG_VERSION" in str(error):
            return "It does not speak TLS there: use http://, or the right port."
        case ssl.SSLError():
            return (
                "Does it want a client certificate? GPUWARDEN_AGENT_CLIENT_CERT_FILE and "
                "GPUWARDEN_AGENT_CLIENT_KEY_FILE name it."
            )
        case socket.gaierror():
            return f"The name in {settings.server_url} cannot be resolved: mend it, or DNS."
        case ConnectionRefusedError():
            return "Nothing listens there: start the server, or mend address and port."
        case TimeoutError():
            return "No answer in time: look for a firewall, or raise REQUEST_TIMEOUT_S."
        case _:
            return "Mend GPUWARDEN_AGENT_SERVER_URL, or the network on the way."


def _answered(answer: Answer, took_s: float, settings: AgentSettings) -> Finding:
    problem = decode_problem(answer.body)
    says = f"HTTP {answer.status_code} in {took_s * 1000:.0f} ms"
    if problem is not None:
        says += f", {problem.code}: {problem.detail}".rstrip(": ")
    key_mend = _KEY_MEND.format(node=settings.own_node_id)
    match answer.status_code:
        case 200 if _is_ours(answer.body):
            return Finding(_AREA, "reachability", Level.FINE, f"{says}, the key is accepted")
        case 200:
            mend = "Something else answers there: mend GPUWARDEN_AGENT_SERVER_URL."
            return Finding(_AREA, "reachability", Level.VITAL, says, mend)
        case 401 | 403:
            return Finding(_AREA, "reachability", Level.VITAL, says, key_mend)
        case status if status == 429 or status >= 500:
            mend = "It is there and has trouble of its own: look at the server."
            return Finding(_AREA, "reachability", Level.WARNING, says, mend)
        case _:
            mend = "No gpuwarden answers there: mend GPUWARDEN_AGENT_SERVER_URL."
            return Finding(_AREA, "reachability", Level.VITAL, says, mend)


def _is_ours(body: bytes) -> bool:
    try:
        msgspec.json.decode(body, type=_Answered)
    except msgspec.DecodeError:
        return False
    return True


def _clock(date: str, sent_at: float, took_s: float) -> Finding:
    """The Date header has whole seconds, and was written some time within the exchange."""
    try:
        told = parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError, OverflowError, IndexError):
        return Finding(_AREA, "clock", Level.ABSENT, "the answer has no date to compare with")
    early, late = sent_at - told - 1.0, sent_at + took_s - told
    skew_s = 0.0 if early <= 0.0 <= late else min(early, late, key=abs)
    if abs(skew_s) <= _MOST_SKEW_S:
        return Finding(_AREA, "clock", Level.FINE, "agrees with the server's")
    ahead = "ahead of" if skew_s > 0 else "behind"
    mend = "Let chrony or systemd-timesyncd set it."
    return Finding(_AREA, "clock", Level.WARNING, f"{abs(skew_s):.0f} s {ahead} the server's", mend)
