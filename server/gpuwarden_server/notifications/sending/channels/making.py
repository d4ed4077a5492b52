"""A channel for each address of an endpoint."""

from __future__ import annotations

from typing import assert_never

from gpuwarden_server.notifications.addresses import AddressGuard
from gpuwarden_server.notifications.document import Endpoint, EndpointKind
from gpuwarden_server.notifications.http import Poster
from gpuwarden_server.notifications.sending.channels.alertmanager import AlertmanagerChannel
from gpuwarden_server.notifications.sending.channels.apprise import AppriseChannel
from gpuwarden_server.notifications.sending.channels.asking import ApproveUrl, no_links
from gpuwarden_server.notifications.sending.channels.contract import Channel
from gpuwarden_server.notifications.sending.channels.heartbeat import HeartbeatChannel
from gpuwarden_server.notifications.sending.channels.pagerduty import PagerDutyChannel
from gpuwarden_server.notifications.sending.channels.slack import SlackChannel
from gpuwarden_server.notifications.sending.channels.teams import TeamsChannel
from gpuwarden_server.notifications.sending.channels.webhook import WebhookChannel


def make_channels(
    endpoint: Endpoint, guard: AddressGuard, console_url: str, approve_url: ApproveUrl = no_links
) -> list[Channel]:
    """Channels in the order of `endpoint.lanes`.

    Args:
        endpoint: Who is told.
        guard: Which addresses are sent to.
        console_url: For links, "" for none.
        approve_url: Where people approve advice.

    Raises:
        StartError: What the kind needs is not installed.
    """

    def poster() -> Poster:
        return Poster(guard, endpoint.timeout_s)

    match endpoint.kind:
        case EndpointKind.WEBHOOK:
            return [WebhookChannel(endpoint, poster(), approve_url)]
        case EndpointKind.ALERTMANAGER:
            return [
                AlertmanagerChannel(endpoint, url, poster(), console_url) for url in endpoint.urls
            ]
        case EndpointKind.PAGERDUTY:
            return [PagerDutyChannel(endpoint, poster(), console_url)]
        case EndpointKind.SLACK:
            return [SlackChannel(endpoint, poster(), console_url, approve_url)]
        case EndpointKind.TEAMS:
            return [TeamsChannel(endpoint, poster(), console_url, approve_url)]
        case EndpointKind.APPRISE:
            return [AppriseChannel(endpoint, approve_url)]
        case EndpointKind.HEARTBEAT:
            return [HeartbeatChannel(endpoint, poster())]
        case _:
            assert_never(endpoint.kind)
