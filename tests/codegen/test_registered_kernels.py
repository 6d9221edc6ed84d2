"""Specialised program texts behind the contract of the general ones (D5)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import lazyfuse
from lazyfuse.codegen.lowering import registered_kernels
from lazyfuse.codegen.lowering.acceptance import check
from lazyfuse.codegen.lowering.kernel import Instruction, Kernel
from lazyfuse.codegen.lowering.lower import lower
from lazyfuse.codegen.lowering.registered_kernels import (
    OWN,
    register,
    unregister,
    why_not,
)
from lazyfuse.runtime.placement import devices
from tests.codegen import kernel_tools
from tests.codegen.kernel_tools import apply, cpu, store

DOUBLED = Kernel(1, ("f8",), (), (apply("add", (0, 0), "f8"),), (store(1, "f8"),))
SCALED = Kernel(1, ("f8",), ("f8",), (apply("multiply", (0, 1), "f8"),), (store(2, "f8"),))
DIVIDED = Kernel(1, ("f8",), ("f8",), (apply("divide", (0, 1), "f8"),), (store(2, "f8"),))

MAP = """
def NAME(meta, scalars):
    n0 = meta[0]
    p0 = pointer_f8(meta[1])
    p1 = pointer_f8(meta[3])
    clear_flags()
    {first}
    for i in range(n0):
        independent()
        h0 = p0[i]
        p1[i] = {value}
    return {flags}
