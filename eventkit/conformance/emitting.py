"""Models of an application whose rows are events."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import ForeignKey, Numeric, Text, func
from sqlalchemy.orm import Mapped, mapped_column, relationship

from ..sqlalchemy import emits
from .orders import Base


def described(account: Account) -> dict[str, Any]:
    """Return a payload with the columns that the database sets, and one of a related object."""
    return {"id": account.id, "name": account.name, "opened": account.opened, "entries": len(account.entries)}


class Noted:
    """A mixin that declares a topic."""

    note: Mapped[str | None] = mapped_column(default=None)


emits("notes", on=("update",), payload=lambda row: row.note, key=lambda row: None)(Noted)


@emits("accounts", payload=described, key=lambda account: account.name)
@emits("gone", on=("delete",), payload=lambda account: account.name)
class Account(Noted, Base):
    """A model that emits to two topics, and to a third by its mixin."""

    __tablename__ = "suite_account"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    opened: Mapped[datetime] = mapped_column(server_default=func.now())
    entries: Mapped[list[Entry]] = relationship(cascade="all, delete-orphan", back_populates="account")


@emits("entries")
class Entry(Base):
    """A model without a payload of its own."""

    __tablename__ = "suite_entry"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    account_id: Mapped[int] = mapped_column(ForeignKey("suite_account.id"))
    kind: Mapped[str]
    amount: Mapped[Decimal] = mapped_column(Numeric(10, 2))
    at: Mapped[datetime | None]
    scan: Mapped[str | None] = mapped_column(Text, deferred=True)
    account: Mapped[Account] = relationship(back_populates="entries")
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "entry"}  # noqa: RUF012


class Transfer(Entry):
    """A subclass with a table of its own that inherits the declaration."""

    __tablename__ = "suite_transfer"

    id: Mapped[UUID] = mapped_column(ForeignKey("suite_entry.id"), primary_key=True)
    to: Mapped[str]
    __mapper_args__ = {"polymorphic_identity": "transfer"}  # noqa: RUF012


@emits("shapes", payload=lambda shape: shape.shape)
class Shape(Base):
    """A model whose payload the test sets, possibly to a value that is not JSON."""

    __tablename__ = "suite_shape"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    shape = None
