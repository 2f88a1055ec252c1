"""Do exceptions survive the log as what they were, and never as something that acts?"""

from __future__ import annotations

import asyncio
import builtins
import sys
import threading
from email.message import Message
from io import BytesIO
from typing import Any, cast
from urllib.error import HTTPError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redisworld import failures, values
from redisworld.errors import ErrorInfo, FatalError, MalformedMessage, RemoteError, StepTimeout


class OrderLost(Exception):
    """A user's exception."""


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


class Frozen(Exception):
    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"cannot change {name}")


class Closed(Exception):
    """Has names of its own where the record, the cause and the context go."""

    @property
    def info(self) -> str:
        return "its own"

    @property
    def __cause__(self) -> None:  # type: ignore[override]
        return None

    @property
    def __context__(self) -> BaseException | None:  # type: ignore[override]
        return KeyError("before")


class Undecided(Exception):
    """traceback asks whether it is true."""

    def __bool__(self) -> bool:
        raise RuntimeError("no")


made: list[int] = []


class Counted(Exception):
    """Its __init__ takes what args do not hold."""

    def __init__(self, number: int, *, held: object = None) -> None:
        super().__init__(f"number {number}")
        self.number, self.held, self.nothing = number, held, None
        made.append(number)


class TooLate(Exception):
    """A class that this process has, of a module that others may not have."""


OS_ERRORS = tuple(kind for kind in vars(builtins).values() if isinstance(kind, type) and issubclass(kind, OSError))


def values_of_any_shape() -> st.SearchStrategy[Any]:
    plain = st.none() | st.integers() | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
    names = st.sampled_from(["args", "__class__", "__cause__", "__traceback__", "info", "errno", "x"])
    pairs = st.lists(st.tuples(names, plain) | plain, max_size=3)
    return st.tuples(st.lists(plain, max_size=5).map(tuple) | plain, pairs | plain).map(list) | plain


def there_and_back(exc: BaseException) -> Exception:
    return failures.rebuild(failures.decode(failures.encode(failures.describe(exc))))


@pytest.mark.parametrize(
    "exc",
    [
        *(ValueError("bad"), KeyError("image"), TimeoutError("late"), FileNotFoundError("gone")),
        *(FatalError("stop"), StepTimeout("2m")),
    ],
    ids=lambda exc: type(exc).__name__,
)
def test_builtins_and_our_own_come_back_as_themselves(exc: Exception) -> None:
    back = there_and_back(exc)

    assert type(back) is type(exc)
    assert str(back) == str(exc)
    assert back.info == failures.describe(exc)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "exc",
    [
        *(SystemExit("1"), KeyboardInterrupt("x"), asyncio.CancelledError("x"), GeneratorExit("x")),
        *(StopIteration("x"), StopAsyncIteration("x")),
    ],
    ids=lambda exc: type(exc).__name__,
)
def test_what_ends_a_process_a_loop_or_is_unknown_here_comes_back_as_remote_error(exc: BaseException) -> None:
    back = there_and_back(exc)

    assert type(back) is RemoteError
    assert type(exc).__name__ in str(back)


def test_a_name_that_is_a_builtin_but_no_exception_is_never_called() -> None:
    assert type(failures.rebuild(ErrorInfo(type="exit", message="1"))) is RemoteError
    assert type(failures.rebuild(ErrorInfo(type="eval", message="1/0"))) is RemoteError


def test_type_message_and_traceback_are_recorded() -> None:
    try:
        raise OrderLost("order 7")
    except OrderLost as exc:
        info = failures.describe(exc, code="USER_ERROR")

    assert info.type == f"{__name__}.OrderLost"
    assert str(info) == f"{__name__}.OrderLost: order 7"
    assert info.code == "USER_ERROR"
    assert "in test_type_message_and_traceback_are_recorded" in (info.traceback or "")


