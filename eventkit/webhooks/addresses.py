"""Which addresses may be called: those of the public internet, and those that were allowed by name of their network.

Whoever may create jobs would otherwise have a worker ask, in their place, what only the worker can reach.  So what is
judged is never the text of a URL, which has many ways to write ``127.0.0.1``, but the addresses that it comes to; and
the connection is made to these very addresses, so that a name cannot come to another one in between.
"""

import asyncio
import socket
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_UNICAST = IPv6Network("2000::/3")
"""Whatever else there is of IPv6 is local, or an address of IPv4 in another form: mapped, translated, or of a NAT64."""

_REFUSED: tuple[Network, ...] = (
    # Public by their numbers, and yet the provider's own, or a gateway that would unwrap an address that is refused.
    IPv4Network("168.63.129.16/32"),  # what Azure tells its machines
    IPv4Network("192.0.0.0/24"),  # of protocols; Oracle has its metadata there
    IPv4Network("192.88.99.0/24"),  # the relays of 6to4
    IPv6Network("2001::/32"),  # Teredo
    IPv6Network("2002::/16"),  # 6to4
)


class AddressRefused(Exception):
    """Raised for a host that comes to an address which may not be called."""


class Guard:
    """Says what may be called.  *allow* are networks, such as ``10.1.0.0/16`` or ``127.0.0.1``, that may be too."""

    def __init__(self, allow: Iterable[str] = ()) -> None:
        self._allowed = tuple(_network(text) for text in allow)

    def permits(self, address: Address) -> bool:
        """Whether *address* may be called."""
        if any(address in network for network in self._allowed):
            return True
        if any(address in network for network in _REFUSED):
            return False
        if address.version == 6 and address not in _UNICAST:
            return False
        return address.is_global and not address.is_multicast

    async def addresses(self, host: str, port: int) -> list[str]:
        """The addresses of *host*, all of which may be called, or `AddressRefused`; ``OSError`` where it has none."""
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        texts = list(dict.fromkeys(str(info[4][0]) for info in found))
        for text in texts:
            if not self.permits(ip_address(text)):
                raise AddressRefused(
                    f"{host} comes to {text}, which is no address of the public internet: allow its network if it is "
                    f"to be called"
                )
        return texts


def _network(text: str) -> Network:
    try:
        return ip_network(text)
    except ValueError as error:
        raise ValueError(f"what webhooks may call beside the public internet is a network: {error}") from None
