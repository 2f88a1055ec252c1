"""How do user values become bytes and themselves again? (design section 12, "Values")

Plain Python values come back as themselves without an annotation; dataclasses, Structs, enums, TypedDicts,
NamedTuples and pydantic models where the receiving annotation names them. All else is refused at the call.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import msgspec

from redisworld.errors import InvalidArguments, InvalidInput, InvalidValue, MalformedMessage
from redisworld.packing import KEY, pack, unpack
from redisworld.restoring import difference, names_a_type, restore, restore_strictly
from redisworld.settings import Settings

DEFAULT_MAX_BYTES = Settings().max_payload

_encode = msgspec.msgpack.Encoder().encode

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def encode(value: Any, *, where: str = "value", max_bytes: int | None = None, type: Any = Any) -> bytes:
    """The bytes of a value. ``type`` is the annotation that will receive it, ``where`` its name in an error.

    Raises InvalidValue for what would not come back as itself, and for more than ``max_bytes`` (default 4 MiB).
    """
    return _sized(_pack_checked(value, type, where), where, max_bytes)


def decode(data: bytes, type: Any = Any, *, where: str = "value") -> Any:
    """The value in these bytes. Raises InvalidValue where it does not fit ``type``, MalformedMessage for rubbish."""
    return restore(unpack(data), type, where)


def encode_foreign(value: Any, *, where: str = "value", max_bytes: int | None = None) -> bytes:
    """The bytes of a value whose receiver alone knows the type: dataclasses, Structs and models go as their contents.

    Raises InvalidValue as ``encode`` does.
    """
    return _sized(pack(value, where, named=True), where, max_bytes)


def decode_foreign(data: bytes, type: Any = Any, *, where: str = "value") -> Any:
    """What a stranger sent, as this type. Raises InvalidValue where it does not fit, MalformedMessage for rubbish."""
    return restore_strictly(unpack(data), type, where)


class Signature:
    """The parameters and result of one step or workflow, as they are written to and read from Redis.

    ``what`` is how errors name it, like ``"step thumbnail"``. Annotations are resolved at first use, since a
    function may be registered before the classes it mentions are defined.
    """

    def __init__(self, func: Callable[..., Any], what: str = "function") -> None:
        self.what = what
        self._func = inspect.unwrap(func)
        try:
            self._parameters = inspect.signature(func)
        except ValueError as error:  # of some functions written in C
            raise InvalidInput(f"{what}: {error}; wrap it in a function of your own") from error
        self._annotations: dict[str, Any] | None = None
        self._positional, self._required = _by_position(self._parameters)
        self._result = f"{what}: the result"
        self._arguments = f"{what}: the arguments"
        self._places = {name: f"{what}: argument {name!r}" for name in self._parameters.parameters}

    def takes(self, name: str, *, behind: int) -> bool:
        """Whether an argument can be given by this name, behind so many that are given by position."""
        parameter = self._parameters.parameters.get(name)
        if parameter is None:
            return False
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            return list(self._parameters.parameters).index(name) >= behind
        return parameter.kind is parameter.KEYWORD_ONLY

    def encode_call(self, args: Sequence[Any], kwargs: Mapping[str, Any], *, max_bytes: int | None = None) -> bytes:
        """The arguments as a map from parameter name to value; defaults are left to the callee.

        Raises InvalidArguments where they do not fit the parameters, InvalidValue for what cannot be stored.
        """
        if self._arguments_are_plain and not kwargs and self._required <= len(args) <= len(self._positional):
            # nearly all calls; to say strict=False takes as long as to pack a number
            packed = dict(zip(self._positional, map(pack, args, self._places.values())))  # noqa: B905
        else:
            packed = {name: self._pack_argument(name, value) for name, value in self._bound(args, kwargs).items()}
        return _sized(packed, self._arguments, max_bytes)

    def same_call(self, stored: bytes, asked: bytes) -> bool:
        """Whether both are the same arguments to this code, which may know other fields than what was stored has."""
        try:
            args, kwargs = self.decode_call(stored)
            return self.encode_call(args, kwargs, max_bytes=max(len(stored), len(asked))) == asked
        except InvalidInput:
            return False

    def decode_call(self, data: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments to call the function with. Raises InvalidArguments where the stored ones do not fit."""
        try:
            stored = unpack(data)
        except MalformedMessage as error:
            raise InvalidArguments(f"{self.what}: the stored arguments cannot be read: {error}") from error
        if not isinstance(stored, dict):
            raise InvalidArguments(
                f"{self.what}: the stored arguments are a {type(stored).__name__}, not a map by name"
            )
        if self._required <= len(stored) and tuple(stored) == self._positional[: len(stored)]:
            if self._arguments_are_plain:
                return tuple(stored.values()), {}
            return self._restore_positional(stored), {}
        self._refuse_misfits(stored)
        return self._restore_call(stored)

    def _restore_positional(self, stored: dict[str, Any]) -> tuple[Any, ...]:
        try:
            return tuple([restore(v, self._annotation(n), self._places[n]) for n, v in stored.items()])
        except InvalidValue as error:
            raise InvalidArguments(str(error)) from error

    def encode_result(self, value: Any, *, max_bytes: int | None = None) -> bytes:
        """The bytes of a result. Raises InvalidValue for what would not come back as itself, or is too big."""
        where = self._result
        packed = pack(value, where) if self.result_is_plain else _pack_checked(value, self._annotation("return"), where)
        return _sized(packed, where, max_bytes)

    def decode_result(self, data: bytes) -> Any:
        """The result in these bytes. Raises InvalidValue where it does not fit the return annotation."""
        return unpack(data) if self.result_is_plain else decode(data, self._annotation("return"), where=self._result)

    @cached_property
    def _arguments_are_plain(self) -> bool:
        """Whether no argument needs its annotation: all calls but the first save looking."""
        return bool(self._positional) and not any(names_a_type(self._annotation(name)) for name in self._positional)

    @cached_property
    def result_is_plain(self) -> bool:
        """Whether its annotation is not needed to read it, so that no code of the user's runs."""
        return not names_a_type(self._annotation("return"))

    def _bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments by parameter, in the order of the parameters."""
        if not kwargs and self._required <= len(args) <= len(self._positional):
            return dict(zip(self._positional, args, strict=False))  # nearly all calls; bind() takes ten times as long
        try:
            return self._parameters.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise InvalidArguments(f"{self.what}: {error}") from error

    def _pack_argument(self, name: str, value: Any) -> Any:
        annotation, where = self._annotation(name), self._places[name]
        kind = self._parameters.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            return [_pack_checked(item, annotation, f"{where}[{i}]") for i, item in enumerate(value)]
        if kind is inspect.Parameter.VAR_KEYWORD:
            return {
                pack(key, (where, KEY, key)): _pack_checked(item, _of_keyword(annotation, key), f"{where}[{key!r}]")
                for key, item in value.items()
            }
        return _pack_checked(value, annotation, where)

    def _refuse_misfits(self, stored: dict[Any, Any]) -> None:
        parameters = self._parameters.parameters
        if unknown := [name for name in stored if name not in parameters]:
            raise InvalidArguments(f"{self.what}: has no parameter {', '.join(map(repr, unknown))} (was it renamed?)")
        variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        missing = [
            name
            for name, parameter in parameters.items()
            if parameter.default is inspect.Parameter.empty and parameter.kind not in variadic and name not in stored
        ]
        if missing:
            raise InvalidArguments(f"{self.what}: the stored arguments lack {', '.join(map(repr, missing))}")

    def _restore_call(self, stored: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        by_name = False
        for name, parameter in self._parameters.parameters.items():
            if name not in stored:
                by_name = by_name or parameter.kind in _POSITIONAL
                continue
            annotation, where, value = self._annotation(name), self._places[name], stored[name]
            try:
                if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                    args += [restore(item, annotation, f"{where}[{i}]") for i, item in enumerate(value)]
                elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
                    kwargs |= {
                        key: restore(item, _of_keyword(annotation, key), f"{where}[{key!r}]")
                        for key, item in value.items()
                    }
                elif parameter.kind in _POSITIONAL and not by_name:
                    args.append(restore(value, annotation, where))
                else:
                    kwargs[name] = restore(value, annotation, where)
            except (InvalidValue, TypeError, AttributeError) as error:
                raise InvalidArguments(str(error)) from error
        return tuple(args), kwargs

    def _annotation(self, name: str) -> Any:
        if self._annotations is None:
            hints = getattr(self._func, "__annotations__", {})  # a partial or a callable object has none
            self._annotations = {key: self._resolve(key, hint) for key, hint in hints.items()}
        return self._annotations.get(name, Any)

    def _resolve(self, name: str, hint: Any) -> Any:
        # typing reads annotations from any object that has them; one at a time tells which one is at fault.
        alone = SimpleNamespace(__annotations__={name: hint})
        try:
            return typing.get_type_hints(alone, self._func.__globals__, include_extras=True)[name]
        except Exception as error:
            raise InvalidInput(
                f"{self.what}: cannot resolve the annotation {hint!r} of {name!r} ({error}); "
                "define or import it at module level, not under TYPE_CHECKING"
            ) from error


def _by_position(signature: inspect.Signature) -> tuple[tuple[str, ...], int]:
    """Names of parameters that a call can give by position, and how many it must; none where some cannot be so."""
    parameters = signature.parameters.values()
    if any(parameter.kind not in _POSITIONAL for parameter in parameters):
        return (), 1  # no call has one argument for no parameter
    required = sum(parameter.default is parameter.empty for parameter in parameters)
    return tuple(parameter.name for parameter in parameters), required


def _pack_checked(value: Any, annotation: Any, where: str) -> Any:
    if not names_a_type(annotation):
        return pack(value, where)
    packed = pack(value, where, named=True)
    received = restore(unpack(_encode(packed)), annotation, where)
    try:
        changed = difference(value, received, where)
    except Exception as error:  # user code: a property, __eq__, __hash__ or __repr__
        raise InvalidValue(f"{where}: cannot be compared with what would come back: {error!r}") from error
    if changed is not None:
        raise InvalidValue(f"{changed}; the annotation must name the type of every value")
    return packed


def _of_keyword(annotation: Any, key: str) -> Any:
    """The annotation of one keyword: ``**options: Unpack[Options]`` names the type of each by a TypedDict."""
    if typing.get_origin(annotation) is not typing.Unpack:
        return annotation
    return typing.get_type_hints(typing.get_args(annotation)[0]).get(key, Any)


def _sized(packed: Any, where: str, max_bytes: int | None) -> bytes:
    data = _encode(packed)
    limit = DEFAULT_MAX_BYTES if max_bytes is None else max_bytes
    if len(data) > limit:
        raise InvalidValue(
            f"{where}: {len(data):,} bytes, more than the {limit:,} of max_payload; pass a reference instead"
        )
    return data
