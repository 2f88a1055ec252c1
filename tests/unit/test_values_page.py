"""Is docs/values.md true? Each line of its tables is run."""

from __future__ import annotations

import re
import sys
import threading
import types
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from redisworld import InvalidValue, ReplayDivergence, Workflows, failures
from redisworld.errors import InvalidArguments
from redisworld.replay.commands import Failed
from redisworld.replay.engine import Instance
from redisworld.values import Signature, decode, decode_foreign, encode, encode_foreign
from tests.unit.replay_driver import Driver
from tests.unit.test_values import same

pytest.importorskip("pydantic")

PAGE = (Path(__file__).parents[2] / "docs" / "values.md").read_text()
CLASSES, EXCEPTIONS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
LOCK = threading.Lock()


def rows(title: str, number: int = 0) -> list[list[str]]:
    """The cells of a section's table, the code in them without its marks."""
    section = PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]
    table = re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE)[number]
    cells = [re.split(r"(?<!\\)\|", line.strip("|\n")) for line in table.splitlines()[2:]]
    return [[cell.strip().replace("\\|", "|") for cell in row] for row in cells]


def code(cell: str) -> str:
    return cell.removeprefix("`").removesuffix("`")


def application(source: str) -> dict[str, Any]:
    """The names of a module ``app`` with this source, and what the tables use."""
    sys.modules["app"] = module = types.ModuleType("app")
    exec(compile(USED + source, "app.py", "exec", dont_inherit=True), vars(module))
    return vars(module)


USED = """
import collections, dataclasses, enum, threading
from collections.abc import Iterable, Sequence
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Any, Literal
from uuid import UUID
from zoneinfo import ZoneInfo
from redisworld import FatalError, InvalidValue, RemoteError
"""
MORE = """
@dataclass
class Sum:
    a: int
    b: dataclasses.InitVar[int] = 0

@dataclass
class Unset:
    a: int
    b: int = field(init=False)

class Odd(enum.Enum):
    ONE = (1,)

class Rules(tzinfo):
    def utcoffset(self, when):
        return when and timedelta(hours=2)
    def tzname(self, when):
        return "RULES"

def deep(levels):
    return [deep(levels - 1)] if levels else 1

def recursive():
    value = []
    value.append(value)
    return value
"""
ATTRS = """
@attrs.define
class Invoice:
    number: int
    points: list[Point]
"""
STATES = """
State = enum.Enum("State", {"OLD": "old"})
NewState = enum.Enum("NewState", {"NEW": "new"})
"""
RAISED = """
def local(name, base):
    return type(name, (base,), {"__module__": "app", "__qualname__": f"local.<locals>.{name}"})

def noted(error, note):
    error.add_note(note)
    return error
"""

NAMES = application(CLASSES + MORE)
del sys.modules["app"]


@pytest.fixture(autouse=True)
def _without_the_application() -> Iterator[None]:
    yield
    sys.modules.pop("app", None)


def evaluated(text: str) -> Any:
    if text.startswith("Invoice"):
        NAMES["attrs"] = pytest.importorskip("attrs")
        if "Invoice" not in NAMES:
            exec(compile(ATTRS, "app.py", "exec", dont_inherit=True), NAMES)
    return eval(text, NAMES)


@pytest.mark.parametrize("example", [code(row[0]) for row in rows("Kept without an annotation")])
def test_what_needs_no_annotation_comes_back_as_itself(example: str) -> None:
    value = evaluated(example)
    holders = [value, [value], (value,), {"k": value}]

    for holder in holders:
        signature = Signature(lambda x: x)
        [back], _ = signature.decode_call(signature.encode_call([holder], {}))
        assert same(back, holder)
        assert same(signature.decode_result(signature.encode_result(holder)), holder)
    if isinstance(value, datetime):
        assert (back := signature.decode_result(signature.encode_result(value))).tzname() == value.tzname()
        assert back.isoformat() == value.isoformat()


@pytest.mark.parametrize(
    ("example", "annotation"), [[*map(code, row[:2])] for row in rows("Kept where the annotation names the type")]
)
def test_what_needs_the_annotation_comes_back_with_it_and_is_refused_without(example: str, annotation: str) -> None:
    value, kind = evaluated(example), evaluated(annotation)
    signature = Signature(returns(kind), "step s")

    [back], _ = signature.decode_call(signature.encode_call([value], {}))

    assert (type(back), back) == (type(value), value)
    assert signature.decode_result(signature.encode_result(value)) == value
    with pytest.raises(InvalidValue, match="would not come back as itself; annotate the parameter or result with"):
        encode(value)


