"""Both namespaces have every name of the standard, with the standard's parameters."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from inspect import Parameter
from typing import Any

import array_api_strict as strict
import pytest

import lazyfuse
import lazyfuse.array_api as xp
from tests.array_api import calls, documented

EXTENSIONS = ("linalg", "fft")
OF_STRICT = (
    "get_array_api_strict_flags",
    "reset_array_api_strict_flags",
    "set_array_api_strict_flags",
)
"""What array_api_strict has beyond the standard."""


def functions(module: Any, prefix: str = "") -> dict[str, Callable[..., Any]]:
    """The standard's functions in a module of array_api_strict."""
    names = [*module.__all__, *(("eig", "eigvals") if prefix == "linalg." else ())]  # not listed
    found = {name: getattr(module, name) for name in names if name not in OF_STRICT}
    return {
        f"{prefix}{name}": value
        for name, value in found.items()
        if inspect.isfunction(value) and not name.startswith("__")
    }


STANDARD = functions(strict) | {
    name: value
    for extension in EXTENSIONS
    for name, value in functions(getattr(strict, extension), f"{extension}.").items()
}
every_function = pytest.mark.parametrize("name", sorted(STANDARD))


def find(namespace: Any, name: str) -> Any:
    for part in name.split("."):
        namespace = getattr(namespace, part)
    return namespace


def parameters(function: Callable[..., Any]) -> list[Parameter]:
    return list(inspect.signature(function).parameters.values())


def default(parameter: Parameter) -> Any:
    """A default, as the standard has it: array_api_strict has an object of its own for None."""
    value = parameter.default
    return None if type(value).__name__ == "Undef" else value


def test_public_names_are_those_of_the_standard_and_no_others() -> None:
    values = "e inf nan newaxis pi bool float32 float64 complex64 complex128".split()
    values += [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
    main = {name for name in STANDARD if "." not in name}
    assert set(dir(xp)) == {*main, *values, *EXTENSIONS} == set(xp.__all__)
    for extension in EXTENSIONS:
        there = {name.partition(".")[2] for name in STANDARD if name.startswith(extension)}
        assert set(dir(getattr(xp, extension))) == there
    with pytest.raises(AttributeError, match="no attribute 'vander'"):
        xp.vander  # noqa: B018
    assert xp.__array_api_version__ == lazyfuse.__array_api_version__ == "2025.12"


@every_function
def test_parameters_are_those_of_the_standard(name: str) -> None:
    ours = parameters(find(xp, name))
    theirs = parameters(STANDARD[name])
    assert [(each.name, each.kind) for each in ours] == [(each.name, each.kind) for each in theirs]
    assert [each.default for each in ours] == [default(each) for each in theirs]


TAKEN = {
    "argsort": ["descending"], "fft.fftfreq": ["dtype"], "fft.rfftfreq": ["dtype"],
    "sort": ["descending"],
}  # fmt: skip
"""Arguments that the main namespace takes, and does not show: its signatures are NumPy's."""


@pytest.mark.parametrize("name", sorted(TAKEN))
def test_arguments_that_are_not_shown_are_taken(name: str) -> None:
    value = {"descending": True, "dtype": lazyfuse.float32}
    first: Any = 4 if name.startswith("fft") else [1.0, 3.0, 2.0]
    for each in TAKEN[name]:
        found = find(lazyfuse, name)(first, **{each: value[each]})
        assert found.dtype == "f4" or found[0] in (3.0, 1)


@every_function
def test_the_main_namespace_takes_the_standards_arguments(name: str) -> None:
    function = find(lazyfuse, name)
    if isinstance(function, lazyfuse.ufunc):
        places = [each for each in parameters(STANDARD[name]) if each.default is Parameter.empty]
        assert function.nin == len(places)  # ufuncs take keywords of all sorts, `axis` among them
        return
    try:
        ours = parameters(function)
    except ValueError:
        pytest.skip("NumPy tells the arguments of its functions in C from 2.4 on")
    places = [each for each in ours if each.kind is not Parameter.KEYWORD_ONLY]
    for number, wanted in enumerate(parameters(STANDARD[name])):
        by_place = wanted.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
        if wanted.kind is Parameter.VAR_POSITIONAL:
            assert places[number].kind is Parameter.VAR_POSITIONAL
        elif by_place:
            rest = places[min(number, len(places) - 1)]
            assert number < len(places) or rest.kind is Parameter.VAR_POSITIONAL
        if wanted.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY):
            assert any(each.name == wanted.name for each in ours) or wanted.name in TAKEN.get(
                name, ()
            ), wanted.name


def test_every_function_is_called_by_some_test() -> None:
    every = [call for group in calls.GROUPS.values() for call in group.calls]
    called = set().union(*map(calls.names, [*every, *calls.CREATION]))
    assert not set(STANDARD) - called


@pytest.mark.parametrize("namespace", [xp, lazyfuse], ids=["array_api", "main"])
def test_arrays_have_the_attributes_of_the_standard(namespace: Any) -> None:
    added = set(dir(object)) | {"__annotations__", "__slots__", "__weakref__", "__buffer__"}
    added |= {"__firstlineno__", "__static_attributes__"}  # of classes, from Python 3.13 on
    wanted = {name for name in dir(type(strict.asarray(1))) if name not in added}
    wanted = {name for name in wanted if not (name.startswith("_") and not name.startswith("__"))}
    x = namespace.ones((2, 2))
    assert not {name for name in wanted if not hasattr(x, name)}


def test_arrays_lead_to_their_namespace() -> None:
    assert xp.ones(2).__array_namespace__() is xp
    assert lazyfuse.ones(2).__array_namespace__() is lazyfuse
    with pytest.raises(ValueError, match="expected one of 2021"):
        xp.ones(2).__array_namespace__(api_version="1999.12")


def test_older_versions_are_as_they_were() -> None:
    older = xp.ones(2).__array_namespace__(api_version="2022.12")
    x = older.ones((2, 2), dtype=older.float32)
    assert older.__array_api_version__ == "2022.12"
    assert type(older.broadcast_arrays(x, x)) is type(older.meshgrid(x[0, :], x[0, :])) is list
    assert type(older.__array_namespace_info__().devices()) is list
    assert (older.sum(x).dtype, older.linalg.trace(x).dtype) == (older.float64, older.float64)
    assert (xp.sum(x).dtype, xp.linalg.trace(x).dtype) == (xp.float32, xp.float32)
    assert type(xp.broadcast_arrays(x, x)) is type(xp.meshgrid(x[0, :], x[0, :])) is tuple
    assert type(xp.__array_namespace_info__().devices()) is tuple


def test_the_main_namespace_does_not_load_the_other() -> None:
    code = "import sys, lazyfuse; assert not [m for m in sys.modules if 'array_api_n' in m]; "
    code += "import lazyfuse.array_api.linalg; print(lazyfuse.array_api.linalg.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "lazyfuse.array_api.linalg"


def test_the_documented_differences_can_be_read() -> None:
    rows = documented.rows()
    assert {row.module for row in rows} == {"lazyfuse", "lazyfuse.array_api"}
    assert all(row.tests and row.why for row in rows)
    assert not documented.patterns("lazyfuse.array_api", "2025.12"), (
        "it follows the standard wholly"
    )
    case = (
        "test_special_cases::test_binary[floor_divide(x1_i is +infinity and isfinite(x2_i) and x]"
    )
    main = documented.patterns("lazyfuse", "2025.12")
    assert any(each.fullmatch(case) for each in main)
    assert not any(each.fullmatch("test_linalg::test_eigh") for each in main)
    assert len(documented.patterns("lazyfuse", "2022.12")) > len(main)
