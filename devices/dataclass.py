"""Dataclasses with slots whose methods are written when one of them is first called.

`dataclasses` writes and compiles six functions for every class as its module is imported: for the
85 classes of lazyfuse that was half of what its import took beside NumPy's. Here the class is made
with its slots, and its methods are compiled together, once, by the first call of one of them; most
classes of a program are never called. What `dataclasses` offers for such classes (`fields`,
`replace`, `asdict`) works. Frozen classes are checked by mypy, not while the program runs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, dataclass_transform

_MISSING: Any = dataclasses.MISSING


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
    methods = {"__init__": True, "__eq__": eq, "__hash__": eq and frozen}
    wanted = {name for name, given in methods.items() if given and name not in plain}
    if eq and not frozen:
        names.setdefault("__hash__", None)
    made: Any = type(cls)(cls.__name__, cls.__bases__, names)
    for name in wanted:
        setattr(made, name, _first_call(made, name, wanted))
    return made


def _first_call(cls: type, name: str, wanted: set[str]) -> Callable[..., Any]:
    """A method that writes the methods of its class, and goes on as the one written."""

    def method(*args: Any, **keywords: Any) -> Any:
        return _write(cls, wanted)[name](*args, **keywords)

    return method


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
