"""Is what a user registers checked, named and callable as promised?"""

from __future__ import annotations

import asyncio
import doctest
import functools
import inspect
import pydoc
import sys
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from redisworld.backoff import Backoff
from redisworld.errors import InvalidInput
from redisworld.metadata import StepInfo, WorkflowInfo, current_step, get_step_metadata, get_workflow_metadata
from redisworld.workflows import Workflows


async def resize(image: str, width: int = 64) -> str:
    """Make it small."""
    return f"{image}@{width}"


def test_a_step_has_its_functions_name_and_the_documented_defaults() -> None:
    step = Workflows().step(resize)

    assert (step.name, step.max_retries, step.max_attempts, step.timeout_ms, step.queue) == ("resize", 3, 4, None, "")
    assert step.backoff == Backoff()
    assert step.is_async
    assert step.__doc__ == "Make it small."


async def doubled(x: int) -> int:
    """Twice as much.

    >>> 2 * 2
    4
    """
    return 2 * x


@pytest.mark.parametrize("register", [Workflows().step, Workflows().workflow, Workflows().step(name="twice")])
def test_what_is_registered_looks_to_tools_like_its_function(register: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules[__name__]
    registered = register(doubled)
    monkeypatch.setattr(module, "doubled", registered)

    named = (registered.__name__, registered.__qualname__, registered.__module__, registered.__doc__)
    assert named == ("doubled", "doubled", __name__, doubled.__doc__)
    assert str(inspect.signature(registered)) == "(x: 'int') -> 'int'"
    assert "Twice as much" in pydoc.render_doc(registered)
    examples = {test.name: len(test.examples) for test in doctest.DocTestFinder().find(module)}
    assert examples[f"{__name__}.doubled"] == 1
    # A call of it does not give a coroutine everywhere, so nobody is to take it for a coroutine function.
    assert not inspect.iscoroutinefunction(registered)


def test_a_step_of_something_without_a_name_has_none_either() -> None:
    step = Workflows().step(name="wide")(functools.partial(resize, width=7))

    assert not hasattr(step, "__name__")
    assert str(inspect.signature(step)) == "(image: 'str', *, width: 'int' = 7) -> 'str'"


def test_options_are_kept() -> None:
    wf = Workflows()

    @wf.step(name="thumb", max_retries=0, timeout="2m", queue="gpu", backoff=Backoff(first_ms=5))
    def thumbnail(image: str) -> str:
        return image

    assert wf.steps == {"thumb": thumbnail}
    assert (thumbnail.max_attempts, thumbnail.timeout_ms, thumbnail.queue) == (1, 120_000, "gpu")
    assert thumbnail.backoff.first_ms == 5
    assert not thumbnail.is_async


def test_outside_a_body_a_step_is_just_its_function() -> None:
    wf = Workflows()

    @wf.step
    def double(x: int) -> int:
        return 2 * x

    async def call() -> str:
        return await wf.step(resize)("cat")

    assert double(4) == 8  # type: ignore[comparison-overlap]
    assert asyncio.run(call()) == "cat@64"


@pytest.mark.parametrize(
    "name", ["", "a b", "a\tb", "a\nb", "a|b", "a{b", "a}b", "x" * 101, "a\x00b", "a\u2003b", "a\ud800"]
)
def test_names_that_would_break_keys_or_headers_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="name"):
        Workflows().step(name=name)(resize)
    with pytest.raises(InvalidInput, match="name"):
        Workflows().workflow(name=name)(resize)


def test_a_second_registration_under_one_name_is_refused_naming_both() -> None:
    wf = Workflows()
    wf.step(resize)

    @wf.workflow
    async def publish() -> None: ...

    async def other() -> None: ...

    with pytest.raises(InvalidInput, match=r"test_workflows\.resize and .*other"):
        wf.step(name="resize")(other)
    with pytest.raises(InvalidInput, match=r"publish and .*other"):
        wf.workflow(name="publish")(other)


def test_a_workflow_must_be_async_and_cannot_be_called() -> None:
    wf = Workflows()

    def plain() -> None: ...

    with pytest.raises(InvalidInput, match="async def"):
        wf.workflow(plain)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"world\.start\(resize"):
        wf.workflow(resize)("cat")


