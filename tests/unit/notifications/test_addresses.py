from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest

from gpuwarden_server.notifications.addresses import (
    INSIDE,
    AddressGuard,
    AddressRefused,
    Resolve,
    parse_networks,
    resolve,
)

Address = IPv4Address | IPv6Address


def allowed_address(
    host: str, port: int, resolver: Resolve, inside: str = ",".join(INSIDE)
) -> Address:
    return AddressGuard(parse_networks(inside), resolver).address(host, port)


def answering(*texts: str) -> Resolve:
    def resolver(host: str, port: int) -> Sequence[Address]:
        return [ip_address(text) for text in texts]

    return resolver


@pytest.mark.parametrize(
    "text",
    [
        "169.254.169.254",
        "169.254.0.1",
        "fe80::1",
        "febf::1",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "2002:a9fe:a9fe::1",
        "fd00:ec2::254",
        "100.100.100.200",
        "192.0.0.192",
        "0.0.0.0",
        "::",
    ],
)
def test_link_local_and_metadata_addresses_are_refused(text: str) -> None:
    with pytest.raises(AddressRefused, match=r"hook\.example"):
        allowed_address("hook.example", 443, answering(text))


@pytest.mark.parametrize("text", ["127.0.0.1", "10.1.2.3", "203.0.113.9", "2001:db8::5", "fd12::1"])
def test_other_addresses_are_allowed(text: str) -> None:
    assert allowed_address("hook.example", 443, answering(text)) == ip_address(text)


def test_one_refused_address_among_good_ones_refuses_the_name() -> None:
    with pytest.raises(AddressRefused):
        allowed_address("hook.example", 443, answering("203.0.113.9", "169.254.169.254"))


def test_a_name_without_an_address_is_refused() -> None:
    with pytest.raises(AddressRefused, match="no address"):
        allowed_address("hook.example", 443, answering())


def test_a_literal_address_resolves_to_itself() -> None:
    assert list(resolve("127.0.0.1", 80)) == [ip_address("127.0.0.1")]


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(AddressRefused, match="does not resolve"):
        resolve("no-such-host.invalid", 80)


@pytest.mark.parametrize("text", ["127.0.0.1", "10.1.2.3", "::ffff:10.1.2.3", "fd12::1"])
def test_private_addresses_are_allowed_by_list_only(text: str) -> None:
    with pytest.raises(AddressRefused, match="GPUWARDEN_NOTIFY_PRIVATE_NETWORKS"):
        allowed_address("hook.example", 443, answering(text), "none")
    outside = allowed_address("hook.example", 443, answering("203.0.113.9"), "none")
    assert outside == ip_address("203.0.113.9")


def test_no_list_allows_a_metadata_address() -> None:
    everything = "0.0.0.0/0,::/0"
    with pytest.raises(AddressRefused):
        allowed_address("hook.example", 443, answering("169.254.169.254"), everything)


def test_a_network_that_is_none_is_named() -> None:
    with pytest.raises(ValueError, match=r"10\.0\.0\.1/8"):
        parse_networks("192.168.0.0/16, 10.0.0.1/8")
