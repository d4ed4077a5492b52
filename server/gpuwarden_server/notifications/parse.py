"""The notification file: TOML in, a validated document out."""

from __future__ import annotations

import base64
import math
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gpuwarden_server.notifications.document import (
    KINDS_OF_CASES,
    Endpoint,
    EndpointKind,
    NotifyDocument,
    Route,
    SilenceUse,
)
from gpuwarden_verdict.entities import Severity

MOST_ENDPOINTS = 32
"""Each has a thread."""
SHORTEST_SECRET = 24
"""Bytes, as the Standard Webhooks specification has it."""
PAGERDUTY_URL = "https://events.pagerduty.com"
SLACK_URL = "https://slack.com/api"
SECRET_MEND = "make one: echo whsec_$(openssl rand -base64 32)"
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")

Variables = Callable[[str], str | None]
"""Value of an environment variable, None where it is not set."""


class NotifyError(Exception):
    """A file that cannot be used; neither its message nor its attributes hold a secret.

    Attributes:
        key: Where in the file: "endpoints[0].severity".
        detail: What is wrong there.
        mend: What to write instead.
    """

    def __init__(self, key: str, detail: str, mend: str) -> None:
        super().__init__(f"{key}: {detail}; {mend}")
        self.key = key
        self.detail = detail
        self.mend = mend