def test_a_method_is_neither_step_nor_workflow_and_a_static_one_is_both() -> None:
    wf = Workflows()

    with pytest.raises(InvalidInput, match=r"Shop\.sell is a method, and 'self' would be one of its arguments"):

        class Shop:
            @wf.step
            def sell(self, article: int) -> None: ...

    with pytest.raises(InvalidInput, match=r"Store\.publish is a method"):

        class Store:
            @wf.workflow
            async def publish(self, article: int) -> None: ...

    class Desk:
        @staticmethod
        @wf.step
        def sell(article: int) -> int:
            return article

        def count(self, article: int) -> int:
            return article

    @wf.step
    def own(self: int) -> int:
        return self

    assert wf.step(Desk().count)(3) == Desk.sell(3) == own(3) == 3  # type: ignore[comparison-overlap]


def test_a_lambda_needs_a_name() -> None:
    with pytest.raises(InvalidInput, match="name="):
        Workflows().step(lambda: 1)

    assert Workflows().step(name="one")(lambda: 1).name == "one"


def test_a_generator_is_neither_step_nor_workflow() -> None:
    def many() -> Any:
        yield 1

    async def many_more() -> Any:
        yield 1

    with pytest.raises(InvalidInput, match="generator"):
        Workflows().step(many)
    with pytest.raises(InvalidInput, match="workflow many_more: a body with 'yield' has no result to record"):
        Workflows().workflow(many_more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [
        *(
            {"max_retries": -1},
            {"max_retries": 1.5},
            {"max_retries": True},
            {"max_retries": 10**20},
            {"timeout": 0},
            {"timeout": "soon"},
        ),
        *({"queue": "a:b"}, {"queue": "a b"}, {"queue": "a@b"}, {"queue": "a\ud800"}),
        *({"backoff": "5s"}, {"backoff": 5}, {"fatal": "ValueError"}, {"retry_on": ()}),
    ],
)
def test_options_that_make_no_sense_are_refused_naming_step_and_option(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=rf"step resize: .*{next(iter(options))}"):
        Workflows().step(**options)(resize)


def test_an_option_that_does_not_exist_is_named() -> None:
    with pytest.raises(TypeError, match="retries"):
        Workflows().step(retries=3)  # type: ignore[call-overload]


def test_what_cannot_be_a_step_says_what_can() -> None:
    wf = Workflows()
    step = wf.step(resize)

    @wf.workflow
    async def publish() -> None: ...

    with pytest.raises(InvalidInput, match="registered already"):
        wf.step(step)
    with pytest.raises(InvalidInput, match="registered already"):
        wf.step(publish)
    with pytest.raises(InvalidInput, match="staticmethod"):
        wf.step(classmethod(resize))  # type: ignore[call-overload]
    with pytest.raises(InvalidInput, match=r"step max: .*wrap it"):
        wf.step(max)
    with pytest.raises(InvalidInput, match="not the class SimpleNamespace"):
        wf.step(SimpleNamespace)
    with pytest.raises(InvalidInput, match="not the class SimpleNamespace"):
        wf.workflow(SimpleNamespace)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="give it one with name="):
        wf.step(functools.partial(resize))


@pytest.mark.parametrize("given", ["thumb", 3, ["resize"]])
def test_what_is_no_function_is_refused_with_a_hint(given: Any) -> None:
    with pytest.raises(InvalidInput, match="a step is a function"):
        Workflows().step(given)


def test_an_object_with_an_async_call_is_an_async_step() -> None:
    class Resize:
        async def __call__(self, image: str) -> str:
            return image

    step = Workflows().step(name="resize")(Resize())

    assert step.is_async
    assert asyncio.run(step("cat")) == "cat"


def test_metadata_is_there_in_a_step_and_refused_elsewhere() -> None:
    info = StepInfo("run", "s1_x", "resize", 1, datetime.now(UTC))

    with pytest.raises(InvalidInput, match="outside a step"):
        get_step_metadata()
    with pytest.raises(InvalidInput, match="outside a workflow"):
        get_workflow_metadata()
    token = current_step.set(SimpleNamespace(info=info, workflow=WorkflowInfo("run", "resizing")))
    try:
        assert get_step_metadata() is info
        assert get_workflow_metadata().workflow_name == "resizing"
    finally:
        current_step.reset(token)


def test_a_step_may_have_a_parameter_named_self() -> None:
    wf = Workflows()

    @wf.step
    def count(**words: int) -> int:
        return sum(words.values())

    assert count(self=1, other=2) == 3  # type: ignore[comparison-overlap]  # outside a body it is its function
