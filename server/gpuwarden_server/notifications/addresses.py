"""Which addresses are ever sent to; asked after name resolution, for each address."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Resolve = Callable[[str, int], Sequence[Address]]

# Link-local holds the clouds' metadata services: they hand the machine's credentials to whoever can
# make it send a request. The single addresses are metadata services outside link-local:
# AWS over IPv6, Alibaba Cloud, Oracle Cloud (each vendor's instance metadata documentation).
_REFUSED = tuple(
    ip_network(text)
    for text in (
        "169.254.0.0/16",
        "fe80::/10",
        "fd00:ec2::254/128",
        "100.100.100.200/32",
        "192.0.0.192/32",
        "0.0.0.0/8",
        "::/128",
    )
)


INSIDE = (
    "127.0.0.0/8",
    "::1/128",
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "100.64.0.0/10",
    "fc00::/7",
)
"""Ranges that are not of the internet; which of them are sent to is a setting."""

_INSIDE = tuple(ip_network(text) for text in INSIDE)


class AddressRefused(Exception):
    """The endpoint's name leads to an address that is never sent to, or nowhere."""


def parse_networks(text: str) -> tuple[Network, ...]:
    """Networks of a comma-separated list; "none" or "" for none.

    Raises:
        ValueError: One of them is no network; names it.
    """
    words = [word.strip() for word in text.split(",") if word.strip() not in ("", "none")]
    networks: list[Network] = []
    for word in words:
        try:
            networks.append(ip_network(word))
        except ValueError as error:
            raise ValueError(f"{word!r} is no network: {error}") from None
    return tuple(networks)


def resolve(host: str, port: int) -> Sequence[Address]:
    """Addresses of a host by the system's resolver, in its order.

    Raises:
        AddressRefused: The name does not resolve.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        raise AddressRefused(f"{host}: does not resolve ({error})") from error
    return [ip_address(str(entry[4][0]).partition("%")[0]) for entry in found]


class AddressGuard:
    """Says where to connect to."""

    def __init__(self, inside: Sequence[Network], resolver: Resolve = resolve) -> None:
        """Make a guard.

        Args:
            inside: Private ranges that are sent to.
            resolver: Gives a host's addresses.
        """
        self._inside = tuple(inside)
        self._resolver = resolver

    def address(self, host: str, port: int) -> Address:
        """The address to connect to.

        Connecting to it, not to the name, leaves no room for a second answer of the resolver.

        Raises:
            AddressRefused: Any of the host's addresses is link-local, a metadata service, or of a
                private range that is not on the list; or there is none.
        """
        addresses = list(self._resolver(host, port))
        for address in addresses:
            if is_refused(address):
                raise AddressRefused(
                    f"{host}: leads to {address}, link-local or a metadata service"
                )
            if not self._may(_plain(address)):
                raise AddressRefused(
                    f"{host}: leads to {address}, a private address that "
                    "GPUWARDEN_NOTIFY_PRIVATE_NETWORKS does not allow"
                )
        if not addresses:
            raise AddressRefused(f"{host}: has no address")
        return addresses[0]

    def _may(self, address: Address) -> bool:
        if not _is_in(address, _INSIDE):
            return True
        return _is_in(address, self._inside)


def _is_in(address: Address, networks: Sequence[Network]) -> bool:
    return any(address in network for network in networks if network.version == address.version)


def _plain(address: Address) -> Address:
    """The IPv4 address inside an IPv6 one, else the address itself."""
    if isinstance(address, IPv6Address):
        return address.ipv4_mapped or address.sixtofour or _nat64(address) or address
    return address


def is_refused(address: Address) -> bool:
    """True for link-local, metadata and unspecified addresses, also when written as IPv6."""
    plain = _plain(address)
    return _is_in(address, _REFUSED) or _is_in(plain, _REFUSED)


def _nat64(address: IPv6Address) -> IPv4Address | None:
    # 64:ff9b::/96 is the well-known prefix of RFC 6052; the last 32 bits are the IPv4 address.
    if address in IPv6Network("64:ff9b::/96"):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return None