@pytest.mark.parametrize(("example", "annotation"), [[*map(code, row[:2])] for row in rows("Refused")])
def test_what_is_refused_names_the_argument_at_the_call(example: str, annotation: str) -> None:
    value, kind = evaluated(example), evaluated(annotation or "Any")
    signature = Signature(returns(kind), "step s")

    with pytest.raises(InvalidValue, match=r"^step s: (argument 'value'|the arguments)"):
        signature.encode_call([value], {})
    with pytest.raises(InvalidValue, match=r"^step s: the result"):
        signature.encode_result(value)


def returns(kind: Any) -> Any:
    def step(value: Any) -> Any:
        return value

    step.__annotations__ = {"value": kind, "return": kind}
    return step


def test_an_object_is_its_fields_and_nothing_else() -> None:
    customer, line = NAMES["Customer"], NAMES["Line"]
    sent = line()
    sent.seen = True

    [back], _ = roundtrip(sent)
    [model], _ = roundtrip(customer(customerName="c"))

    assert back == sent
    assert not hasattr(back, "seen")
    assert model == customer(customerName="c")
    assert model.model_fields_set == {"name", "points"}


def roundtrip(value: Any) -> Any:
    signature = Signature(returns(type(value)), "step s")
    return signature.decode_call(signature.encode_call([value], {}))


def test_who_reads_without_the_annotation_gets_the_contents() -> None:
    for example, kind, contents in (
        ("Point(1.0)", "Point", {"x": 1.0, "y": 0.0}),
        ("Size(1)", "Size", [1, None]),
        ("Level.HIGH", "Level", 3),
    ):
        assert decode(encode(evaluated(example), type=evaluated(kind))) == contents


# --- deploys


HERE, CONFORMANCE = "unit/test_values_page.py", "conformance/test_values.py"
HAPPENS = {
    "the arguments of a run": (HERE, "a_run_whose_arguments_no_longer_fit_fails_and_says_why"),
    "the arguments of a step": (CONFORMANCE, "arguments_under_way_are_read_by_the_code_that_is_deployed_then"),
    "the result of a step": (HERE, "a_result_that_no_longer_fits_is_the_bodys_to_catch"),
    "the payload of a hook": ("conformance/test_hooks.py", "a_payload_that_does_not_fit_is_the_bodys_to_catch"),
    "the result of a run": (CONFORMANCE, "the_result_of_a_run_that_no_longer_fits_is_still_there_for_the_old_code"),
    "the arguments of a step that a replay asks for with other values": (
        HERE,
        "a_replay_that_asks_for_a_step_with_other_values_diverges",
    ),
}


def test_each_line_of_what_happens_has_its_test() -> None:
    assert [row[0] for row in rows("When a class changes between deploys", 1)] == list(HAPPENS)
    for file, name in HAPPENS.values():
        assert f"def test_{name}" in (Path(__file__).parents[1] / file).read_text(), name


def order_class(fields: str) -> Any:
    """The class with these fields, as one deployment has it."""
    lines = "".join(f"    {line.strip()}\n" for line in fields.split(";"))
    return application(f"{STATES}\n@dataclasses.dataclass\nclass Order:\n{lines}")["Order"]


CHANGES = [[*map(code, row[1:4]), row[4]] for row in rows("When a class changes between deploys")]


@pytest.mark.parametrize(("before", "now", "stored", "read"), CHANGES)
def test_what_a_change_of_a_class_makes_of_what_is_stored(before: str, now: str, stored: str, read: str) -> None:
    old, new = order_class(before), order_class(now)
    value = eval(stored, {"Order": old})
    was, now_is = Signature(returns(old), "step s"), Signature(returns(new), "step s")
    argument, result, payload = was.encode_call([value], {}), was.encode_result(value), encode_foreign(value)

    if not read.startswith("refused: "):
        wanted = eval(code(read), {"Order": new})
        assert now_is.decode_call(argument) == ((wanted,), {})
        assert now_is.decode_result(result) == wanted
        assert decode_foreign(payload, new) == wanted
        return
    says = re.escape(read.removeprefix("refused: "))
    with pytest.raises(InvalidArguments, match=f"step s: argument 'value': does not fit .*{says}"):
        now_is.decode_call(argument)
    with pytest.raises(InvalidValue, match=f"step s: the result: does not fit .*{says}"):
        now_is.decode_result(result)
    with pytest.raises(InvalidValue, match=says):
        decode_foreign(payload, new)


