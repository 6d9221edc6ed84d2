"""Dataclasses whose methods are written after some calls: beside those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import field
from typing import Any, ClassVar

import pytest

from lazyfuse.devices.dataclass import INTERPRETED, dataclass, replace


@dataclass(frozen=True)
class Point:
    x: int
    y: float = 1.5
    tags: list[str] = field(default_factory=list, compare=False)
    hidden: int = field(default=0, repr=False)
    unit: ClassVar[str] = "m"


@dataclasses.dataclass(unsafe_hash=True, slots=True)
class Plain:
    x: int
    y: float = 1.5
    tags: list[str] = field(default_factory=list, compare=False)
    hidden: int = field(default=0, repr=False)
    unit: ClassVar[str] = "m"


@dataclass(kw_only=True)
class Timed:
    time: float = 0.0


@dataclass
class Named(Timed):
    name: str
    length: int = 0

    def __post_init__(self) -> None:
        self.length = len(self.name)


@dataclass(eq=False)
class Identity:
    x: int


CALLS: tuple[tuple[tuple[Any, ...], dict[str, Any]], ...] = (
    ((1,), {}),
    ((1, 2.0), {}),
    ((), {"x": 3, "hidden": 4}),
    ((), {}),
    ((1, 2, [], 3, 4), {}),
    ((1,), {"x": 1}),
    ((1,), {"z": 1}),
)


def outcome(kind: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """An instance, or the words of the error."""
    try:
        return kind(*args, **keywords)
    except TypeError as error:
        return str(error)


@pytest.mark.parametrize(("args", "keywords"), CALLS)
def test_instances_are_those_of_the_standard_library(
    args: tuple[Any, ...], keywords: dict[str, Any]
) -> None:
    wanted, ours = outcome(Plain, args, keywords), outcome(Point, args, keywords)
    if isinstance(wanted, str):
        assert ours == wanted.replace("Plain", "Point")
        return
    assert repr(ours) == repr(wanted).replace("Plain", "Point")
    assert hash(ours) == hash(wanted)
    assert dataclasses.asdict(ours) == dataclasses.asdict(wanted)
    assert ours == Point(*args, **keywords)
    assert ours != wanted
    for changed in (dataclasses.replace, replace):
        assert ours != changed(ours, x=99)
        assert ours == changed(ours, tags=["not compared"])
    assert ours.tags is not Point(*args, **keywords).tags
    assert not hasattr(ours, "__dict__")
    for made in (copy.copy(ours), copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert made == ours


def test_fields_and_patterns() -> None:
    names = [entry.name for entry in dataclasses.fields(Plain)]
    assert [entry.name for entry in dataclasses.fields(Point)] == names  # type: ignore[arg-type]
    match Point(1, 2.0):
        case Point(x, y):
            assert (x, y) == (1, 2.0)


def test_keywords_come_last_and_bases_first() -> None:
    named = Named("abc", time=2.0)
    assert (named.name, named.length, named.time) == ("abc", 3, 2.0)
    assert repr(named) == "Named(time=2.0, name='abc', length=3)"
    assert dataclasses.asdict(named) == {"time": 2.0, "name": "abc", "length": 3}
    assert dataclasses.replace(named, name="ab") == Named("ab", time=2.0)
    with pytest.raises(TypeError):
        Named("abc", 0, 2.0)  # type: ignore[misc]
    with pytest.raises(TypeError):
        hash(named)


@pytest.mark.parametrize("first", ["__eq__", "__hash__", "__init__"])
def test_any_method_may_be_called_first(first: str) -> None:
    @dataclass(frozen=True)
    class Fresh:
        x: int

    def compared() -> bool:
        return Fresh(1) == Fresh(1)

    if first == "__init__":
        assert compared()
    else:
        fresh = object.__new__(Fresh)
        object.__setattr__(fresh, "x", 1)
        assert hash(fresh) == hash((1,)) if first == "__hash__" else fresh == fresh
    assert compared()


@pytest.mark.parametrize(("args", "keywords"), CALLS)
def test_interpreted_methods_are_those_that_are_written(
    args: tuple[Any, ...], keywords: dict[str, Any]
) -> None:
    @dataclass(frozen=True)
    class Fresh:
        x: int
        y: float = 1.5
        tags: list[str] = field(default_factory=list, compare=False)
        hidden: int = field(default=0, repr=False)

    fresh: Any = Fresh
    interpreted = fresh.__init__
    before = outcome(fresh, args, keywords)
    for _ in range(INTERPRETED):
        outcome(fresh, args, keywords)
    assert fresh.__init__ is not interpreted
    after = outcome(fresh, args, keywords)
    assert before == after
    if not isinstance(before, str):
        assert hash(before) == hash(after)
        again = object.__new__(fresh)
        interpreted(again, *args, **keywords)  # kept by somebody
        assert again == after


def test_identity_without_eq() -> None:
    one, other = Identity(1), Identity(1)
    assert one != other
    assert len({one, other}) == 2