def test_the_cause_chain_comes_back_and_is_bounded() -> None:
    error = ValueError("0")
    error.__cause__ = error  # a cycle, which must end

    back: BaseException | None = there_and_back(error)

    depth = 0
    while back is not None:
        assert type(back) is ValueError
        back, depth = back.__cause__, depth + 1
    assert depth == 1 + failures.MAX_CAUSES


def test_huge_and_hostile_texts_are_recorded_within_bounds() -> None:
    info = failures.describe(ValueError("\ud800" + "x" * 100_000))

    assert len(failures.encode(info)) < 3.1 * failures.MAX_TEXT
    assert info.message.endswith("[83622 characters cut]")
    assert "RuntimeError" in failures.describe(Unprintable()).message


def test_rubbish_is_no_error_info() -> None:
    with pytest.raises(MalformedMessage):
        failures.decode(b"\x93rubbish")


def test_a_class_comes_back_without_its_init_and_with_the_attributes_that_can_be_stored() -> None:
    original = Counted(7, held=threading.Lock())
    made.clear()

    back = there_and_back(original)

    assert (type(back), str(back), made) == (Counted, "number 7", [])
    assert {name: value for name, value in vars(back).items() if name != "info"} == {"number": 7, "nothing": None}


@pytest.mark.parametrize("exc", [Frozen("x"), Unprintable("x")], ids=lambda exc: type(exc).__name__)
def test_a_class_whose_own_methods_raise_comes_back_all_the_same(exc: Exception) -> None:
    exc.__dict__["__notes__"] = ["order 7"]

    back = there_and_back(exc)

    assert (type(back), back.args, back.__notes__) == (type(exc), ("x",), ["order 7"])


def test_a_class_with_properties_where_the_record_goes_comes_back_and_keeps_them() -> None:
    back = there_and_back(Closed("x"))

    assert (type(back), str(back), cast("Any", back).info) == (Closed, "x", "its own")


def test_a_class_of_a_module_that_other_processes_may_not_have_comes_back_the_same_everywhere() -> None:
    info = failures.describe(TooLate("x"), modules={"builtins"})

    assert __name__ in sys.modules
    assert type(failures.rebuild(info)) is RemoteError


def test_a_class_whose_module_is_not_loaded_here_is_not_imported() -> None:
    contents = failures.describe(OrderLost("x")).contents
    assert "antigravity" not in sys.modules

    back = failures.rebuild(ErrorInfo(type="antigravity.Error", message="x", contents=contents))

    assert type(back) is RemoteError
    assert "antigravity" not in sys.modules


@pytest.mark.parametrize("name", ["os.system", "subprocess.Popen", f"{__name__}.made", "builtins.int", "x..y", "."])
def test_what_is_no_exception_class_is_never_made(name: str) -> None:
    contents = failures.describe(OrderLost("true")).contents

    assert type(failures.rebuild(ErrorInfo(type=name, message="true", contents=contents))) is RemoteError


@given(contents=st.binary(max_size=40) | values_of_any_shape().map(values.encode))
def test_contents_that_do_not_fit_the_class_make_no_error_of_another_kind(contents: bytes) -> None:
    for kind in ("OSError", "UnicodeDecodeError", f"{__name__}.Counted", "ExceptionGroup", "KeyError"):
        back = failures.rebuild(ErrorInfo(type=kind, message="x", contents=contents))
        assert type(back).__name__ == kind.rpartition(".")[2] or type(back) in (RemoteError, *OS_ERRORS)


def test_notes_and_the_error_that_was_being_handled_come_back() -> None:
    def handling() -> None:
        try:
            raise KeyError("image")
        except KeyError:
            raise ValueError("no such image")  # noqa: B904

    with pytest.raises(ValueError, match="image") as raised:
        handling()
    raised.value.add_note("order 7")

    back = there_and_back(raised.value)

    assert (type(back), back.__notes__) == (ValueError, ["order 7"])
    assert back.__cause__ is None
    assert not back.__suppress_context__
    assert repr(back.__context__) == "KeyError('image')"


