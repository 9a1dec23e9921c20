"""Addresses that webhooks may call: those of the public internet, in any notation, and no others."""

import asyncio
import socket
from typing import Any

import databases
import pytest
import working
from receiving import Reply, receiving, receiving_inside_and_outside
from working import error_of, until

from eventkit import App, EventKit
from eventkit.conformance import proves
from eventkit.webhooks import Webhook
from eventkit.webhooks.call import Webhooks
from eventkit.webhooks.guard import AddressRefused, Guard

url, kit = databases.url, databases.kit

INSIDE = """
    127.0.0.1 127.1 127.0.1 2130706433 0x7f000001 0x7f.1 0177.0.0.1 017700000001 127.255.255.254 localhost
    0 0.0.0.0 0.1.2.3 10.0.0.1 10.1 167772161 172.16.0.1 172.31.255.255 192.168.1.1 3232235777
    169.254.169.254 2852039166 0xa9fea9fe 0251.0376.0251.0376 169.254.170.2 100.64.0.1 100.100.100.200
    168.63.129.16 2822734096 192.0.0.192 192.0.2.1 198.18.0.1 198.51.100.1 203.0.113.1 192.88.99.1
    224.0.0.1 239.255.255.250 240.0.0.1 255.255.255.255
    :: ::1 0:0:0:0:0:0:0:1 fe80::1 fe80::a9fe:a9fe febf::1 fec0::1 fc00::1 fd00:ec2::254 ff02::1 ff0e::1
    ::127.0.0.1 ::7f00:1 ::ffff:127.0.0.1 ::ffff:7f00:1 ::ffff:169.254.169.254 ::ffff:8.8.8.8 ::ffff:0:127.0.0.1
    64:ff9b::7f00:1 64:ff9b::127.0.0.1 64:ff9b::169.254.169.254 64:ff9b::8.8.8.8 64:ff9b:1::1
    2002:7f00:1:: 2002:a9fe:a9fe::1 2002:808:808:: 2001:0:4136:e378:8000:63bf:80ff:fffe 2001:db8::1 2001:10::1
    100::1 200::1 4000::1 5f00::1 8000::1
"""
OUTSIDE = "8.8.8.8 134744072 0x08080808 8.8.2056 1.1.1.1 172.32.0.1 169.253.1.1 2606:4700:4700::1111 2a00:1450:4001::5"


def calling(url: str, *allowed: str) -> App:
    """Return an app that may call some networks beside the public internet."""
    app = App(url)
    Webhooks(app, allow=allowed)
    return app


def addresses(guard: Guard, host: str) -> list[str]:
    return asyncio.run(guard.addresses(host, 80))


@proves("E15")
@pytest.mark.parametrize("host", INSIDE.split())
def test_what_is_not_of_the_public_internet_is_refused(host: str) -> None:
    """Loopback, local, private, shared, multicast and metadata addresses are refused, also in IPv6's other forms."""
    with pytest.raises(AddressRefused, match="is not a public address"):
        addresses(Guard(), host)


@pytest.mark.parametrize("host", OUTSIDE.split())
def test_the_public_internet_may_be_called(host: str) -> None:
    assert addresses(Guard(), host)


def test_a_network_may_be_allowed() -> None:
    """Other networks stay refused."""
    guard = Guard(["127.0.0.2", "10.1.0.0/16", "fd00::/8"])
    assert addresses(guard, "127.0.0.2") == ["127.0.0.2"]
    assert addresses(guard, "0x0a010203") == ["10.1.2.3"]
    assert addresses(guard, "fd00::7") == ["fd00::7"]
    for host in ("127.0.0.1", "10.2.0.1", "::ffff:10.1.0.1"):
        with pytest.raises(AddressRefused):
            addresses(guard, host)
    with pytest.raises(ValueError, match="takes networks"):
        Guard(["10.1.2.3/16"])


class Names:
    """A resolver that gives one answer after another."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **answers: list[list[str]]) -> None:
        self.asked: list[str] = []
        real = socket.getaddrinfo

        def getaddrinfo(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
            name = host.decode() if isinstance(host, bytes) else host
            given = answers.get(name.partition(".")[0]) if isinstance(name, str) and name.endswith(".test") else None
            if given is None:
                return real(host, port, *args, **kwargs)
            self.asked.append(name)
            found = given[min(len(self.asked), len(given)) - 1]
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in found]

        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


@proves("E15")
def test_a_name_is_resolved_only_once(kit: EventKit, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name is resolved once, and the connection goes to the checked address."""
    with receiving_inside_and_outside() as (inside, outside):
        names = Names(monkeypatch, rebinding=[["127.0.0.2"], ["127.0.0.1"]])
        with working.working(calling(url, "127.0.0.2")):
            webhook = Webhook(callback_url=f"http://rebinding.test:{outside.port}/", max_attempts=1)
            kit.queue("default").enqueue_many([webhook.task()])
            until(lambda: outside.received or inside.received)
            until(lambda: kit.queue("default").size() == 0)
        assert (len(outside.received), len(inside.received)) == (1, 0)
        assert outside.received[0].headers["Host"] == f"rebinding.test:{outside.port}"
        assert names.asked == ["rebinding.test"]


@proves("E15")
def test_a_name_with_a_private_address_is_refused(kit: EventKit, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name is not called at all, in any order of its addresses."""
    with receiving_inside_and_outside() as (inside, outside):
        Names(monkeypatch, mixed=[["127.0.0.2", "127.0.0.1"]])
        with working.working(calling(url, "127.0.0.2")):
            webhook = Webhook(callback_url=f"http://mixed.test:{outside.port}/", max_attempts=6)
            [enqueued] = kit.queue("default").enqueue_many([webhook.task()])
            assert "mixed.test resolves to 127.0.0.1" in error_of(kit, enqueued.id)
        assert (outside.received, inside.received) == ([], [])


@proves("E15")
@pytest.mark.parametrize("host", ["2130706433", "localhost", "[::ffff:127.0.0.1]"])
def test_a_webhook_for_the_inside_is_dead_at_once(kit: EventKit, url: str, host: str) -> None:
    with receiving() as inside, working.working(calling(url)):
        webhook = Webhook(callback_url=f"http://{host}:{inside.port}/", max_attempts=6)
        [enqueued] = kit.queue("default").enqueue_many([webhook.task()])
        assert "is not a public address" in error_of(kit, enqueued.id)
        assert inside.received == []
        info = kit.queue("default").get(enqueued.id)
        assert info is not None
        assert (info.reason, info.attempt) == ("failed", 1)


@proves("E15")
@pytest.mark.parametrize("status", [302, 308])
def test_redirects_are_not_followed(kit: EventKit, url: str, status: int) -> None:
    with receiving("127.0.0.2") as inside:
        reply = Reply(status, headers={"Location": f"{inside.url}/secret"})
        with receiving(reply=lambda path: reply) as outside, working.working(calling(url, "127.0.0.0/8")):
            [enqueued] = kit.queue("default").enqueue_many([Webhook(callback_url=outside.url, max_attempts=6).task()])
            assert f"the receiver answered {status}: redirects are not followed" in error_of(kit, enqueued.id)
            assert (len(outside.received), len(inside.received)) == (1, 0)
