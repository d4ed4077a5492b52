from __future__ import annotations

import base64
from pathlib import Path

import pytest

from gpuwarden_server.notifications.document import EndpointKind, Route
from gpuwarden_server.notifications.parse import NotifyError, parse_notify
from gpuwarden_verdict.entities import Severity

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
WEBHOOK = f"""[[endpoints]]
name = "a"
kind = "webhook"
url = "https://x.example/h"
secret = "{SECRET}"
"""
PAGER = f'[[endpoints]]\nname = "p"\nkind = "pagerduty"\nrouting_key = "{"k" * 32}"\n'


def nothing(name: str) -> str | None:
    return None


def test_every_kind_is_read(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("xoxb-1\n")
    text = (
        'console_url = "https://c.example/"\n'
        + WEBHOOK
        + PAGER
        + f"""
[[endpoints]]
name = "am"
kind = "alertmanager"
urls = ["http://am-0:9093", "http://am-1:9093"]
severity = "critical"
[[endpoints]]
name = "s"
kind = "slack"
token_file = "{token}"
channel = "C1"
pools = ["h100-*"]
labels = {{ rack = "r1*" }}
digest_s = 3600
[[endpoints]]
name = "t"
kind = "teams"
url_env = "TEAMS"
[[endpoints]]
name = "m"
kind = "apprise"
target_env = "MAIL"
[[endpoints]]
name = "h"
kind = "heartbeat"
url = "https://hc.example/x"
"""
    )
    document = parse_notify(
        text, {"MAIL": "mailto://u:p@h.example", "TEAMS": "https://t.example/?sig=s"}.get
    )
    by_name = {endpoint.name: endpoint for endpoint in document.endpoints}
    assert {one.kind for one in document.endpoints} == set(EndpointKind)
    assert document.console_url == "https://c.example"
    assert by_name["am"].lanes == ("am#1", "am#2")
    assert by_name["a"].lanes == ("a",)
    assert by_name["s"].secrets == ("xoxb-1",)
    assert by_name["s"].digest_s == 3600
    assert by_name["m"].secrets == ("mailto://u:p@h.example",)
    shown = repr(document)
    assert not [secret for one in document.endpoints for secret in one.secrets if secret in shown]


@pytest.mark.parametrize(
    ("text", "key", "says"),
    [
        ("= 1", "file", "valid TOML"),
        ("[endpoint]", "endpoint", "known are endpoints"),
        ("endpoints = 1", "endpoints", r"\[\[endpoints\]\]"),
        (WEBHOOK.replace('"a"', '"A b"'), "endpoints[0].name", "a-z"),
        (WEBHOOK.replace("webhook", "fax"), "endpoints[0].kind", "one of webhook"),
        (WEBHOOK + "severty = 1", "endpoints[0].severty", "known are"),
        (WEBHOOK + 'severity = "high"', "endpoints[0].severity", "info, warning"),
        (WEBHOOK.replace("https://", "ftp://"), "endpoints[0].url", "http or https"),
        (WEBHOOK.replace(SECRET, "whsec_c2hvcnQ="), "endpoints[0].secret", "openssl rand"),
        (WEBHOOK + 'secret_env = "S"', "endpoints[0].secret_env", "give one"),
        (WEBHOOK.replace(f'secret = "{SECRET}"', 'secret_env = "S"'), "secret_env", "not set"),
        (WEBHOOK.replace(f'secret = "{SECRET}"', 'secret_file = "/no/f"'), "secret_file", "read"),
        (WEBHOOK.replace(f'secret = "{SECRET}"', ""), "endpoints[0].secret", "missing"),
        (WEBHOOK + "timeout_s = 0", "endpoints[0].timeout_s", "0.1 to 60"),
        (WEBHOOK + "group_s = 5", "endpoints[0].group_s", "unknown for kind webhook"),
        (WEBHOOK + WEBHOOK, "endpoints[1].name", "used twice"),
        (PAGER.replace("k" * 32, "short"), "endpoints[0].routing_key", "32 characters"),
        (PAGER + "cases_per_10min = -1", "endpoints[0].cases_per_10min", "write a number"),
        (PAGER + 'labels = ["x"]', "endpoints[0].labels", "table of patterns"),
    ],
)
def test_an_error_names_key_and_mend_and_no_secret(text: str, key: str, says: str) -> None:
    with pytest.raises(NotifyError, match=says) as caught:
        parse_notify(text, nothing)
    assert key in caught.value.key
    assert "whsec_" not in str(caught.value).replace("whsec_ and", "").replace("whsec_$", "")


def test_too_many_endpoints_are_refused() -> None:
    many = "".join(PAGER.replace('"p"', f'"p{n}"') for n in range(33))
    with pytest.raises(NotifyError, match="keep to 32"):
        parse_notify(many, nothing)


def test_a_route_takes_what_meets_all_of_it() -> None:
    route = Route(Severity.ERROR, ("h100-*",), {"rack": "r1*"})
    fits = {"severity": "critical", "pool": "h100-a", "rack": "r12"}
    assert route.takes(fits)
    assert route.takes({**fits, "severity": ""}), "a decision passes whatever the severity"
    for change in ({"severity": "warning"}, {"pool": "a100"}, {"rack": "r2"}, {"rack": ""}):
        assert not route.takes({**fits, **change})