def test_raised_from_none_hides_what_was_being_handled() -> None:
    def hiding() -> None:
        try:
            raise KeyError("image")
        except KeyError:
            raise ValueError("no such image") from None

    with pytest.raises(ValueError, match="image") as raised:
        hiding()

    assert there_and_back(raised.value).__context__ is None


def test_a_group_comes_back_with_its_members_and_theirs() -> None:
    group = ExceptionGroup("outer", [OrderLost("a"), ExceptionGroup("inner", [KeyError("b")])])

    back = there_and_back(group)

    assert repr(back) == repr(group)
    assert isinstance(back, ExceptionGroup)
    assert back.subgroup(KeyError) is not None


def test_a_line_about_a_group_names_its_first_members() -> None:
    """What a TaskGroup raises says "unhandled errors in a TaskGroup" and nothing of them."""
    group = ExceptionGroup("in a TaskGroup", [ExceptionGroup("inner", [KeyError("b")]), *map(ValueError, range(4))])

    told = str(failures.describe(group))

    assert told == (
        "ExceptionGroup: in a TaskGroup (ExceptionGroup: inner (KeyError: b); ValueError: 0; ValueError: 1; 2 more)"
    )


def test_a_group_too_large_says_how_much_of_it_is_missing() -> None:
    back = there_and_back(ExceptionGroup("many", [ValueError(number) for number in range(100)]))

    assert isinstance(back, ExceptionGroup)
    assert [error.args[0] for error in back.exceptions] == list(range(failures.MAX_ERRORS - 1))
    assert back.__notes__ == ["37 more exceptions of this group were not recorded"]


def test_a_record_that_would_be_huge_is_made_without_what_belongs_to_it() -> None:
    group = ExceptionGroup("g", [ExceptionGroup("h", [ValueError("x" * 20_000)] * 40)] * 40)

    info = failures.describe(group)

    assert len(failures.encode(info)) < failures.MAX_BYTES
    assert (info.type, info.message) == ("ExceptionGroup", "g")
    assert type(failures.rebuild(info)) is RemoteError


def test_a_rebuilt_error_that_is_raised_on_shows_the_traceback_of_the_step() -> None:
    def the_steps_own_code() -> None:
        raise OrderLost("order 7")

    try:
        the_steps_own_code()
    except OrderLost as error:
        recorded = failures.describe(error)
    try:
        raise failures.rebuild(recorded)
    except OrderLost as again:
        whole = failures.describe(again)
    try:
        raise ValueError("gave up") from failures.rebuild(recorded)
    except ValueError as other:
        cause = failures.describe(other).cause

    assert "in the_steps_own_code" in (whole.traceback or "")
    assert "recorded by a step and raised again here" in (whole.traceback or "")
    assert cause is not None
    assert "in the_steps_own_code" in (cause.traceback or "")


@pytest.mark.parametrize("exc", [HTTPError("http://x", 500, "down", Message(), BytesIO()), Undecided("x")])
def test_an_exception_whose_traceback_cannot_be_written_keeps_its_message(exc: Exception) -> None:
    """HTTPError without its response, which cannot be stored, raised KeyError there before Python 3.12."""
    try:
        raise there_and_back(exc)
    except Exception as again:
        info = failures.describe(again)

    assert (info.message, type(failures.rebuild(info))) == (str(exc), type(exc))
    assert "test_an_exception_whose_traceback" in (info.traceback or "")


def test_an_exception_that_cannot_even_be_looked_at_is_recorded_by_its_class() -> None:
    class Untouchable(TimeoutError):
        def __getattribute__(self, name: str) -> Any:
            raise LookupError(name)

    info = failures.describe(Untouchable(), code="USER_ERROR")

    assert (info.type.endswith("Untouchable"), info.base, info.code) == (True, "TimeoutError", "USER_ERROR")
    assert "LookupError" in info.message
    assert type(failures.rebuild(info)) is TimeoutError
