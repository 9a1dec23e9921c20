"""Arguments of tasks: allowed declarations, their encoding, and refusals at the place of the mistake."""

import enum
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pytest

from eventkit import App, TaskContext
from eventkit.app import AsyncTaskContext
from eventkit.app.declarations import Signature
from eventkit.app.task import CallOptions
from eventkit.conformance import proves


class Colour(enum.Enum):
    """An enum in annotations of parameters."""

    RED = "red"


@dataclass
class Address:
    """A plain class with fields."""

    city: str
    numbers: list[int]


class Point(msgspec.Struct, eq=False):
    """A struct that is only equal to itself."""

    x: float


class Row(msgspec.Struct):
    """An item of a batch."""

    id: int


def everything(
    text: str,
    number: int,
    ratio: float,
    moment: datetime,
    day: date,
    id: UUID,
    price: Decimal,
    colour: Colour,
    where: Address,
    point: Point,
    tags: set[str],
    pair: tuple[int, str],
    by_number: dict[int, Address],
    choice: Literal["a", "b"],
    few: Annotated[int, msgspec.Meta(le=3)],
    maybe: str | None,
    anything: Any,
    plain,  # type: ignore[no-untyped-def]
) -> None:
    """A task with a parameter of each kind."""


EVERYTHING: dict[str, Any] = {
    "text": "é\0",
    "number": 1,
    "ratio": 1,
    "moment": datetime(2030, 1, 1, tzinfo=UTC),
    "day": date(2030, 1, 1),
    "id": UUID(int=1),
    "price": Decimal("1.10"),
    "colour": Colour.RED,
    "where": Address("York", [1]),
    "point": Point(1.5),
    "tags": {"a", "b"},
    "pair": (1, "x"),
    "by_number": {1: Address("York", [])},
    "choice": "a",
    "few": 3,
    "maybe": None,
    "anything": [1, {"a": None}],
    "plain": {"b": (1, 2)},
}


def signature(function: Any, **options: Any) -> Signature:
    return Signature(function, "send", **options)


@proves("A2")
def test_arguments_travel_by_name_and_arrive_as_they_were() -> None:
    one = signature(everything)
    encoded = one.encode((), EVERYTHING)
    read = one.decode(msgspec.json.decode(msgspec.json.encode(encoded)))
    assert read.pop("point").x == 1.5
    expected = {**EVERYTHING, "plain": {"b": [1, 2]}}
    del expected["point"]
    assert read == expected
    assert all(type(value) is type(expected[name]) for name, value in read.items() if name != "ratio")
    assert one.encode(tuple(EVERYTHING.values()), {}) == encoded


@proves("A2")
def test_defaults_and_the_context_do_not_travel() -> None:
    """What arrives from another program is checked too."""

    def send(to: str, ctx: TaskContext, subject: str = "Hello", *, retries: int | None = None) -> None: ...
    async def send_later(to: str, ctx: AsyncTaskContext) -> None: ...

    one = signature(send)
    assert (one.context, one.required, signature(send_later).context) == ("ctx", ["to"], "ctx")
    assert one.encode(("ann",), {}) == {"to": "ann"}
    assert one.decode({"to": "ann"}) == {"to": "ann"}
    assert one.encode(("ann", "Hi"), {"retries": None}) == {"to": "ann", "subject": "Hi", "retries": None}
    assert one.decode({"to": "ann", "retries": 2}) == {"to": "ann", "retries": 2}
    for args in (None, [], {}, {"to": 1}, {"to": "ann", "too": 1}, {"to": None}):
        with pytest.raises(msgspec.ValidationError):
            one.decode(args)


