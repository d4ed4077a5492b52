"""Which addresses a webhook may be sent to; asked after name resolution, for each address."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
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


class AddressRefused(Exception):
    """The endpoint's name leads to an address that is never sent to, or nowhere."""


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


def allowed_address(host: str, port: int, resolver: Resolve = resolve) -> Address:
    """The address to connect to.

    Connecting to it, not to the name, leaves no room for a second answer of the resolver.

    Raises:
        AddressRefused: Any of the host's addresses is link-local or a metadata service, or there is
            none.
    """
    addresses = list(resolver(host, port))
    for address in addresses:
        if is_refused(address):
            raise AddressRefused(f"{host}: leads to {address}, link-local or a metadata service")
    if not addresses:
        raise AddressRefused(f"{host}: has no address")
    return addresses[0]


def is_refused(address: Address) -> bool:
    """True for link-local, metadata and unspecified addresses, also when written as IPv6."""
    if isinstance(address, IPv6Address):
        embedded = address.ipv4_mapped or address.sixtofour or _nat64(address)
        if embedded is not None:
            return is_refused(embedded)
    return any(address in network for network in _REFUSED if network.version == address.version)


def _nat64(address: IPv6Address) -> IPv4Address | None:
    # 64:ff9b::/96 is the well-known prefix of RFC 6052; the last 32 bits are the IPv4 address.
    if address in IPv6Network("64:ff9b::/96"):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return None
