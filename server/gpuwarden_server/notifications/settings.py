"""The notification file and the one webhook of the settings, put together and checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from gpuwarden_server.core.errors import StartError
from gpuwarden_server.notifications.addresses import Network, parse_networks
from gpuwarden_server.notifications.document import Endpoint, EndpointKind, NotifyDocument, Route
from gpuwarden_server.notifications.parse import (
    SECRET_MEND,
    SHORTEST_SECRET,
    NotifyError,
    checked_secret,
    is_http_url,
    parse_notify,
)
from gpuwarden_verdict.entities import Severity

OF_SETTINGS = "webhook"
"""Name of the endpoint that GPUWARDEN_WEBHOOK_URL makes."""
USUAL_RETRY_S = 5.0


@dataclass(frozen=True, slots=True)
class NotifySettings:
    """What the operator's settings say of notifications.

    Attributes:
        file: Notification file, None for none.
        webhook_url: One webhook without a file, None for none.
        webhook_secret: Its secret.
        retry_s: Mean wait after a first failure; all waits scale with it.
        variables: Value of an environment variable, for keys that end in _env.
    """

    file: Path | None
    webhook_url: str | None
    webhook_secret: str | None
    retry_s: float
    variables: Callable[[str], str | None]


def load_notify(settings: NotifySettings) -> NotifyDocument:
    """The document that the settings make; without any, one without endpoints.

    Raises:
        StartError: The file, the URL or the secret cannot be used; names key and mend.
    """
    document = NotifyDocument()
    if settings.file is not None:
        document = _read(settings.file, settings.variables)
    own = _of_settings(settings)
    if own is not None:
        if any(endpoint.name == OF_SETTINGS for endpoint in document.endpoints):
            raise StartError(
                f"{settings.file} names an endpoint {OF_SETTINGS!r}, and GPUWARDEN_WEBHOOK_URL "
                "makes one of that name",
                "Rename it, or unset the variable.",
            )
        document = replace(document, endpoints=(*document.endpoints, own))
    scale = settings.retry_s / USUAL_RETRY_S
    endpoints = tuple(replace(one, retry_scale=scale) for one in document.endpoints)
    return replace(document, endpoints=endpoints)


def load_networks(text: str) -> tuple[Network, ...]:
    """Private networks that are sent to.

    Raises:
        StartError: Names the one that is none.
    """
    try:
        return parse_networks(text)
    except ValueError as error:
        raise StartError(
            f"GPUWARDEN_NOTIFY_PRIVATE_NETWORKS: {error}",
            "Write networks such as 10.0.0.0/8,192.168.7.0/24, or none.",
        ) from None


def _read(file: Path, variables: Callable[[str], str | None]) -> NotifyDocument:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StartError(
            f"notification file {file} cannot be read: {error}",
            "Set GPUWARDEN_NOTIFY_FILE to a TOML file that the server may read, or unset it.",
        ) from error
    try:
        return parse_notify(text, variables)
    except NotifyError as error:
        raise StartError(
            f"notification file {file}: {error.key}: {error.detail}",
            f"Correct it: {error.mend}.",
        ) from None


def _of_settings(settings: NotifySettings) -> Endpoint | None:
    url, secret = settings.webhook_url, settings.webhook_secret
    if url is None and secret is None:
        return None
    if url is None or secret is None:
        raise StartError(
            "GPUWARDEN_WEBHOOK_URL and GPUWARDEN_WEBHOOK_SECRET go together",
            "Set both, or neither. A new secret: echo whsec_$(openssl rand -base64 32)",
        )
    if not is_http_url(url):
        raise StartError(
            "GPUWARDEN_WEBHOOK_URL is not an http or https URL",
            "Set it to the receiver's full URL, or unset it.",
        )
    if not checked_secret(secret):
        raise StartError(
            f"GPUWARDEN_WEBHOOK_SECRET is not whsec_ and base64 of {SHORTEST_SECRET} bytes or more",
            f"{SECRET_MEND[0].upper()}{SECRET_MEND[1:]}",
        )
    route = Route(severity=Severity.INFO)
    return Endpoint(OF_SETTINGS, EndpointKind.WEBHOOK, (url,), (secret,), route)
