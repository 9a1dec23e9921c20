"""Channels: telling whoever listens at the moment, and listening."""

from typing import Annotated, Any

import msgspec
from litestar.params import FromPath, HeaderParameter, JSONBody

from .. import arguments
from ..operations import Operation, Probe
from ..operations.channel import FindNotification, FindNow, FollowNotifications, NotificationsAhead
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

    def place(self, after: int, *, seen: bool) -> Operation[tuple[int, int]]:
        """The last notification up to an id."""
        return FindNotification(self._channels, after, arguments.MOST)

    def read(self, place: tuple[int, int], limit: int) -> Operation[tuple[Any, ...]]:
        """The notifications after the one at *place*."""
        return FollowNotifications(self._channels, place, limit, self._codec)

    def ahead(self, place: tuple[int, int]) -> Probe:
        """Whether there is one."""
        return NotificationsAhead(self._channels, *place)

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
