"""Channels: telling whoever listens at the moment, and listening."""

from typing import Annotated, Any

import msgspec
from litestar.params import FromPath, HeaderParameter, JSONBody

from ..operations import Operation, Probe
from ..operations.channel import FindNow, NotificationsAhead, ReadNotifications
from ..records import Notification
from .live import Live, live
from .routing import route
from .service import Desk, Service


class NewNotification(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A notification for a channel."""

    payload: msgspec.Raw
    headers: dict[str, str] | None = None


class Notified(msgspec.Struct, frozen=True):
    """The notification's id."""

    id: int


class Hearing:
    """A channel, as `live` follows it."""

    def __init__(self, desk: Desk, channel: str) -> None:
        self._channels = (desk.channel(channel).name,)
        self._codec = desk.raw

    def read(self, after: int, limit: int) -> Operation[list[Notification[Any]]]:
        """The notifications after an id."""
        return ReadNotifications(self._channels, after, limit, self._codec)

    def ahead(self, after: int) -> Probe:
        """Whether there is one."""
        return NotificationsAhead(self._channels, after)

    def position(self, item: Notification[Any]) -> int:
        """Its id."""
        return item.id


LastEventId = Annotated[str | None, HeaderParameter(name="Last-Event-ID", description="Where to go on.")]


@route("POST", "/channels/{channel:str}", scope="produce", on="channel", status=201)
async def notify(service: Service, channel: FromPath[str], data: JSONBody[NewNotification]) -> Notified:
    """Tell everyone who listens."""
    handle = service.channel(channel)
    with service.pressure.write():
        return Notified(await handle.notify(data.payload, headers=data.headers))


@route("GET", "/channels/{channel:str}/sse", scope="consume", on="channel", live=True)
async def listen(service: Service, channel: FromPath[str], last_event_id: LastEventId = None) -> Live:
    """Listen as server-sent events: to what is committed from now on, or after the id that was heard last."""
    return await live(service, Hearing(service, channel), FindNow((channel,)), last_event_id)


routes = [notify, listen]