def parse_notify(text: str, variables: Variables) -> NotifyDocument:
    """Parse and validate a notification file.

    Args:
        text: TOML.
        variables: Where `…_env` keys look.

    Raises:
        NotifyError: Not TOML, an unknown key, a value that cannot be used, a name used twice.
    """
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise NotifyError("file", str(error), "write valid TOML") from None
    for key in tree.keys() - {"endpoints", "console_url"}:
        raise NotifyError(key, "unknown key", "known are endpoints, console_url")
    console = _Table("", tree, variables).url("console_url", "")
    entries = tree.get("endpoints", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise NotifyError("endpoints", "no list of tables", "write each as [[endpoints]]")
    found = tuple(
        _endpoint(_Table(f"endpoints[{number}].", entry, variables))
        for number, entry in enumerate(entries)
    )
    _refuse_repeats(found)
    return NotifyDocument(found, console.rstrip("/"))


def checked_secret(text: str) -> bool:
    """Whether `text` is a secret of Standard Webhooks' form, long enough."""
    try:
        key = base64.b64decode(text.removeprefix("whsec_"), validate=True)
    except ValueError:
        return False
    return text.startswith("whsec_") and len(key) >= SHORTEST_SECRET


def is_http_url(text: str) -> bool:
    """Whether `text` is a full http or https URL."""
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def _refuse_repeats(found: tuple[Endpoint, ...]) -> None:
    if len(found) > MOST_ENDPOINTS:
        raise NotifyError(
            "endpoints", f"{len(found)} of them", f"keep to {MOST_ENDPOINTS}: join receivers"
        )
    names = [endpoint.name for endpoint in found]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise NotifyError(
                f"endpoints[{number}].name", f"{name!r} is used twice", "give each its own"
            )


@dataclass(frozen=True, slots=True)
class _Table:
    """One table of the file with readers that name the key they fail at."""

    where: str
    entry: Mapping[str, Any]
    variables: Variables

    def fail(self, key: str, detail: str, mend: str) -> NotifyError:
        return NotifyError(f"{self.where}{key}", detail, mend)

    def text(self, key: str, default: str | None = None) -> str:
        """A text: by value, or from the file or variable that `key_file`, `key_env` name."""
        given = [name for name in (key, f"{key}_file", f"{key}_env") if name in self.entry]
        if len(given) > 1:
            raise self.fail(given[1], f"{given[0]} is given too", "give one of them")
        if not given:
            if default is None:
                raise self.fail(key, "missing", f"write {key}, {key}_file or {key}_env")
            return default
        value = self.entry[given[0]]
        if not isinstance(value, str) or not value.strip():
            raise self.fail(given[0], "no text", "write a text in quotes")
        return self._resolved(given[0], value) if given[0] != key else value

    def _resolved(self, key: str, value: str) -> str:
        if key.endswith("_env"):
            found = self.variables(value)
            if not found:
                raise self.fail(key, f"variable {value} is not set", "set it for the server")
            return found.strip()
        try:
            return Path(value).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not text"
            told = f"{value} cannot be read: {reason}"
            raise self.fail(key, told, "let the server read it") from None

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts, or the one text that `text` reads."""
        value = self.entry.get(f"{key}s")
        if value is None:
            return (self.text(key),)
        if not isinstance(value, list) or not value or not all(isinstance(v, str) for v in value):
            raise self.fail(f"{key}s", "no list of texts", f'write {key}s = ["…", "…"]')
        return tuple(value)

    def url(self, key: str, default: str | None = None) -> str:
        found = self.text(key, default)
        if found and not is_http_url(found):
            raise self.fail(key, "no http or https URL", "write the full URL")
        return found

    def urls(self, key: str) -> tuple[str, ...]:
        found = self.texts(key)
        if not all(is_http_url(one) for one in found):
            raise self.fail(f"{key}s", "not all are http or https URLs", "write full URLs")
        return found

    def number(self, key: str, default: float, least: float, most: float = math.inf) -> float:
        value = self.entry.get(key, default)
        fits = isinstance(value, int | float) and not isinstance(value, bool)
        if not fits or not least <= value <= most:
            limit = f"{least:g} to {most:g}" if math.isfinite(most) else f"{least:g} or more"
            raise self.fail(key, f"{value!r}", f"write a number, {limit}")
        return float(value)

    def severity(self, key: str, default: Severity) -> Severity:
        value = self.entry.get(key, default.value)
        if value not in tuple(Severity):
            raise self.fail(key, f"{value!r}", f"write one of {', '.join(Severity)}")
        return Severity(value)

    def silences(self, key: str) -> SilenceUse:
        value = self.entry.get(key, SilenceUse.IGNORE.value)
        if value not in tuple(SilenceUse):
            raise self.fail(key, f"{value!r}", f"write one of {', '.join(SilenceUse)}")
        return SilenceUse(value)

    def patterns(self, key: str) -> tuple[str, ...]:
        value = self.entry.get(key, [])
        if not isinstance(value, list) or not all(isinstance(v, str) and v for v in value):
            raise self.fail(key, f"{value!r}", 'write a list of patterns, such as ["h100-*"]')
        return tuple(value)

    def labels(self, key: str) -> Mapping[str, str]:
        value = self.entry.get(key, {})
        if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
            raise self.fail(key, f"{value!r}", 'write a table of patterns: { rack = "r1*" }')
        return dict(value)


def _endpoint(table: _Table) -> Endpoint:
    name = table.text("name")
    if not _NAME.fullmatch(name):
        raise table.fail("name", f"{name!r}", "write 1 to 40 of a-z, 0-9, - and _")
    kind_text = table.entry.get("kind")
    if kind_text not in tuple(EndpointKind):
        raise table.fail("kind", f"{kind_text!r}", f"write one of {', '.join(EndpointKind)}")
    kind = EndpointKind(kind_text)
    _refuse_unknown(table, kind)
    base = _BASES[kind](table, Endpoint(name, kind))
    timeout_s = table.number("timeout_s", base.timeout_s, 0.1, 60)
    if kind is EndpointKind.HEARTBEAT:
        return replace(base, timeout_s=timeout_s)
    route = Route(
        severity=table.severity("severity", Severity.WARNING),
        pools=table.patterns("pools"),
        labels=table.labels("labels"),
    )
    return replace(_grouped(table, base), route=route, timeout_s=timeout_s)


def _grouped(table: _Table, base: Endpoint) -> Endpoint:
    if base.kind is EndpointKind.ALERTMANAGER:
        return base
    if "digest_s" in table.entry:
        base = replace(
            base,
            digest_s=table.number("digest_s", 0, 60, 7 * 86400),
            digest_severity=table.severity("digest_severity", Severity.WARNING),
        )
    if base.kind not in KINDS_OF_CASES:
        return base
    return replace(
        base,
        group_s=table.number("group_s", base.group_s, 0, 3600),
        cases_per_10min=int(table.number("cases_per_10min", base.cases_per_10min, 0, 10000)),
    )


def _webhook(table: _Table, base: Endpoint) -> Endpoint:
    secrets = table.texts("secret")
    if not all(checked_secret(secret) for secret in secrets):
        raise table.fail(
            "secret", f"not whsec_ and base64 of {SHORTEST_SECRET} bytes or more", SECRET_MEND
        )
    return replace(base, urls=(table.url("url"),), secrets=secrets)


def _alertmanager(table: _Table, base: Endpoint) -> Endpoint:
    token = table.text("bearer_token", "")
    return replace(
        base,
        urls=table.urls("url"),
        secrets=(token,) if token else (),
        repeat_s=table.number("repeat_s", 60, 1, 3600),
        silences=table.silences("silences"),
    )


def _pagerduty(table: _Table, base: Endpoint) -> Endpoint:
    key = table.text("routing_key")
    if len(key) != 32:
        raise table.fail(
            "routing_key", "not 32 characters", "copy the Integration Key of an Events API v2"
        )
    return replace(base, urls=(table.url("url", PAGERDUTY_URL),), secrets=(key,))


def _slack(table: _Table, base: Endpoint) -> Endpoint:
    token = table.text("token")
    if not token.startswith("xoxb-"):
        raise table.fail("token", "no bot token", "copy the Bot User OAuth Token, xoxb-…")
    return replace(
        base,
        urls=(table.url("url", SLACK_URL),),
        secrets=(token,),
        channel=table.text("channel"),
    )


def _teams(table: _Table, base: Endpoint) -> Endpoint:
    return replace(base, urls=(table.url("url"),))


def _apprise(table: _Table, base: Endpoint) -> Endpoint:
    return replace(base, secrets=table.texts("target"))


def _heartbeat(table: _Table, base: Endpoint) -> Endpoint:
    return replace(base, urls=(table.url("url"),), repeat_s=table.number("repeat_s", 60, 1, 86400))


_BASES: Mapping[EndpointKind, Callable[[_Table, Endpoint], Endpoint]] = {
    EndpointKind.WEBHOOK: _webhook,
    EndpointKind.ALERTMANAGER: _alertmanager,
    EndpointKind.PAGERDUTY: _pagerduty,
    EndpointKind.SLACK: _slack,
    EndpointKind.TEAMS: _teams,
    EndpointKind.APPRISE: _apprise,
    EndpointKind.HEARTBEAT: _heartbeat,
}
_ROUTE_KEYS = ("severity", "pools", "labels")
_DIGEST_KEYS = ("digest_s", "digest_severity")
_CASE_KEYS = ("group_s", "cases_per_10min")
_KEYS: Mapping[EndpointKind, tuple[str, ...]] = {
    EndpointKind.WEBHOOK: ("url", "secret", *_ROUTE_KEYS, *_DIGEST_KEYS),
    EndpointKind.ALERTMANAGER: ("url", "bearer_token", "repeat_s", "silences", *_ROUTE_KEYS),
    EndpointKind.PAGERDUTY: ("url", "routing_key", *_ROUTE_KEYS, *_CASE_KEYS),
    EndpointKind.SLACK: ("url", "token", "channel", *_ROUTE_KEYS, *_DIGEST_KEYS, *_CASE_KEYS),
    EndpointKind.TEAMS: ("url", *_ROUTE_KEYS, *_DIGEST_KEYS, *_CASE_KEYS),
    EndpointKind.APPRISE: ("target", *_ROUTE_KEYS, *_DIGEST_KEYS, *_CASE_KEYS),
    EndpointKind.HEARTBEAT: ("url", "repeat_s"),
}
_REFERABLE = ("url", "secret", "bearer_token", "routing_key", "token", "target", "channel")
_LISTS = {
    EndpointKind.WEBHOOK: ("secrets",),
    EndpointKind.ALERTMANAGER: ("urls",),
    EndpointKind.APPRISE: ("targets",),
}


def _refuse_unknown(table: _Table, kind: EndpointKind) -> None:
    keys = ("name", "kind", "timeout_s", *_KEYS[kind], *_LISTS.get(kind, ()))
    references = [f"{key}{end}" for key in keys if key in _REFERABLE for end in ("_file", "_env")]
    for key in table.entry:
        if key not in keys and key not in references:
            known = ", ".join(sorted(keys))
            raise table.fail(key, f"unknown for kind {kind}", f"known are {known}")