"""
X0 = "x0 = scalar_f8(scalars, 0)"


def text(value: str, first: str = "", flags: str = "test_flags()") -> str:
    return MAP.format(value=value, first=first, flags=flags)


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    for each in list(registered_kernels._REGISTER.values()):
        unregister(each)
    lazyfuse.cache_clear()


def dense(kernel: Kernel, size: int = 1000, stride: int = 1) -> Any:
    target = 0 if kernel.reductions else 1
    return lower(kernel, (size,), [(stride,)] * len(kernel.inputs), [(target,)])


def name(kernel: Kernel, **layout: int) -> str:
    return str(dense(kernel, **layout).source("numba").name)


@pytest.mark.parametrize("own", OWN)
def test_d5_each_text_of_ours_equals_the_general_one_and_numpy_D5(own: str) -> None:
    kernel, builder = OWN[own]
    special = register(kernel, builder, "numba", own)
    assert check(special, cpu()).ok
    assert special.passed
    assert name(kernel).startswith(own)
    rng = np.random.default_rng(3)
    for shape in ((1,), (63,), (64,), (129,), (33_000,), (300_001,), (700, 900)):
        flags = (True,) * len(shape)
        each = Kernel(len(shape), kernel.inputs, (), (), (), kernel.reductions, flags)
        for _ in range(2):
            x = kernel_tools.some_values(rng, shape, kernel.inputs[0])
            found = kernel_tools.run(each, shape, [x])
            kernel_tools.assert_same(found[0], kernel_tools.expected(each, shape, [x])[0])
            x = np.ones(shape, kernel.inputs[0])  # as many true ones as can be, and then a NaN
            x.flat[-1] = np.nan
            found = kernel_tools.run(each, shape, [x])
            kernel_tools.assert_same(found[0], kernel_tools.expected(each, shape, [x])[0])


def test_d5_a_right_text_is_used_where_it_was_checked_D5() -> None:
    general = name(DOUBLED)
    special = register(DOUBLED, text("h0 * 2.0"), name="doubled")
    assert name(DOUBLED) == general, "not before it was checked"
    assert why_not(DOUBLED, dense(DOUBLED).variant, "numba") == (
        "specialised kernel doubled: it was not checked against the general text"
    )
    assert check(special, cpu()) == (True, "")
    assert name(DOUBLED).startswith("doubled_")
    assert not name(DOUBLED, stride=3).startswith("doubled_"), "it reads no strides"
    x = np.random.default_rng(0).random(5000)
    kernel_tools.assert_same_bits(kernel_tools.run(DOUBLED, (5000,), [x])[0], x + x)
    plane = Kernel(2, DOUBLED.inputs, (), DOUBLED.body, DOUBLED.stores)
    form = lower(plane, (9, 8), [(8, 1)], [(8, 1)]).source("numba")
    assert form.name.startswith("doubled_"), "the same over any number of axes"
    unregister(special)
    assert name(DOUBLED) == general


@pytest.mark.parametrize(
    ("kernel", "wrong", "why"),
    [
        (DOUBLED, text("h0 * 2.0 + 1e-300"), "output 0 differs"),
        (DOUBLED, text("abs(h0) * 2.0"), "output 0 differs"),
        (DOUBLED, text("h0 + h0 if h0 != 0 else 0.0"), "output 0 differs"),  # the sign of zero
        (DOUBLED, text("h0 + h0 if h0 == h0 else 0.0"), "output 0 differs"),  # NaN
        (DOUBLED, text("p0[i] + p0[0]"), "output 0 differs"),
        (SCALED, text("h0 * (x0 + 1.0)", X0), "output 0 differs"),
        (DOUBLED, text("unknown(h0)"), "it does not build or run"),
        (DOUBLED, text("h0 * 2.0", flags="int32(1)"), "it reports conditions 1 where the general"),
        (
            DIVIDED,
            text("h0 / x0", X0, "int32(0)"),
            "it reports conditions 0 where the",
        ),
    ],
)
def test_d5_a_wrong_text_is_never_used_D5(kernel: Kernel, wrong: str, why: str) -> None:
    general = name(kernel)
    special = register(kernel, wrong, name="wrong")
    verdict = check(special, cpu())
    assert not verdict.ok
    assert verdict.why.startswith(why)
    assert special.failure == verdict.why
    assert name(kernel) == general
    assert (
        why_not(kernel, dense(kernel).variant, "numba")
        == f"specialised kernel wrong: {verdict.why}"
    )


def test_d5_a_text_that_cannot_work_in_place_is_refused_D5() -> None:
    backwards = text("h0", "for i in range(n0): p1[i] = p0[i]").replace(
        "p1[i] = h0", "p1[n0 - 1 - i] = p0[n0 - 1 - i] + p0[n0 - 1 - i]"
    )
    late = text("h0").replace("p1[i] = h0", "p1[i] = 0.0\n        p1[i] = p0[i] + p0[i]")
    assert not check(register(DOUBLED, late, name="late"), cpu()).ok
    assert check(register(DOUBLED, backwards, name="backwards"), cpu()).ok


def test_d5_inexact_operations_may_differ_by_their_stated_error_D5() -> None:
    body = (Instruction("exp", (0,), ("f8",), "f8"),)
    kernel = Kernel(1, ("f8",), (), body, (store(1, "f8"),))
    near = text("vm_exp(h0) * 1.0000000000000002")
    far = text("vm_exp(h0) * 1.00000000000001")
    assert check(register(kernel, near, name="near"), cpu()).ok
    assert not check(register(kernel, far, name="far"), cpu()).ok


def test_d5_a_builder_is_asked_for_each_form_D5() -> None:
    asked = []

    def build(kernel: Kernel, form: Any) -> str | None:
        asked.append(form.classes)
        return text("h0 * 2.0") if form.classes == "11" and not form.outer else None

    special = register(DOUBLED, build, name="built")
    assert check(special, cpu()).ok
    assert {"11", "s1", "-1"} <= set(asked)
    assert {form.classes for form in special.passed} == {"11"}
    never = register(DOUBLED, lambda kernel, form: None, name="never")
    assert check(never, cpu()) == (False, "it serves none of the forms that were tried")


def test_d5_a_later_text_takes_the_place_of_an_earlier_one_D5() -> None:
    assert check(register(DOUBLED, text("h0 * 2.0"), name="first"), cpu()).ok
    register(DOUBLED, text("2.0 * h0"), name="second")
    assert not name(DOUBLED).startswith(("first", "second"))
    assert [each.name for each in list(registered_kernels._REGISTER.values())] == ["second"]


def test_d5_a_device_that_does_not_speak_the_language_checks_nothing_D5() -> None:
    special = register(DOUBLED, "kernel text", "opencl", "foreign")
    verdict = check(special, cpu())
    assert verdict.why == "it was not checked: device cpu does not run opencl"
    assert str(special) == f"foreign [opencl] not used: {verdict.why}"


def test_d5_what_is_no_offer_is_refused_D5() -> None:
    with pytest.raises(ValueError, match=r"\[register_kernel\] language: expected one of"):
        register(DOUBLED, text("h0"), "fortran")
    with pytest.raises(ValueError, match=r"\[register_kernel\] name: expected an identifier"):
        register(DOUBLED, text("h0"), name="my kernel")


COUNT = """
__kernel void NAME(__global const long *table, const long chunks,
                   __global char *b0, const long o0,
                   __global char *b1, const long o1,
                   __global int *raised)
{
    const long c = get_global_id(0);
    if (c >= chunks)
        return;
    __global const long *row = table + 2 + c * 3;
    __global const uchar *p0 = (__global const uchar *)(b0 + o0) + row[1];
    long total = FIRST;
    for (long i = 0; i < row[0]; i++)
        total += p0[i] != 0;
    *((__global long *)(b1 + o1) + row[2]) = total;
}
"""


@pytest.mark.parametrize("share", [True, False], ids=["shared memory", "memory of its own"])
def test_d5_texts_in_opencl_are_checked_on_their_device_D5(share: bool) -> None:
    pytest.importorskip("pyopencl", reason="pyopencl is not installed")
    mask = np.random.default_rng(4).random(300_000) < 0.7
    program = lazyfuse.freeze(lambda mask: mask.sum(), mask=mask)
    with lazyfuse.options(device="opencl", opencl_share=share):
        if "opencl" not in devices.current().traits.languages:
            pytest.skip("no OpenCL device for work in chunks is usable here")
        wrong = lazyfuse.register_kernel(program, COUNT.replace("FIRST", "1"), "opencl", "count")
        assert wrong.failure.startswith("output 0 differs from the general text's")
        right = lazyfuse.register_kernel(program, COUNT.replace("FIRST", "0"), "opencl", "count")
        assert (right.ok, right.failure) == (True, "")
        assert "count_" in program.source("opencl")
        assert int(program(mask=mask)) == mask.sum()


# -------------------------------------------------------------------------------- for users


@pytest.fixture
def _on_the_cpu() -> Iterator[None]:
    with lazyfuse.options(device="cpu"):
        yield


@pytest.mark.usefixtures("_on_the_cpu")
def test_d5_users_register_by_example_D5() -> None:
    x = np.random.default_rng(1).random(50_000)
    program = lazyfuse.freeze(lambda x: x + x, x=x)
    general = program(x=x)
    special = lazyfuse.register_kernel(program, text("h0 * 2.0"), name="doubled")
    assert special.ok
    assert str(special).startswith("doubled [numba] used in ")
    assert "doubled_" in program.source("numba")
    program.warm_up()
    np.testing.assert_array_equal(program(x=x), general)
    lazyfuse.unregister_kernel(special)
    assert "doubled_" not in program.source("numba")


@pytest.mark.usefixtures("_on_the_cpu")
def test_d5_a_failed_check_is_in_the_report_D5() -> None:
    program = lazyfuse.freeze(lambda x: x + x, x=np.ones(50_000))
    program.warm_up()
    special = lazyfuse.register_kernel(program, text("h0 * 3.0"), name="tripled")
    assert not special.ok
    reason = "specialised kernel tripled: output 0 differs"
    assert reason in str(lazyfuse.report())
    assert f"not used: {reason}" in str(program.explain())
    np.testing.assert_array_equal(program(x=np.ones(50_000)), np.full(50_000, 2.0))


@pytest.mark.usefixtures("_on_the_cpu")
def test_d5_texts_of_ours_are_registered_by_name_D5() -> None:
    assert lazyfuse.register_kernel("count_true").ok
    mask = np.random.default_rng(2).random(600_000) < 0.4
    program = lazyfuse.freeze(lambda mask: mask.sum(), mask=mask)
    assert "count_true_" in program.source("numba")
    program.warm_up()
    assert int(program(mask=mask)) == mask.sum()
    with pytest.raises(ValueError, match=r"\[register_kernel\] name: expected one of count_true"):
        lazyfuse.register_kernel("count_false")


def test_d5_a_pattern_is_one_kernel_D5() -> None:
    two = lazyfuse.freeze(lambda x: x - x.mean(), x=np.ones(50_000))
    with pytest.raises(ValueError, match="expected a program of one kernel, got 2"):
        lazyfuse.register_kernel(two, text("h0"))
    with pytest.raises(TypeError, match=r"\[register_kernel\] pattern: expected a program of"):
        lazyfuse.register_kernel(3, text("h0"))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"\[register_kernel\] text: expected a program text"):
        lazyfuse.register_kernel(two)
    assert list(registered_kernels._REGISTER.values()) == []
