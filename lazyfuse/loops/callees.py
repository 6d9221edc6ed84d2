"""Functions of the program's that a loop calls: expanded where they are called, or routines.

Owns what such a function may do. One whose statements only compute is written where it is called,
its names with a prefix: leaving it, Python calls it again from the beginning. One that calls itself
becomes a routine: a function of its own in the text, which says by its result that Python has to
do the call.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lazyfuse.loops import kinds
from lazyfuse.loops.expressions import Expressions
from lazyfuse.loops.kinds import UNBOUND, ArrayKind, Object
from lazyfuse.loops.leaving import copied
from lazyfuse.loops.names import stored
from lazyfuse.loops.text import DEPTH, Again, Leaves, Maybe, Refused, Routine
from lazyfuse.loops.values import Elements, Item, Number, Value

_MOST_EXPANDED = 6  # functions that call functions


class Callees(Expressions):
    """Writes calls of the program's functions."""

    def of_function(self, function: Any, node: ast.Call, is_statement: bool = False) -> Item:
        """A call of a function of the program's. `is_statement`: its result is not used."""
        if function in self.memory.recursive:
            return self._of_routine(self._callee(function, node, self._fixed()), is_statement)
        if any(each.function is function for each, _, _ in self.called):
            self.memory.recursive.add(function)
            raise Again
        return self._expanded(self._callee(function, node), is_statement)

    def _callee(self, function: Any, node: ast.Call, keeps: set[str] | None = None) -> Callee:
        """What is called. `keeps`: names that may be the caller's, where not all of them may."""
        key = node, function, frozenset(keeps or ())
        callee = self.memory.callees.get(key)
        if callee is None:
            tree = self.function_of(function)
            if tree is None or len(self.called) >= _MOST_EXPANDED:
                raise Leaves("a function")
            prefix = f"call{len(self.memory.callees)}__"
            callee = self.memory.callees[key] = Callee(function, tree, node, prefix, keeps)
            for each in callee.body:
                self.memory.aliases(each)
        self.constants += callee.constants
        return callee

    def _begin(self, callee: Callee) -> None:
        """The names of a function before its first statement."""
        for name in (*callee.locals, *callee.given):
            self.put(f"{name}_set = 0")
            self.flagged.add(name)
            self.kinds[name] = UNBOUND
        for name, value in callee.globals.items():
            self.kinds[name] = Object(value)

    def _expanded(self, callee: Callee, is_statement: bool) -> Item:
        callee.results = []
        given = [(name, self.item(each)) for name, each in callee.given.items()]
        for name in callee.same.values():
            if isinstance(self.kinds.get(name), Maybe):
                self.value(ast.Name(name, ast.Load()))
        before, depth = dict(self.kinds), len(self.loops)
        self.settle()
        self._begin(callee)
        for name, value in given:
            self.assign(ast.Name(name, ast.Store()), value)
        self.called.append((callee, depth, is_statement))
        try:
            self.open("while True:")
            self.body(callee.body)
            if not self.dead:
                if not is_statement:
                    raise Leaves("a function that may end without a result")
                self.put("break")
            self.close()
        except Refused as why:
            raise Leaves(str(why)) from why
        finally:
            self.called.pop()
            self.dead, self.kinds = False, before
        if is_statement:
            return ()
        results = tuple([self._outcome(name, kind) for name, kind in callee.results])
        return results if callee.is_tuple else results[0]

    def _outcome(self, name: str, kind: str) -> Value:
        rank = kind.count("*")
        if not rank:
            return self.held(name, kind)
        self.kinds[name] = ArrayKind(kind[rank:], rank, True, True)
        row = self.whole(self.part_of(self.array(ast.Name(name, ast.Load())), []))
        del self.kinds[name]
        return row._replace(part=None)  # the next call writes there again

    def _fixed(self) -> set[str]:
        """Names that mean the same in a routine: arrays that the loop does not assign, objects."""
        return {
            name
            for name, kind in self.kinds.items()
            if isinstance(kind, Object) or (name in self.origins and not self.is_variable(name))
        }

    def _of_routine(self, callee: Callee, is_statement: bool) -> Item:
        """A call of a function that calls itself."""
        given = [self.kept(self.number(each)) for each in callee.given.values()]
        numbers = [each for each in given if isinstance(each, Number)]
        if any(each.tag or kinds.is_complex(each.kind) for each in numbers):
            raise Leaves("a function that calls itself, with numbers of these types")
        same = tuple(sorted(callee.same.items()))
        key = callee.function, tuple([str(each.kind) for each in numbers]), same
        routine = self.memory.routines.get(key)
        if routine is None:
            routine = Routine(f"routine{len(self.memory.routines)}", callee)
            self.memory.routines[key] = routine
        if routine not in self.routines:
            self._write(routine, numbers)
        self.settle()
        args = "".join([f", {each.text}" for each in numbers])
        self.leave(f"{routine.name}(meta, scalars, depth + 1{args}) != 0")
        if is_statement:
            return ()
        if not routine.results:
            raise Leaves("a function that may end without a result")
        results = tuple([
            Number(
                self.temp(self.word(kind, at)), kind,
                tag=self.temp(f"meta[{at + 2}] != 0") if "|" in kind else "",
            )
            for kind, at in zip(routine.results, routine.places, strict=True)
        ])  # fmt: skip
        return results if routine.is_tuple else results[0]

    def _write(self, routine: Routine, numbers: list[Number]) -> None:
        """Write a routine for numbers of these kinds."""
        callee = routine.callee
        routine.is_known = False
        routine.places = [self._take(3) for _ in routine.results]
        with self._beside(routine):
            names = [f"{name}_given" for name in callee.given]
            types = [kinds.register(each.kind) for each in numbers]
            rest = "".join([f", {n}: {t!r}" for n, t in zip(names, types, strict=True)])
            with self.under(f"def {routine.name}(meta: '*i8', scalars: '*f8', depth: 'i8'{rest}):"):
                self.leave(f"depth > meta[{DEPTH}]")
                turns = self._take(1)
                self.put(f"patience = meta[{turns}]")
                self.patience("1")
                self.put(f"meta[{turns}] = patience")
                self._arrays()
                self._begin(callee)
                for name, held, each in zip(callee.given, names, numbers, strict=True):
                    self.assign(ast.Name(name, ast.Store()), Number(held, str(each.kind)))
                self.called.append((callee, 0, False))
                self.body(callee.body)
                if not self.dead:
                    self._returned(routine, None, callee.body[-1])

    def _arrays(self) -> None:
        """The arrays that are there at entry."""
        for name, kind, at in self.enters:
            if isinstance(kind, ArrayKind) and not self.is_variable(name):
                self.read_array(name, kind, at)

    @contextmanager
    def _beside(self, routine: Routine) -> Iterator[None]:
        """What is written here is a function of its own."""
        before = self.lines, self.indent, self.kinds, self.loops, self.called, self.routine
        at, taking, pending, covered = self.at, self.taking, self.pending, self.covered
        self.lines = self.routines[routine] = []
        self.indent, self.loops, self.called, self.routine = 0, [], [], routine
        self.kinds = {name: self.kinds[name] for name in sorted(self._fixed())}
        self.taking, self.pending, self.covered = None, [], set()
        try:
            yield
        except Leaves:
            del self.routines[routine]
            if not routine.is_known and routine.guesses:  # `1.0 if n == 0 else f(n - 1)`
                routine.results = [routine.guesses.pop()]
                raise Again from None
            raise
        finally:
            self.lines, self.indent, self.kinds, self.loops, self.called, self.routine = before
            self.at, self.taking, self.pending, self.covered = at, taking, pending, covered
            self.dead = False

    def _returned(self, routine: Routine, found: Any, node: ast.AST) -> None:
        """A routine's result."""
        values = () if found is None else found if type(found) is tuple else (found,)
        if not all(isinstance(each, Number) for each in values):
            raise Leaves("a function that calls itself, with results of these types")
        results: list[Any] = [str(each.kind) for each in values]
        known = routine.results if routine.is_known or routine.is_union else results
        if len(results) == len(known):
            both = zip(results, known, strict=True)
            results = [a if a == b else kinds.union(a, b) for a, b in both]
        if None in results or len(results) != len(known):
            raise Leaves("a function with results of several types")
        if (results, type(found) is tuple) != (routine.results, routine.is_tuple):
            routine.results, routine.is_tuple = results, type(found) is tuple
            routine.is_union = routine.is_known
            raise Again
        routine.is_known = True
        for value, kind, at in zip(values, results, routine.places, strict=True):
            self.put_word(self.as_union(value, kind) if "|" in kind else value, at)
        self.put("return int32(0)")
        self.dead = True

    def on_return(self, node: ast.Return) -> None:
        if not self.called:
            raise Leaves("return")
        callee, depth, is_statement = self.called[-1]
        found = None if node.value is None else self.item(node.value)
        self.settle()
        if self.routine is not None and len(self.called) == 1:
            self._returned(self.routine, found, node)
            return
        if is_statement:
            self.put(f"escape({len(self.loops) - depth + 1})")
            self.dead = True
            return
        if found is None or node.value is None:
            raise Leaves("a function that may end without a result")
        values = found if type(found) is tuple else (found,)
        for each in values:
            is_new = isinstance(each, Elements) and (each.is_new() or self.is_local(node.value))
            if not (isinstance(each, Number) or is_new):
                raise Leaves("a function whose result is a view")
        if not callee.results:
            callee.is_tuple = type(found) is tuple
            own = [callee.wanted.get(k, each.kind) for k, each in enumerate(values)]
            callee.results = [
                (f"{callee.prefix}result{k}", _stars(each) + kind)
                for k, (each, kind) in enumerate(zip(values, own, strict=True))
            ]
        if callee.is_tuple != (type(found) is tuple) or len(callee.results) != len(values):
            raise Leaves("a function with results of several types")
        for k, ((name, kind), value) in enumerate(zip(callee.results, values, strict=True)):
            if isinstance(value, Elements) and _stars(value) + value.kind == kind:
                self.flagged.add(name)
                self.store_array(name, value)
                continue
            both = kind if value.kind == kind else kinds.union(kind, value.kind)
            if both is None:
                raise Leaves("a function with results of several types")
            if both != kind:
                callee.wanted[k] = both
                raise Again
            held = self.as_union(value, kind) if "|" in kind else value
            self.hold(self.variable(name, kind), held)
        self.put(f"escape({len(self.loops) - depth + 1})")
        self.dead = True


