"""Do user values come back as themselves, or are they refused with their place and type?"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import math
import threading
from collections import OrderedDict
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, NamedTuple, Required, TypedDict, Unpack
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redisworld.errors import InvalidArguments, InvalidInput, InvalidValue, MalformedMessage
from redisworld.values import Signature, decode, encode

KOLKATA = ZoneInfo("Asia/Kolkata")
BERLIN = ZoneInfo("Europe/Berlin")


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


@dataclasses.dataclass(frozen=True)
class Point:
    x: float
    y: float = 0.0


@dataclasses.dataclass
class Count:
    n: Any


@dataclasses.dataclass
class Shape:
    name: str
    points: list[Point]
    colour: Colour
    made: datetime
    size: int = 10**40
    extra: Any = None
    path: Path = Path("here")
    where: tuple[int, ...] = (1, 2)


class Order(msgspec.Struct, tag="order", rename="camel"):
    order_id: UUID
    total: Decimal
    tags: set[str]


class Pair(msgspec.Struct, array_like=True):
    left: int
    right: Point


class Size(NamedTuple):
    width: int
    height: int


class Options(TypedDict):
    colour: Colour
    note: str


class Sized(msgspec.Struct):
    """With a default that is not what a field that is UNSET comes back as."""

    size: int | msgspec.UnsetType = 5


class Cat(msgspec.Struct, tag=True):
    name: str


class Dog(msgspec.Struct, tag=True):
    name: str


@dataclasses.dataclass(kw_only=True)
class Tree:
    shape: Shape | None
    left: Tree | None = None
    by_name: dict[str, Tree]
    by_point: dict[Point, int]
    sizes: frozenset[Size]
    sized: set[tuple[int, Size]]
    level: Level
    options: Options | None
    pets: list[Cat | Dog]


def same(a: Any, b: Any) -> bool:
    """Equal, of equal types all the way down, NaN being equal to itself."""
    if type(a) is not type(b):
        return False
    if dataclasses.is_dataclass(a):
        return same(vars(a), vars(b))
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (set, frozenset)):
        return sorted(map(repr, a)) == sorted(map(repr, b))
    if isinstance(a, datetime):
        return bool(a == b) and a.utcoffset() == b.utcoffset() and a.fold == b.fold
    return repr(a) == repr(b) if isinstance(a, (float, Decimal)) else bool(a == b)


texts = st.text(st.characters(exclude_categories=["Cs"]))
zones = st.sampled_from([None, UTC, KOLKATA, BERLIN, timezone(timedelta(hours=-3, seconds=7))])
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**45), 10**45)
    | st.floats()
    | texts
    | st.binary()
    | st.decimals()
    | st.uuids()
    | st.datetimes(timezones=zones)
    | st.dates()
    | st.times()
    | st.timedeltas()
)
keys = st.integers() | texts | st.booleans() | st.none() | st.uuids() | st.tuples(st.integers(), texts) | st.dates()
plain_values = st.recursive(
    scalars | st.binary().map(bytearray) | texts.filter(lambda t: "\0" not in t).map(Path),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(keys, inner, max_size=4)
        | st.frozensets(keys, max_size=4)
        | st.sets(keys, max_size=4)
    ),
    max_leaves=12,
)


@given(value=plain_values)
@settings(max_examples=300)
def test_plain_values_come_back_as_themselves_without_an_annotation(value: Any) -> None:
    assert same(decode(encode(value)), value)


shapes = st.builds(
    Shape,
    name=texts,
    points=st.lists(st.builds(Point, st.floats(), st.floats()), max_size=2),
    colour=st.sampled_from(Colour),
    made=st.datetimes(timezones=zones),
    extra=plain_values,
    where=st.lists(st.integers(), max_size=3).map(tuple),
)
sizes = st.builds(Size, st.integers(), st.integers())
trees = st.deferred(
    lambda: st.builds(
        Tree,
        shape=shapes | st.none(),
        left=trees | st.none(),
        by_name=st.dictionaries(texts, trees, max_size=1),
        by_point=st.dictionaries(st.builds(Point, st.floats(allow_nan=False)), st.integers(), max_size=2),
        sizes=st.frozensets(sizes, max_size=2),
        sized=st.sets(st.tuples(st.integers(), sizes), max_size=2),
        level=st.sampled_from(Level),
        options=st.fixed_dictionaries({"colour": st.sampled_from(Colour), "note": texts}) | st.none(),
        pets=st.lists(st.builds(Cat, texts) | st.builds(Dog, texts), max_size=2),
    )
)


@given(value=trees)
@settings(max_examples=100)
def test_named_types_of_any_shape_come_back_as_themselves(value: Tree) -> None:
    assert same(decode(encode(value, type=Tree), Tree), value)


def test_a_set_is_the_same_bytes_whatever_its_order_is_in_this_process() -> None:
    one, other = {0, 8, "a"}, {8, "a", 0}
    assert list({0, 8}) != list({8, 0})

    assert encode(one) == encode(other)
    assert encode(frozenset(one)) == encode(frozenset(other))


@pytest.mark.parametrize("zone", [ZoneInfo("Asia/Kolkata"), timezone(timedelta(hours=1), "CET"), UTC])
def test_a_datetime_in_a_named_type_keeps_its_zone(zone: Any) -> None:
    back = decode(encode(Count(datetime(2025, 1, 1, tzinfo=zone)), type=Count), Count)

    assert back.n.tzinfo == zone
    assert back.n.tzname() == datetime(2025, 1, 1, tzinfo=zone).tzname()


@pytest.mark.parametrize("value", [2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 10**40, -(10**40), True])
def test_integers_of_any_size_come_back_exactly_wherever_they_stand(value: int) -> None:
    for holder in (value, [value], {"k": value}, {value: "v"}, (value,), {1: [(value,)]}, {value}):
        assert same(decode(encode(holder)), holder)
    assert same(decode(encode(Count(value), type=Count), Count).n, value)


def test_an_aware_datetime_keeps_its_zone_and_the_repeated_hour() -> None:
    second_time = datetime(2025, 10, 26, 2, 30, tzinfo=BERLIN, fold=1)

    back = decode(encode(second_time))

    assert back.tzinfo == BERLIN
    assert back.utcoffset() == timedelta(hours=1)


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (Point(1.5), Point),
        (Point(1), Point),
        (Shape("s", [Point(1.0)], Colour.RED, datetime(2025, 1, 1, tzinfo=KOLKATA), extra=(1, {2})), Shape),
        (Order(UUID(int=1), Decimal("0.10"), {"a"}), Order),
        (Pair(1, Point(2.0)), Pair),
        (Size(1, 2), Size),
        ({"colour": Colour.RED, "note": "n"}, Options),
        (Colour.RED, Colour),
        (Level.HIGH, Level),
        ([Colour.RED, None], list[Colour | None]),
        ({Colour.RED: Point(1.0)}, dict[Colour, Point]),
        ({Point(1.0), Point(2.0)}, set[Point]),
        ((1, Point(2.0)), tuple[int, Point]),
        (Point(1.0), Annotated[Point, "documented"]),
    ],
    ids=lambda item: getattr(type(item), "__name__", "x"),
)
def test_named_types_come_back_where_the_annotation_names_them(value: Any, annotation: Any) -> None:
    back = decode(encode(value, type=annotation), annotation)

    assert back == value
    assert type(back) is type(value)


def test_pydantic_models_come_back_where_the_annotation_names_them() -> None:
    pydantic = pytest.importorskip("pydantic")

    class Customer(pydantic.BaseModel):  # type: ignore[misc,name-defined]
        name: str = pydantic.Field(alias="customerName")
        since: date
        spent: Decimal
        colour: Colour = Colour.RED

    customer = Customer(customerName="c", since=date(2025, 1, 1), spent=Decimal("1.10"))

    for value, annotation in ((customer, Customer), ([customer], list[Customer]), (None, Customer | None)):
        assert decode(encode(value, type=annotation), annotation) == value
    with pytest.raises(InvalidValue, match="annotate"):
        encode(customer)


def test_a_value_that_needs_no_annotation_is_not_touched_by_one() -> None:
    signature = Signature(takes_plain)

    args, kwargs = signature.decode_call(signature.encode_call([1, (1, 2), "2025-01-01"], {}))

    assert (args, kwargs) == ((1, (1, 2), "2025-01-01"), {})
    assert type(args[0]) is int


def takes_plain(ratio: float, numbers: list[int], when: datetime) -> None: ...


class Text(str):
    pass


class Promised:
    """As a call of a step that nobody has awaited."""

    def __await__(self) -> Iterator[Any]:
        yield


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ({"when": [1j]}, ["value['when'][0]", "complex"]),
        (lambda: 1, ["value", "function"]),
        ([threading.Lock()], ["value[0]", "lock"]),
        ((x for x in ()), ["generator"]),
        (ValueError("x"), ["ValueError"]),
        (object(), ["object", "made of"]),
        ([Promised()], ["value[0]", "Promised", "await it"]),
        (Text("x"), ["Text", "plain str"]),
        (OrderedDict(a=1), ["OrderedDict", "plain dict"]),
        ({"p": Point(1.0)}, ["value['p']", "Point", "annotate"]),
        (Colour.RED, ["Colour", "annotate"]),
        (Level.HIGH, ["Level", "annotate"]),
        (Size(1, 2), ["Size", "annotate"]),
        (PurePosixPath("x"), ["PurePosixPath"]),
        ({Point(1.0): 1}, ["key", "Point"]),
        ("\ud800", ["surrogate"]),
        ({"\ud800": 1}, ["surrogate"]),
        (time(1, tzinfo=KOLKATA), ["offset"]),
        (Point, ["type"]),
    ],
    ids=lambda item: type(item).__name__,
)
def test_what_would_not_come_back_is_refused_with_place_and_type(value: Any, names: list[str]) -> None:
    with pytest.raises(InvalidValue) as refused:
        encode(value)

    assert all(name in str(refused.value) for name in names), str(refused.value)


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (Shape("s", [], Colour.RED, datetime(2025, 1, 1), extra=Colour.RED), Shape),
        (Shape("s", (Point(1.0),), Colour.RED, datetime(2025, 1, 1)), Shape),  # type: ignore[arg-type]
        (Point("far"), Point),  # type: ignore[arg-type]
        ([Point(1.0), Size(1, 2)], list[Point]),
        (Shape, Point),
        (Count({Level.HIGH}), Count),
        (Count({Level.HIGH: 1}), Count),
        (Count([(1, Level.HIGH)]), Count),
    ],
)
def test_a_named_type_holding_what_its_fields_do_not_say_is_refused_at_the_call(value: Any, annotation: Any) -> None:
    with pytest.raises(InvalidValue, match="value"):
        encode(value, type=annotation)


@pytest.mark.parametrize("wrap", [lambda v: [v], lambda v: (v,), lambda v: {"k": v}])
def test_too_deep_nesting_is_refused(wrap: Any) -> None:
    value: Any = 1
    for _ in range(1_000):
        value = wrap(value)

    with pytest.raises(InvalidValue, match="deeper than 100"):
        encode(value)


def test_what_contains_itself_is_refused_and_its_place_is_shown_in_short() -> None:
    items: list[Any] = []
    items.append(items)
    by_key: dict[str, Any] = {}
    by_key["again" * 50] = by_key
    node = Count(None)
    node.n = node

    for value in (items, by_key, node):
        with pytest.raises(InvalidValue, match="contains itself") as refused:
            encode(value, type=Count if value is node else Any)
        assert len(str(refused.value)) < 250


@dataclasses.dataclass
class Unset:
    n: int = dataclasses.field(init=False)


@dataclasses.dataclass
class Hostile:
    n: Any

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def __hash__(self) -> int:
        raise RuntimeError("no hash")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no eq")


@pytest.mark.parametrize(
    ("value", "annotation", "says"),
    [
        (Unset(), Unset, "has no attribute 'n'"),
        ([Hostile((1, Colour.RED))], list[Hostile], r"value\[0\].n\[1\]: a Colour would come back as str"),
        ({"k": Hostile(1)}, dict[str, Any], "annotate"),
    ],
)
def test_what_the_code_of_a_class_raises_is_a_refusal(value: Any, annotation: Any, says: str) -> None:
    with pytest.raises(InvalidValue, match=says):
        encode(value, type=annotation)
    if annotation == list[Hostile]:
        assert decode(encode([Hostile(1)], type=annotation), annotation)[0].n == 1


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize("key", [10**5000, Unspeakable()], ids=("digits", "repr"))
def test_a_place_that_python_cannot_write_is_no_error_of_its_own(key: Any) -> None:
    with pytest.raises(InvalidValue, match=r"cannot be shown.*would not come back"):
        encode({key: object()})


def test_a_field_that_is_unset_never_comes_back_as_its_default() -> None:
    with pytest.raises(InvalidValue, match=r"Sized\(size=UNSET\) would come back as Sized\(size=5\)"):
        encode(Sized(msgspec.UNSET), type=Sized)


def test_without_the_annotation_a_set_of_named_types_is_read_as_their_contents() -> None:
    data = encode({Point(1.0)}, type=set[Point])
    keys = encode({Point(1.0): "v"}, type=dict[Point, str])

    assert [*decode(data)] == [{"x": 1.0, "y": 0.0}]
    assert [*decode(keys).items()] == [({"x": 1.0, "y": 0.0}, "v")]


def test_a_payload_above_the_limit_is_refused_with_both_sizes() -> None:
    with pytest.raises(InvalidValue, match=r"1,00\d bytes, more than the 100"):
        encode(b"x" * 1_000, max_bytes=100)


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x93\x01", b"\xd4\x63x", b"\xc7\x02\x06xx", b"\xa1\xff"])
def test_rubbish_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode(data)


@given(data=st.binary(max_size=60))
def test_no_bytes_do_anything_but_give_a_value_or_malformed(data: bytes) -> None:
    with contextlib.suppress(MalformedMessage):
        decode(data)


# --- signatures ---------------------------------------------------------------------------------------------------


def everything(a: int, /, b: Point, *rest: Colour, c: str = "c", **more: Point) -> Point | None: ...


def test_a_call_comes_back_as_it_was_made() -> None:
    signature = Signature(everything, "step everything")
    args: Any = (1, Point(1.0), Colour.RED, Colour.RED)
    kwargs: Any = {"c": "x", "z": Point(3.0)}

    assert signature.decode_call(signature.encode_call(args, kwargs)) == (args, kwargs)
    assert everything(*args, **kwargs) is None


def test_arguments_are_stored_by_parameter_name_and_defaults_are_left_out() -> None:
    data = Signature(everything).encode_call((1,), {"b": Point(1.0)})

    assert msgspec.msgpack.decode(data) == {"a": 1, "b": {"x": 1.0, "y": 0.0}}


def test_a_default_before_a_given_parameter_is_left_to_the_function() -> None:
    def func(a: int = 1, b: int = 2, *, c: int = 3) -> tuple[int, int, int]:
        return a, b, c

    args, kwargs = Signature(func).decode_call(Signature(func).encode_call((), {"b": 9}))

    assert func(*args, **kwargs) == (1, 9, 3)


@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((1,), {}), ((1, 2), {"b": 3})])
def test_a_call_that_does_not_fit_is_refused_naming_the_step(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    with pytest.raises(InvalidArguments, match="step everything: "):
        Signature(everything, "step everything").encode_call(args, kwargs)


def test_a_refused_argument_is_named_with_its_path() -> None:
    with pytest.raises(InvalidValue, match=r"step everything: argument 'more'\['z'\]"):
        Signature(everything, "step everything").encode_call((1, Point(1.0)), {"z": 1j})


@pytest.mark.parametrize(
    ("stored", "says"),
    [
        ({"a": 1}, "lack 'b'"),
        ({"a": 1, "b": {"x": 1.0}, "gone": 1}, "no parameter 'gone'"),
        ({"a": 1, "b": "rubbish"}, "argument 'b'"),
        ({"a": 1, "b": {"x": 1.0}, "rest": 7}, "not iterable"),
        ([1], "not a map"),
    ],
)
def test_stored_arguments_that_do_not_fit_are_refused(stored: Any, says: str) -> None:
    with pytest.raises(InvalidArguments, match=says):
        Signature(everything, "step everything").decode_call(msgspec.msgpack.encode(stored))


def test_results_come_back_by_the_return_annotation() -> None:
    signature = Signature(everything, "step everything")

    assert signature.decode_result(signature.encode_result(Point(1.0))) == Point(1.0)
    assert signature.decode_result(signature.encode_result(None)) is None
    with pytest.raises(InvalidValue, match="step everything: the result"):
        signature.encode_result(threading.Lock())


def test_an_annotation_that_cannot_be_resolved_is_named_at_first_use() -> None:
    def func(image: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    signature = Signature(func, "step func")

    with pytest.raises(InvalidInput, match=r"step func: cannot resolve the annotation 'Missing' of 'image'"):
        signature.encode_call((1,), {})


def test_keywords_are_values_too() -> None:
    signature = Signature(lambda **more: more, "step s")

    for name in ("\ud800", Text("x")):
        with pytest.raises(InvalidValue, match=r"step s: argument 'more' key"):
            signature.encode_call((), {name: 1})


class Wishes(TypedDict, total=False):
    colour: Required[Colour]
    size: Size


def wishing(**wishes: Unpack[Wishes]) -> None: ...


def test_keywords_named_by_a_typed_dict_come_back_as_their_types() -> None:
    signature = Signature(wishing, "step wishing")

    data = signature.encode_call((), {"colour": Colour.RED, "size": Size(1, 2)})

    assert signature.decode_call(data) == ((), {"colour": Colour.RED, "size": Size(1, 2)})
    with pytest.raises(InvalidValue, match=r"step wishing: argument 'wishes'\['other'\]: a .*Point"):
        signature.encode_call((), {"colour": Colour.RED, "other": Point(1.0)})


def test_calls_are_the_same_where_this_code_reads_them_alike() -> None:
    signature = Signature(everything)
    stored = msgspec.msgpack.encode({"a": 1, "b": {"x": 1, "gone": 2}})

    assert signature.same_call(stored, signature.encode_call((1, Point(1.0)), {}))
    assert not signature.same_call(stored, signature.encode_call((1, Point(2.0)), {}))
    assert not signature.same_call(b"rubbish", signature.encode_call((1, Point(1.0)), {}))


def test_nan_in_a_named_type_is_no_difference() -> None:
    assert math.isnan(decode(encode(Point(math.nan), type=Point), Point).x)
