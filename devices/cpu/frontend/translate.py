"""Text of language "numba" -> an LLVM module.

Owns the walk over a text's statements. builtins.py tells what the names mean; the types are numba's
(kinds.py), for which the texts were written: its front end infers types over several
representations, where they need one walk. What they use beyond the statements here raises
`Unsupported`.

A variable has one type in a function: the common one of all that it is assigned. Where an
assignment shows that it is wider than thought, the walk begins anew with what is known. Helper
functions are expanded where they are called.
"""

from __future__ import annotations

import ast
import functools
import itertools
from typing import Any

from ...base import Source
from ...late_imports import module as heavy
from ...pools import vector_math
from ..intrinsics import memory
from . import arithmetic, builtins, kinds
from .kinds import Unsupported
from .values import Value, constant, convert, llvm_type, truth

_WALKS = 50  # with better known types, of one text
_DEPTH = 40  # of helpers that call helpers


class _Wider(Exception):
    """A variable's type was not known yet."""


def translate(source: Source, entry: str, features: str) -> Any:
    """The llvmlite module of a text, with its function as `entry`; raises `Unsupported`."""
    try:
        tree = ast.parse(source.text)
    except SyntaxError as error:
        raise Unsupported(f"[translate] {error}") from error
    functions = {each.name: each for each in tree.body if isinstance(each, ast.FunctionDef)}
    if len(functions) != len(tree.body) or source.name not in functions:
        raise Unsupported("[translate] more than functions")
    types: dict[tuple[int, str], str] = {}
    for _ in range(_WALKS):
        try:
            return _Walk(functions, features, types).module(functions[source.name], entry)
        except _Wider:
            continue
    raise Unsupported("[translate] types that grow and grow")


