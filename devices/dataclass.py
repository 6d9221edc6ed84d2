"""Dataclasses with slots whose methods are written once they have been called a few times.

`dataclasses` writes and compiles six functions for every class as its module is imported: for the
85 classes of lazyfuse that was half of what its import took beside NumPy's. Here the class is made
with its slots, and its methods are compiled together, once, after `INTERPRETED` calls; until then
they go from field to field. Most classes of a program are never called, and thirty are called a
few times by a first evaluation. What `dataclasses` offers for such classes (`fields`, `asdict`)
works, and `replace` does without it. Frozen classes are checked by mypy, not while the program
runs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, dataclass_transform

_MISSING: Any = dataclasses.MISSING

INTERPRETED = 32
"""Calls of a class's methods before they are compiled: as long as the compilation takes."""

Instance = TypeVar("Instance")


@dataclass_transform(field_specifiers=(dataclasses.field,))
def dataclass(
    cls: Any = None, /, *, frozen: bool = False, eq: bool = True, kw_only: bool = False
) -> Any:
    """Make a class with slots for its annotated names, as `dataclass(slots=True)` does.

    `frozen` gives it a hash. Without `eq` an instance equals itself alone.
    """
    if cls is None:
        return lambda cls: _made(cls, frozen, eq, kw_only)
    return _made(cls, frozen, eq, kw_only)


class _Field:
    """One field: its default (a value or a factory), and how it takes part in the methods."""

    __slots__ = ("compare", "default", "factory", "kind", "kw_only", "metadata", "repr")

    def __init__(self, kind: Any, default: Any, kw_only: bool) -> None:
        self.kind, self.kw_only = kind, kw_only
        self.default, self.factory, self.compare, self.repr = default, _MISSING, True, True
        self.metadata: Mapping[Any, Any] = {}
        if isinstance(default, dataclasses.Field):
            self.default, self.factory = default.default, default.default_factory
            self.repr, self.compare = bool(default.repr), bool(default.compare)
            self.metadata = default.metadata

    def standard(self) -> Any:
        """The field as `dataclasses` describes it."""
        made: Any = dataclasses.field
        return made(
            default=self.default,
            default_factory=self.factory,
            repr=self.repr,
            compare=self.compare,
            metadata=self.metadata,
            kw_only=self.kw_only,
        )


class _DataclassFields:
    """`__dataclass_fields__`, by which `dataclasses` knows a class; made when it is asked for."""

    def __get__(self, instance: object, cls: Any) -> Any:
        fields: dict[str, _Field] = cls.__fields__
        names: dict[str, Any] = {name: field.standard() for name, field in fields.items()}
        names["__annotations__"] = {name: field.kind for name, field in fields.items()}
        names["__module__"] = cls.__module__
        twin: Any = dataclasses.dataclass(type(cls.__name__, (), names))
        cls.__dataclass_fields__ = twin.__dataclass_fields__
        return cls.__dataclass_fields__


def _made(cls: Any, frozen: bool, eq: bool, kw_only: bool) -> Any:
    annotated = {
        name: kind for name, kind in cls.__annotations__.items() if not kind.startswith("ClassVar")
    }
    plain = dict(cls.__dict__)
    fields: dict[str, _Field] = {}
    for base in reversed(cls.__mro__[1:]):
        fields |= base.__dict__.get("__fields__", {})
    for name in annotated:
        fields[name] = _Field(annotated[name], plain.get(name, _MISSING), kw_only)

    names = {name: value for name, value in plain.items() if name not in annotated}
    for name in ("__dict__", "__weakref__"):
        names.pop(name, None)
    names["__slots__"] = tuple(annotated)
    names["__fields__"] = fields
    names["__match_args__"] = tuple(name for name, field in fields.items() if not field.kw_only)
    names["__dataclass_fields__"] = _DataclassFields()
    names.setdefault("__repr__", _repr)
    every = {"__init__": True, "__eq__": eq, "__hash__": eq and frozen}
    wanted = {name for name, given in every.items() if given and name not in plain}
    if eq and not frozen:
        names.setdefault("__hash__", None)
    made: Any = type(cls)(cls.__name__, cls.__bases__, names)
    methods = _Methods(made, wanted)
    for name in wanted:
        setattr(made, name, getattr(methods, _INTERPRETED[name])())
    return made


def replace(instance: Instance, /, **changes: Any) -> Instance:
    """Another instance with some fields changed, as by `dataclasses.replace`."""
    cls: Any = type(instance)
    made: Instance = cls(**{name: getattr(instance, name) for name in cls.__fields__} | changes)
    return made


