"""Types of payloads for handles and outboxes."""

from dataclasses import dataclass
from datetime import datetime
from typing import TypedDict, assert_type

import msgspec

from eventkit import Message


@dataclass
class Email:
    to: str


class Order(msgspec.Struct):
    id: int


class Alert(TypedDict):
    text: str


def send(message: Message[Email]) -> None:
    assert_type(message.payload.to, str)
    assert_type(message.message_id, str)
    assert_type(message.enqueued_at, datetime)


async def send_later(message: Message[Email]) -> bool:
    return bool(message.headers)