@pytest.mark.parametrize(
    ("before", "now", "first", "then"),
    [
        ("id: int", "id: int; note: str = '-'", "Order(1)", "Order(1)"),
        ("id: int; note: str = '-'", "id: int", "Order(1, 'x')", "Order(1)"),
        ("id: int", "id: float", "Order(1)", "Order(1.0)"),
    ],
)
def test_a_replay_takes_the_stored_fields_for_the_same_call(before: str, now: str, first: str, then: str) -> None:
    driver = Driver(body_with(order_class(before), first))
    assert driver.store.open

    driver.deploy(body_with(order_class(now), then).func)

    assert driver.run() == "done"


def test_a_replay_that_asks_for_a_step_with_other_values_diverges() -> None:
    driver = Driver(body_with(order_class("id: int; size: int = 1"), "Order(1)"))
    driver.deploy(body_with(order_class("id: int; size: int = 2"), "Order(1)").func)

    with pytest.raises(ReplayDivergence, match=r"the log has step_created .* the code asked for it with"):
        driver.run()


def body_with(order: Any, made: str) -> Any:
    wf = Workflows()

    def ship(order: Any) -> str:
        return "shipped"

    ship.__annotations__["order"] = order
    step = wf.step(ship)

    async def place() -> str:
        await step(eval(made, {"Order": order}))
        return "done"

    return wf.workflow(place)


def test_a_result_that_no_longer_fits_is_the_bodys_to_catch() -> None:
    caught = reading_as(order_class("id: str"), catches=True)
    uncaught = reading_as(order_class("id: str"), catches=False)

    assert "step load: the result: does not fit" in Driver(caught, script=stored_order).run()
    failed = Driver(uncaught, script=stored_order).run()
    assert failed.type == "redisworld.errors.InvalidValue"
    assert failed.code == "USER_ERROR"


def stored_order(name: str, *args: Any) -> Any:
    return {"id": 1}


def reading_as(order: Any, *, catches: bool) -> Any:
    wf = Workflows()

    def load() -> None: ...

    load.__annotations__["return"] = order
    step: Any = wf.step(load)

    @wf.workflow
    async def body() -> str:
        try:
            return str(await step())
        except InvalidValue as error:
            if catches:
                return str(error)
            raise

    return body


def test_a_run_whose_arguments_no_longer_fit_fails_and_says_why() -> None:
    old, new = body_taking(order_class("id: int")), body_taking(order_class("id: str"))
    data = old.signature.encode_call([old.func.__annotations__["order"](1)], {})

    instance = Instance(run_id="r", workflow=new, input=data, at=1)
    instance.start()

    assert isinstance(instance.outcome, Failed)
    assert instance.outcome.error.type == "redisworld.errors.InvalidArguments"
    assert "workflow body: argument 'order'" in instance.outcome.error.message


def body_taking(order: Any) -> Any:
    async def body(order: Any) -> None: ...

    body.__annotations__["order"] = order
    return Workflows().workflow(body)


# --- exceptions


@pytest.mark.parametrize(("raised", "given"), [[*map(code, row[:2])] for row in rows("Exceptions")])
def test_an_exception_comes_back_as_the_page_says(raised: str, given: str) -> None:
    names = application(EXCEPTIONS + RAISED)
    names["LOCK"] = LOCK
    exc, wanted = eval(raised.replace("threading.Lock()", "LOCK"), names), eval(given, names)

    back = failures.rebuild(failures.decode(failures.encode(failures.describe(exc))))

    assert alike(back, wanted), repr(back)
    assert str(back) == str(wanted)


def alike(a: Any, b: Any) -> bool:
    if isinstance(a, ExceptionGroup):
        return a.message == b.message and all(map(alike, a.exceptions, b.exceptions))
    mine, theirs = ({k: v for k, v in vars(e).items() if k != "info"} for e in (a, b))
    return type(a) is type(b) and a.args == b.args and mine == theirs