class _Methods:
    """The methods of a class: interpreted ones, which count their calls, and then written ones."""

    def __init__(self, cls: Any, wanted: set[str]) -> None:
        self.cls, self.wanted = cls, wanted
        self.fields: dict[str, _Field] = cls.__fields__
        self.calls = 0
        self._written: dict[str, Any] = {}

    def written(self) -> dict[str, Any]:
        """The written methods, which are in the class from now on."""
        if not self._written:
            self._written = _write(self.cls, self.wanted)
        return self._written

    def often(self) -> bool:
        """Whether this call is one too many for interpreted methods."""
        self.calls += 1
        return self.calls > INTERPRETED

    def values(self, instance: Any) -> tuple[Any, ...]:
        return tuple([getattr(instance, name) for name, f in self.fields.items() if f.compare])

    def init(self) -> Callable[..., None]:
        last = hasattr(self.cls, "__post_init__")

        def method(instance: Any, /, *args: Any, **keywords: Any) -> None:
            given = None if self.often() else self.given(args, keywords)
            if given is None:  # this one also raises what is to be raised
                self.written()["__init__"](instance, *args, **keywords)
                return
            for name, value in given.items():
                setattr(instance, name, value)
            if last:
                instance.__post_init__()

        return method

    def given(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> dict[str, Any] | None:
        """The values of all fields; None where the arguments do not fit."""
        order = self.cls.__match_args__
        found = dict(zip(order, args, strict=False))
        if len(args) > len(order) or not keywords.keys() <= self.fields.keys() - found.keys():
            return None
        found |= keywords
        if len(found) < len(self.fields):
            for name, field in self.fields.items():
                if name in found:
                    continue
                if field.factory is not _MISSING:
                    found[name] = field.factory()
                elif field.default is not _MISSING:
                    found[name] = field.default
                else:
                    return None
        return found

    def eq(self) -> Callable[[Any, Any], Any]:
        def method(instance: Any, other: Any) -> Any:
            if self.often():
                return self.written()["__eq__"](instance, other)
            if other.__class__ is not instance.__class__:
                return NotImplemented
            return self.values(instance) == self.values(other)

        return method

    def hash(self) -> Callable[[Any], int]:
        def method(instance: Any) -> int:
            if self.often():
                return self.written()["__hash__"](instance)  # type: ignore[no-any-return]
            return hash(self.values(instance))

        return method


_INTERPRETED = {"__init__": "init", "__eq__": "eq", "__hash__": "hash"}


def _write(cls: Any, wanted: set[str]) -> dict[str, Any]:
    """Compile the methods of a class, and put them there."""
    fields: dict[str, _Field] = cls.__fields__
    known: dict[str, Any] = {"MISSING": _MISSING}
    signature: list[str] = []
    keywords: list[str] = []
    lines: list[str] = []
    for name, field in fields.items():
        parameter, value = name, name
        if field.factory is not _MISSING:
            known[f"make_{name}"] = field.factory
            parameter, value = f"{name}=MISSING", f"make_{name}() if {name} is MISSING else {name}"
        elif field.default is not _MISSING:
            known[f"default_{name}"] = field.default
            parameter = f"{name}=default_{name}"
        (keywords if field.kw_only else signature).append(parameter)
        lines.append(f"  self.{name} = {value}\n")
    if hasattr(cls, "__post_init__"):
        lines.append("  self.__post_init__()\n")
    if keywords:
        signature += ["*", *keywords]
    compared = [name for name, field in fields.items() if field.compare]
    mine = "".join(f"self.{name}, " for name in compared)
    others = "".join(f"other.{name}, " for name in compared)
    parameters, body = ", ".join(["self", *signature]), "".join(lines) or "  pass\n"
    texts = {
        "__init__": f"def __init__({parameters}):\n{body}",
        "__eq__": "def __eq__(self, other):\n"
        " if other.__class__ is not self.__class__:\n  return NotImplemented\n"
        f" return ({mine}) == ({others})\n",
        "__hash__": f"def __hash__(self):\n return hash(({mine}))\n",
    }
    exec("".join(text for name, text in texts.items() if name in wanted), known)
    methods = {name: known[name] for name in wanted}
    for name, method in methods.items():
        method.__qualname__ = f"{cls.__qualname__}.{name}"
        method.__module__ = cls.__module__
        setattr(cls, name, method)
    return methods


def _repr(self: Any) -> str:
    shown = (name for name, field in self.__fields__.items() if field.repr)
    inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
    return f"{type(self).__qualname__}({inside})"