class Callee:
    """A function that is expanded where it is called: its names get a prefix."""

    def __init__(
        self,
        function: Any,
        tree: ast.FunctionDef,
        node: ast.Call,
        prefix: str,
        keeps: set[str] | None = None,
    ) -> None:
        self.function, self.prefix = function, prefix
        self.results: list[tuple[str, str]] = []
        self.wanted: dict[int, str] = {}  # results whose type the way to them decides
        self.is_tuple = False
        code, signature = function.__code__, tree.args
        special = signature.vararg or signature.kwarg
        if special or signature.posonlyargs or tree.decorator_list:
            raise Leaves("a function with a special signature")
        positional = [each.arg for each in signature.args]
        names = positional + [each.arg for each in signature.kwonlyargs]
        given: dict[str, ast.expr] = dict(zip(positional, node.args, strict=False))
        for keyword in node.keywords:
            if keyword.arg not in names or keyword.arg in given:
                raise Leaves("a call with other names")
            given[keyword.arg] = keyword.value
        defaults = function.__defaults__ or ()
        last = positional[len(positional) - len(defaults) :]
        kept = dict(zip(last, defaults, strict=True)) | (function.__kwdefaults__ or {})
        for name, value in kept.items():
            if type(value) in (int, float, bool):
                given.setdefault(name, ast.Constant(value))
        if len(given) != len(names) or len(node.args) > len(positional):
            raise Leaves("a call with other arguments")
        self.constants: list[Any] = [
            (getattr, (function, "__code__"), code),
            (getattr, (function, "__defaults__"), function.__defaults__),
            (getattr, (function, "__kwdefaults__"), function.__kwdefaults__),
        ]
        assigned = {*code.co_cellvars, *stored(tree)}
        self.same = {
            name: each.id
            for name, each in given.items()
            if isinstance(each, ast.Name) and name not in assigned
            if keeps is None or each.id in keeps
        }
        self.given = {prefix + name: x for name, x in given.items() if name not in self.same}
        own = {each for each in code.co_varnames if each not in given and each[0] != "."}
        self.locals = [prefix + each for each in sorted(own)]
        self.globals: dict[str, Any] = {}
        self.body = copied(tree.body)
        cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
        for part in self.body:
            for each in ast.walk(part):
                if isinstance(each, ast.Name):
                    if each.id not in code.co_varnames:
                        self._outer(function, cells, each.id)
                    each.id = self.same.get(each.id, prefix + each.id)

    def _outer(self, function: Any, cells: dict[str, Any], name: str) -> None:
        """Note the value of a name that the function does not own."""
        scope: Any = function.__globals__
        if name in cells:
            get: tuple[Any, tuple[Any, ...]] = getattr, (cells[name], "cell_contents", None)
        else:
            if name not in scope:
                builtin = scope.get("__builtins__")
                scope = builtin if isinstance(builtin, dict) else vars(builtin)
            get = scope.get, (name,)
        value = get[0](*get[1])
        self.constants.append((*get, value))
        self.globals[self.prefix + name] = value


def _stars(value: Value) -> str:
    """A star for each axis."""
    return "*" * len(value.sizes) if isinstance(value, Elements) else ""