@proves("A2")
@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "send: Missing required argument 'to'"),
        ((1,), {}, "send: Expected `str`, got `int`"),
        (("a", "b", "c"), {}, "send: at most 2 positional arguments, not 3"),
        (("a",), {"to": "a"}, "send: 'to' is given twice"),
        (("a",), {"too": "a"}, "send: Unexpected keyword argument 'too'"),
        (("a",), {"other": {1}}, "send: 'other' would arrive as list"),
        (("a",), {"other": {"at": datetime(2030, 1, 1, tzinfo=UTC)}}, "send: 'other' would arrive as dict"),
        (("a",), {"other": {1: 2}}, "send: 'other' would arrive as dict"),
        (("a",), {"other": object()}, "send: .*object"),
        (("a",), {"address": {"city": "York", "numbers": []}}, "send: 'address' would arrive as Address"),
        (("a",), {"ctx": None}, "send: 'ctx' is the context"),
    ],
)
def test_what_the_function_would_not_take_is_refused(args: Any, kwargs: Any, message: str) -> None:
    def send(
        to: str,
        ctx: TaskContext,
        other: Any = None,
        *,
        address: Address | None = None,
    ) -> None: ...

    with pytest.raises(TypeError, match=message):
        signature(send).encode(args, kwargs)


@proves("A2")
def test_parameters_that_no_task_can_have_are_refused_where_they_are_declared() -> None:
    def positional(to: str, /) -> None: ...
    def several(*to: str) -> None: ...
    def named(**to: str) -> None: ...
    def two(to: Address | Row) -> None: ...
    def contexts(one: TaskContext, other: TaskContext) -> None: ...
    def other_context(ctx: AsyncTaskContext) -> None: ...

    for function, remedy in (
        (positional, "remove the /"),
        (several, "declare a list"),
        (named, "declare a dict"),
        (two, "cannot be decoded from JSON"),
        (contexts, "only one parameter may take the context"),
        (other_context, "annotate TaskContext"),
    ):
        with pytest.raises(TypeError, match=remedy):
            App().task(function)


@proves("A2")
def test_a_parameter_may_have_any_name() -> None:
    """Options are passed to `options`, so a parameter may have the name of one, or that of a method's own parameter."""
    names = [*CallOptions.__annotations__, "self", "args", "kwargs", "function", "options"]
    namespace: dict[str, Any] = {}
    exec(f"def send({', '.join(names)}): return {names[0]}, self", namespace)
    send: Any = App().task(namespace["send"])
    arguments = {name: name for name in names}
    new = send.options(delay=5, key="k").new(**arguments)
    assert (new.delay, new.key, new.payload["args"]) == (5, "k", arguments)
    assert send(**arguments) == (names[0], "self")
    with pytest.raises(TypeError, match="a call has no option 'delays'; the options are: delay, run_at"):
        send.options(delays=5)
    with pytest.raises(TypeError, match="new.. enqueues nothing: pass wait="):
        send.options(wait=5).new(**arguments)


@proves("A2")
def test_an_annotation_may_be_written_before_its_class() -> None:
    """An annotation is resolved at its first use, so the module may define the class later."""
    app = App()
    module: dict[str, Any] = {"app": app}
    exec("@app.task\ndef send(to: 'Later') -> None: ...\nclass Later: ...", module)
    with pytest.raises(TypeError, match="Later"):
        module["send"].new("a")


@proves("A2")
def test_a_batch_has_one_item_of_its_list_in_each_task() -> None:
    def index(rows: list[Row]) -> None: ...
    def two(rows: list[Row], more: int) -> None: ...
    def unlisted(rows: Row) -> None: ...
    def with_context(rows: list[Row], ctx: TaskContext) -> None: ...

    one = signature(index, batch=True)
    assert one.encode((Row(1),), {}) == {"rows": {"id": 1}}
    assert one.decode({"rows": {"id": 1}}) == {"rows": Row(1)}
    with pytest.raises(TypeError, match="Expected `object`, got `array`"):
        one.encode(([Row(1)],), {})
    for function in (two, unlisted):
        with pytest.raises(TypeError, match="one parameter, annotated list"):
            signature(function, batch=True)
    with pytest.raises(TypeError, match="a batch has no context"):
        signature(with_context, batch=True)