class _Scope:
    """The variables of one function, or of one expanded call."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.variables: dict[str, tuple[str, tuple[Any, ...]]] = {}
        self.end: Any = None  # where `return` goes to
        self.returned = 0  # values of a tuple that it returns


class _Walk:
    """One walk over a text."""

    def __init__(
        self, functions: dict[str, ast.FunctionDef], features: str, types: dict[Any, str]
    ) -> None:
        self.functions = functions
        self.features = features
        self.types = types
        self.scopes = 0
        self.depth = 0
        self.ends: list[Any] = []  # where `break` goes to
        self.latches: list[Any] = []  # and `continue`: the blocks that jump back
        self.builder: Any = None
        self.routines: list[tuple[ast.FunctionDef, Any]] = []  # that are called, not yet written
        self.exit: Any = None  # where `leave` goes to (loop_functions.py), and its argument
        self.code: Any = None
        self.scope = _Scope(0)

    def module(self, main: ast.FunctionDef, entry: str) -> Any:
        """The module with this function, which gets `meta` and `scalars`."""
        ir = heavy("llvmlite.ir")
        module = ir.Module(entry)
        int32, int64 = ir.IntType(32), ir.IntType(64)
        kind = ir.FunctionType(int32, [int64.as_pointer(), ir.DoubleType().as_pointer()])
        function = ir.Function(module, kind, entry)
        function.attributes.add("nounwind")
        self.builder = ir.IRBuilder(function.append_basic_block("entry"))
        names = [each.arg for each in main.args.args]
        for name, given, target in zip(names, function.args, ("i8", "f8"), strict=True):
            self.scope.variables[name] = (f"={target}", (given,))
        self.function(main)
        while self.routines:
            routine, function = self.routines.pop()
            self.builder = ir.IRBuilder(function.append_basic_block("entry"))
            self.scopes += 1
            self.scope, self.exit = _Scope(self.scopes), None
            for each, given in zip(routine.args.args, function.args, strict=True):
                self.assign(each.arg, Value(_annotation(each), (given,)))
            self.function(routine)
        return module

    def function(self, node: ast.FunctionDef) -> None:
        """The statements of a function that is called."""
        self.body(node.body)
        if not self.builder.block.is_terminated:
            raise Unsupported("[translate] a function that ends without a result")

    # Variables

    def assign(self, name: str, value: Value) -> None:
        known = self.scope.variables.get(name)
        if known is not None and known[0][0] == "=":
            raise Unsupported(f"[translate] {name} is given and assigned")
        if value.kind[0] == "*" and known is not None and known[0] != value.kind:
            raise Unsupported(f"[translate] {name} is {known[0]} and {value.kind}")
        key = self.scope.number, name
        kind = self.types.get(key)
        if kind is None:
            kind = self.types[key] = value.kind
        elif kind != value.kind:
            kind = self.widened(key, kind, value.kind)
        if known is None:
            with self.builder.goto_entry_block():
                places = [self.builder.alloca(llvm_type(kind)) for _ in value.parts]
            known = self.scope.variables[name] = (kind, tuple(places))
        kept = value if value.kind == kind else convert(self.builder, value, kind)
        for place, part in zip(known[1], kept.parts, strict=True):
            self.builder.store(part, place)

    def widened(self, key: tuple[int, str], kind: str, other: str) -> str:
        """The type that a variable has after all; begins anew if it was not known."""
        same = kind[0] == other[0] and kind[0] in "iu"
        if not same or min(kinds.size(kind), kinds.size(other)) < 4:
            raise Unsupported(f"[translate] {key[1]} is {kind} and {other}")
        wide = kinds.common(kind, other)
        if wide != kind:
            self.types[key] = wide
            raise _Wider
        return kind

    def variable(self, name: str) -> Value | None:
        known = self.scope.variables.get(name)
        if known is None:
            return None
        kind, places = known
        if kind[0] == "=":
            return Value("*" + kind[1:], places)
        return Value(kind, tuple([self.builder.load(place) for place in places]))

    # Statements

    def body(self, statements: list[ast.stmt]) -> None:
        for each in statements:
            if self.builder.block.is_terminated:
                return
            walk = getattr(self, "on_" + type(each).__name__.lower(), None)
            if walk is None:
                raise Unsupported(f"[translate] statement {type(each).__name__}")
            walk(each)

    def on_pass(self, node: ast.Pass) -> None:
        """Nothing."""

    def on_expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return  # a docstring
        if not isinstance(node.value, ast.Call):
            raise Unsupported("[translate] an expression without effect")
        self.call(node.value)

    def on_assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            if isinstance(target, ast.Tuple):
                self.unpack(target, node.value)
            else:
                self.put(target, self.value(node.value))

    def unpack(self, target: ast.Tuple, node: ast.expr) -> None:
        """Assign a tuple: all values are there before the first is assigned."""
        values = self.values(node)
        for place, value in zip(target.elts, values, strict=True):
            self.put(place, value)

    def values(self, node: ast.expr) -> list[Value]:
        if isinstance(node, ast.Tuple):
            return [self.value(each) for each in node.elts]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            helper = self.functions.get(node.func.id)
            if helper is not None:
                return self.expand(helper, [self.value(each) for each in node.args])
        raise Unsupported("[translate] a tuple of unknown length")

    def put(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            self.assign(target.id, value)
        elif isinstance(target, ast.Subscript):
            pointer, place = self.place(target)
            memory.store(self.builder, place, convert(self.builder, value, pointer.target).parts)
        else:
            raise Unsupported("[translate] a target of an assignment")

    def on_augassign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            before = self.value(ast.Name(node.target.id, ast.Load()))
            after = arithmetic.binary(self.builder, node.op, before, self.value(node.value))
            self.assign(node.target.id, after)
            return
        if not isinstance(node.target, ast.Subscript):
            raise Unsupported("[translate] a target of an assignment")
        pointer, place = self.place(node.target)
        before = self.loaded(pointer, place)
        after = arithmetic.binary(self.builder, node.op, before, self.value(node.value))
        memory.store(self.builder, place, convert(self.builder, after, pointer.target).parts)

    def on_return(self, node: ast.Return) -> None:
        scope = self.scope
        if scope.end is None:
            assert node.value is not None
            self.builder.ret(convert(self.builder, self.value(node.value), "i4").ir)
            return
        if node.value is None:
            raise Unsupported("[translate] return without a value")
        is_tuple = isinstance(node.value, ast.Tuple)
        found = self.values(node.value) if is_tuple else [self.value(node.value)]
        scope.returned = len(found)
        for k, each in enumerate(found):
            self.assign(f"return {k}", each)
        self.builder.branch(scope.end)

    def on_break(self, node: ast.Break) -> None:
        self.builder.branch(self.ends[-1])

    def on_continue(self, node: ast.Continue) -> None:
        self.builder.branch(self.latches[-1])

    def on_if(self, node: ast.If) -> None:
        test = self.truth(node.test)
        if test.literal is not None:
            self.body(node.body if test.literal else node.orelse)
            return
        build = self.builder
        then, after = build.append_basic_block(), build.append_basic_block()
        other = build.append_basic_block() if node.orelse else after
        build.cbranch(test.ir, then, other)
        for block, statements in ((then, node.body), (other, node.orelse)):
            if block is not after:
                build.position_at_end(block)
                self.body(statements)
                if not build.block.is_terminated:
                    build.branch(after)
        build.position_at_end(after)
        if node.orelse and not _is_reached(after):
            build.unreachable()

    def on_while(self, node: ast.While) -> None:
        build = self.builder
        head, inner, latch, after = [build.append_basic_block() for _ in range(4)]
        build.branch(head)
        with build.goto_block(latch):
            build.branch(head)
        build.position_at_end(head)
        test = self.truth(node.test)
        if test.literal:
            build.branch(inner)
        else:
            build.cbranch(test.ir, inner, after)
        build.position_at_end(inner)
        self.repeated(node.body, latch, after)
        if not _is_reached(after):
            build.unreachable()

    def repeated(self, statements: list[ast.stmt], latch: Any, after: Any) -> None:
        """The body of a loop, and its end: what follows comes after the loop."""
        self.latches.append(latch)
        self.ends.append(after)
        self.body(statements)
        self.latches.pop()
        self.ends.pop()
        if not self.builder.block.is_terminated:
            self.builder.branch(latch)
        self.builder.position_at_end(after)

    def on_for(self, node: ast.For) -> None:
        if not isinstance(node.target, ast.Name) or node.orelse:
            raise Unsupported("[translate] a loop over more than a range")
        start, stop, step = self.range(node.iter)
        build, int64 = self.builder, llvm_type("i8")
        with build.goto_entry_block():
            counter = build.alloca(int64)
        build.store(start.ir, counter)
        head, inner, latch, after = [build.append_basic_block() for _ in range(4)]
        build.branch(head)
        with build.goto_block(latch):
            build.store(build.add(build.load(counter), int64(step), flags=["nsw"]), counter)
            build.branch(head)
        build.position_at_end(head)
        now = build.load(counter)
        sign = "<" if step > 0 else ">"
        build.cbranch(build.icmp_signed(sign, now, stop.ir), inner, after)
        build.position_at_end(inner)
        self.assign(node.target.id, Value("i8", (now,)))
        self.repeated(node.body, latch, after)

    def range(self, node: ast.expr) -> tuple[Value, Value, int]:
        """Start, stop and step of `range(...)`."""
        if not (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "range"
            and 1 <= len(node.args) <= 3
        ):
            raise Unsupported("[translate] a loop over more than a range")
        given = [self.value(each) for each in node.args]
        if any(each.kind[0] not in "iu" or each.kind == "u8" for each in given):
            raise Unsupported("[translate] a range of other numbers than int64")
        numbers = [convert(self.builder, each, "i8") for each in given]
        step = numbers[2].literal if len(numbers) == 3 else 1
        if not step:
            raise Unsupported("[translate] a step that is not known")
        if len(numbers) == 1:
            return constant(0, "i8"), numbers[0], 1
        return numbers[0], numbers[1], int(step)

    # Expressions

    def value(self, node: ast.expr) -> Value:
        walk = getattr(self, "of_" + type(node).__name__.lower(), None)
        if walk is None:
            raise Unsupported(f"[translate] expression {type(node).__name__}")
        found: Value = walk(node)
        return found

    def truth(self, node: ast.expr) -> Value:
        return truth(self.builder, self.value(node))

    def of_constant(self, node: ast.Constant) -> Value:
        number = node.value
        if number is True or number is False:
            return constant(number, "b1")
        if isinstance(number, int):
            return constant(number, "i8" if number < 1 << 63 else "u8")
        if isinstance(number, float):
            return constant(number, "f8")
        raise Unsupported(f"[translate] constant {number!r}")

    def of_name(self, node: ast.Name) -> Value:
        found = self.variable(node.id)
        if node.id == "CONVERTS_WIDE" and found is None:
            found = constant(vector_math.converts_wide(self.features), "b1")
        if found is None:
            raise Unsupported(f"[translate] name {node.id}")
        return found

    def of_attribute(self, node: ast.Attribute) -> Value:
        number = builtins.NUMBERS.get(ast.unparse(node))
        if number is not None:
            return constant(number, "f8")
        if node.attr not in ("real", "imag"):
            raise Unsupported(f"[translate] attribute {node.attr}")
        return arithmetic.part_of(self.value(node.value), node.attr)

    def of_binop(self, node: ast.BinOp) -> Value:
        left = self.value(node.left)
        return arithmetic.binary(self.builder, node.op, left, self.value(node.right))

    def of_unaryop(self, node: ast.UnaryOp) -> Value:
        operand = node.operand
        if isinstance(node.op, ast.USub) and isinstance(operand, ast.Constant):
            number = operand.value
            if type(number) is int and 0 < number <= 1 << 63:
                return constant(-number, "i8")  # Python's own compiler folds it so for numba
        return arithmetic.unary(self.builder, node.op, self.value(operand))

    def of_compare(self, node: ast.Compare) -> Value:
        values = [self.value(each) for each in (node.left, *node.comparators)]
        found = [
            arithmetic.compare(self.builder, operator, *pair)
            for operator, pair in zip(node.ops, itertools.pairwise(values), strict=True)
        ]
        return functools.reduce(
            functools.partial(arithmetic.binary, self.builder, ast.BitAnd()), found
        )

    def of_boolop(self, node: ast.BoolOp) -> Value:
        """`and`, `or` of truth values: what comes later is computed where it counts."""
        build, is_and = self.builder, isinstance(node.op, ast.And)
        after = build.append_basic_block()
        results = []
        for each in node.values:
            found = self.value(each)
            if found.kind != "b1":
                raise Unsupported("[translate] `and` and `or` of other than truth values")
            results.append((found.ir, build.block))
            if each is node.values[-1]:
                build.branch(after)
                break
            further = build.append_basic_block()
            build.cbranch(found.ir, *((further, after) if is_and else (after, further)))
            build.position_at_end(further)
        build.position_at_end(after)
        phi = build.phi(llvm_type("b1"))
        for value, block in results:
            phi.add_incoming(value, block)
        return Value("b1", (phi,))

    def of_ifexp(self, node: ast.IfExp) -> Value:
        test = self.truth(node.test)
        if test.literal is not None:
            return self.value(node.body if test.literal else node.orelse)
        build = self.builder
        blocks = [build.append_basic_block() for _ in range(3)]
        build.cbranch(test.ir, *blocks[:2])
        arms, ends = [], []
        for block, each in zip(blocks, (node.body, node.orelse), strict=False):
            build.position_at_end(block)
            arms.append(self.value(each))
            ends.append(build.block)
        kind = arms[0].kind
        if kind != arms[1].kind:
            if "*" in (kind[0], arms[1].kind[0]):
                raise Unsupported("[translate] a choice between pointers")
            kind = kinds.common(kind, arms[1].kind)
        kept = []
        for arm, end in zip(arms, ends, strict=True):
            build.position_at_end(end)
            kept.append(convert(build, arm, kind).parts)
            build.branch(blocks[2])
        build.position_at_end(blocks[2])
        phis = [build.phi(part.type) for part in kept[0]]
        for parts, end in zip(kept, ends, strict=True):
            for phi, part in zip(phis, parts, strict=True):
                phi.add_incoming(part, end)
        return Value(kind, tuple(phis))

    def of_subscript(self, node: ast.Subscript) -> Value:
        pointer, place = self.place(node)
        return self.loaded(pointer, place)

    def place(self, node: ast.Subscript) -> tuple[Value, Any]:
        """A pointer, and the address of one of its elements."""
        pointer, index = self.value(node.value), self.value(node.slice)
        target = pointer.target
        if index.kind[0] not in "biu":
            raise Unsupported(f"[translate] {target} at {index.kind}")
        wide = convert(self.builder, index, kinds.word(index.kind))
        return pointer, self.builder.gep(pointer.ir, [wide.ir])

    def loaded(self, pointer: Value, place: Any) -> Value:
        code = pointer.target
        return Value(code, memory.load(self.builder, place, code[0] == "c"))

    def of_call(self, node: ast.Call) -> Value:
        found = self.call(node)
        if found is None:
            raise Unsupported("[translate] the value of a statement")
        return found

    def call(self, node: ast.Call) -> Value | None:
        """A call of a helper, a function of the language, or a method of a number."""
        if node.keywords:
            raise Unsupported("[translate] keywords")
        if isinstance(node.func, ast.Name) and node.func.id in self.functions:
            helper = self.functions[node.func.id]
            given = [self.value(each) for each in node.args]
            if helper.args.args and helper.args.args[0].annotation is not None:
                return self.routine(helper, given)
            found = self.expand(helper, given)
            if len(found) > 1:
                raise Unsupported("[translate] a tuple as a value")
            return found[0] if found else None
        name = ast.unparse(node.func)
        function = builtins.FUNCTIONS.get(name)
        if function is not None:
            return function(self, [self.value(each) for each in node.args])
        if isinstance(node.func, ast.Attribute):
            value = self.value(node.func.value)
            if node.func.attr == "conjugate" and not node.args:
                return arithmetic.conjugate(self.builder, value)
            if node.func.attr == "view" and len(node.args) == 1:
                kind = kinds.NAMES.get(ast.unparse(node.args[0]).removeprefix("np."))
                if kind is not None and value.kind in kinds.CODES:
                    return arithmetic.same_bits(self.builder, value, kind)
        raise Unsupported(f"[translate] function {name}")

    def routine(self, helper: ast.FunctionDef, given: list[Value]) -> Value:
        """A call of a function whose arguments have types; it may call itself. An int32."""
        ir, kinds_ = heavy("llvmlite.ir"), [_annotation(each) for each in helper.args.args]
        if len(kinds_) != len(given):
            raise Unsupported(f"[translate] a call of {helper.name}")
        function = self.builder.module.globals.get(helper.name)
        if function is None:
            kind = ir.FunctionType(ir.IntType(32), [llvm_type(each) for each in kinds_])
            function = ir.Function(self.builder.module, kind, helper.name)
            function.linkage = "internal"
            function.attributes.add("nounwind")
            self.routines.append((helper, function))
        args = [
            (each if each.kind == kind else convert(self.builder, each, kind)).ir
            for each, kind in zip(given, kinds_, strict=True)
        ]
        return Value("i4", (self.builder.call(function, args),))

    def expand(self, helper: ast.FunctionDef, given: list[Value]) -> list[Value]:
        """A helper's statements, with its results."""
        names = [each.arg for each in helper.args.args]
        if len(names) != len(given) or helper.args.defaults or self.depth > _DEPTH:
            raise Unsupported(f"[translate] a call of {helper.name}")
        self.scopes += 1
        self.depth += 1
        before, outer = self.scope, (self.ends, self.latches)
        self.scope, self.ends, self.latches = _Scope(self.scopes), [], []
        end = self.scope.end = self.builder.append_basic_block()
        for name, value in zip(names, given, strict=True):
            self.assign(name, value)
        self.body(helper.body)
        if not self.builder.block.is_terminated:
            if self.scope.returned:
                raise Unsupported(f"[translate] {helper.name} ends without a result")
            self.builder.branch(end)
        self.builder.position_at_end(end)
        found = [self.variable(f"return {k}") for k in range(self.scope.returned)]
        self.scope, (self.ends, self.latches) = before, outer
        self.depth -= 1
        return [each for each in found if each is not None]


def _annotation(argument: ast.arg) -> str:
    """The type of an argument."""
    return str(ast.literal_eval(argument.annotation)) if argument.annotation else ""


def _is_reached(block: Any) -> bool:
    """Whether a finished block jumps to this one."""
    return any(
        block in each.terminator.operands
        for each in block.function.basic_blocks
        if each.is_terminated
    )
