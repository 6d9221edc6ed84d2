"""`lazyfuse.freeze`: programs that are planned once and called many times with named bindings.

Owns `Program`, `parameter` and the tracing of functions. A traced graph is copied into a template.
Each call replaces the template's leaves for parameters, without recording or planning again.
"""

from __future__ import annotations

import inspect
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from lazyfuse import config
from lazyfuse.arrays.ndarray import (
    CANONICAL,
    OURS,
    alone,
    caller,
    cast_node,
    copy_of,
    gather,
    materialise,
    ndarray,
    node_of,
)
from lazyfuse.arrays.scalars import make_scalar
from lazyfuse.codegen.graph.linearize import Recording, linearize
from lazyfuse.codegen.graph.node import Node, source_line, topological
from lazyfuse.codegen.lowering.kernel import Kernel
from lazyfuse.codegen.plan.plan import Plan
from lazyfuse.codegen.table import ops
from lazyfuse.devices.caches import Group
from lazyfuse.devices.dataclass import replace
from lazyfuse.errors import EvaluationError, UnsupportedError, message
from lazyfuse.runtime.events import decisions
from lazyfuse.runtime.layout.meta_arrays import Perm, meta_array, packed_order
from lazyfuse.runtime.numerics.fp_flags import warn_for
from lazyfuse.runtime.placement import devices
from lazyfuse.runtime.scheduling import evaluate
from lazyfuse.runtime.scheduling.parameters import (
    Parameter,
    Sizes,
    below,
    check_names,
    describe,
    is_parameter,
    parameter_node,
)
from lazyfuse.tools.explain import Explanation, explain_nodes

Geometry = tuple[tuple[tuple[int, ...], Perm], ...]

# Templates kept per program: one for each combination of shapes and memory orders in its calls.
TEMPLATE_LIMIT = 64

_VIEW_OR_FULL = (ops.VIEW, ops.FULL)


class _Refusal:
    """The operation of a parameter: evaluating it raises the error that it has no value yet."""

    __slots__ = ("parameter", "program")

    def __init__(self, parameter: Parameter, program: str) -> None:
        self.parameter = parameter
        self.program = program

    def __call__(self) -> Any:
        name = self.parameter.name
        if self.program:
            what = (
                f"the value of parameter {name!r} is needed while {self.program} is being traced, "
                "before it is known; branch with where(), or freeze what does not branch"
            )
        else:
            what = (
                f"parameter {name!r} has no value outside a program; freeze the expression and "
                f"call the program with {name}=..."
            )
        file, line, function = source_line(caller())
        raise EvaluationError(what, op="freeze", file=file, line=line, function=function)


def parameter(name: Any, shape: Any = None, dtype: Any = None) -> Any:
    """A named parameter of an expression, or the description of a parameter of a function.

    `parameter("x", (1000, 3), "f8")` is an array (a scalar without a shape) to write expressions
    with; it has no value until the program that `freeze` makes of them is called. `parameter((1000,
    3), "f8")`, without a name, describes an argument of a function; there a size may be None (any)
    or a name (any, the same for every use of the name).
    """
    if not isinstance(name, str):
        return describe("", name, "f8" if shape is None else shape)
    found = describe(name, () if shape is None else shape, "f8" if dtype is None else dtype)
    if found.is_free:
        what = f"parameter {name!r}: sizes of an expression are fixed"
        raise ValueError(message("freeze", f"{what}; freeze a function for those that vary"))
    return _array_of(_node(found, found.shape, None, ""))  # type: ignore[arg-type]


def freeze(what: Any, /, **parameters: Any) -> Program:
    """A program that is planned once and called many times: `program(x=..., t=...)`.

    `what` is a function or an expression (an array, or a tuple, list or dict of arrays, nested).
    For a function, an example (an array or number), `(dtype, shape)` or `lazyfuse.parameter(shape,
    dtype)` describes each parameter; a size may be None (any) or a name (any, the same for every
    use of the name). `freeze` calls the function with arrays that have no values yet, once per
    combination of shapes. So the function must not look at values (an error names the line that
    does), nor write to arrays from outside, and what it prints or counts happens once. In an
    expression, the parameters are found by name.

    All other data that the work reads are captured now: a program does not see later writes.
    Numbers become scalars of NumPy's dtype for them (float64, int64, ...). Bindings are cast to the
    parameter's dtype by NumPy's rule "same_kind" or refused. They are never written to, and are
    copied if they do not fill one block of memory. Results are new arrays that share no memory.
    """
    if callable(what) and type(what) not in OURS:
        return Program(_of_function(what, parameters))
    if parameters:
        names = ", ".join(parameters)
        text = f"{names}: expected no parameters beside an expression, they are found in it"
        raise TypeError(message("freeze", text))
    return Program(_Expression(what))


# ------------------------------------------------------------------------------------ tracing


def _node(found: Parameter, shape: tuple[int, ...], perm: Perm, program: str) -> Node:
    return parameter_node(_Refusal(found, program), found, shape, perm, caller())


def _array_of(node: Node) -> Any:
    return alone(node) if node.shape else make_scalar(node)


def _of_function(function: Callable[..., Any], parameters: Mapping[str, Any]) -> _Function:
    described = {name: _described(name, value) for name, value in parameters.items()}
    try:
        signature = inspect.signature(function)
    except ValueError:  # a builtin function without a signature
        return _Function(function, described)
    try:
        signature.bind(**parameters)
    except TypeError as error:
        name = getattr(function, "__name__", repr(function))
        raise TypeError(message("freeze", f"parameters of {name}: {error}")) from None
    return _Function(function, described)


def _described(name: str, value: Any) -> Parameter:
    """The parameter that an example or a description describes."""
    if isinstance(value, Parameter):
        return Parameter(name, value.dtype, value.shape)
    pair = isinstance(value, tuple) and len(value) == 2
    if pair and isinstance(value[0], (str, type, np.dtype)):
        return describe(name, value[1], value[0])
    if type(value) in OURS:
        return describe(name, value.shape, value.dtype)
    array = np.asarray(value)
    return describe(name, array.shape, array.dtype)


class _Function:
    """A function to trace, and what its parameters are."""

    def __init__(self, function: Callable[..., Any], parameters: dict[str, Parameter]) -> None:
        self.function = function
        self.name = getattr(function, "__name__", "program")
        self.parameters = parameters

    def trace(self, geometry: Geometry) -> tuple[Any, list[Node]]:
        """What the function returns for parameters of these shapes, and their nodes."""
        pairs = zip(self.parameters.values(), geometry, strict=True)
        nodes = [_node(each, shape, perm, self.name) for each, (shape, perm) in pairs]
        named = zip(self.parameters, nodes, strict=True)
        # record even small arrays, since parameters are written into them
        with config.options(eager_below=0, lazy_numbers=True):
            return self.function(**{name: _array_of(node) for name, node in named}), nodes

    def __reduce__(self) -> Any:
        return _Function, (self.function, self.parameters)


class _Expression:
    """Recorded arrays, and the parameters found in them."""

    def __init__(self, result: Any) -> None:
        self.result = result
        self.name = "program"
        self.nodes: dict[str, Node] = {}
        for node in below(_Outputs(result).nodes):
            found: Parameter = node.arg.function.parameter
            known = self.nodes.setdefault(found.name, node)
            if known.arg.function.parameter != found:
                other = known.arg.function.parameter
                text = f"parameter {found.name!r}: expected one of that name, got {other}, {found}"
                raise ValueError(message("freeze", text))
        self.parameters: dict[str, Parameter] = {
            name: node.arg.function.parameter for name, node in self.nodes.items()
        }

    def trace(self, _: Geometry) -> tuple[Any, list[Node]]:
        """The arrays, and the nodes of their parameters."""
        return self.result, list(self.nodes.values())

    def __reduce__(self) -> Any:
        text = "an expression cannot be pickled; freeze a function instead"
        raise UnsupportedError(message("freeze", text))


class _OutputSlot:
    """The position of an array in a result."""

    __slots__ = ("at",)

    def __init__(self, at: int) -> None:
        self.at = at


class _Outputs:
    """The arrays in a function's result, and how to make such a result of other arrays."""

    __slots__ = ("nodes", "places", "shape")

    def __init__(self, result: Any) -> None:
        self.nodes: list[Node] = []
        self.places: dict[int, _OutputSlot] = {}
        self.shape = self._emptied(result)

    def _emptied(self, item: Any) -> Any:
        """A result with slots instead of arrays; an array that occurs twice has one slot."""
        if type(item) in OURS:
            if id(item) not in self.places:
                self.places[id(item)] = _OutputSlot(len(self.nodes))
                self.nodes.append(node_of(item))
            return self.places[id(item)]
        return _mapped(item, self._emptied)

    def forget(self) -> None:
        """Keep only the structure of the result."""
        self.nodes, self.places = [], {}

    def like(self, nodes: Sequence[Node]) -> Any:
        """The result with arrays of these nodes in its slots."""
        arrays = [_array_of(node) for node in nodes]

        def filled(item: Any) -> Any:
            if type(item) is _OutputSlot:
                return arrays[item.at]
            return item.copy() if isinstance(item, np.ndarray) else _mapped(item, filled)

        return filled(self.shape)


def _mapped(item: Any, function: Callable[[Any], Any]) -> Any:
    """A container of the same kind with `function` applied to its items."""
    if isinstance(item, dict):
        return {key: function(each) for key, each in item.items()}
    if isinstance(item, (tuple, list)):
        made = [function(each) for each in item]
        return type(item)(*made) if hasattr(item, "_fields") else type(item)(made)
    return item


# ---------------------------------------------------------------------------------- templates


def _constants(roots: Sequence[Node]) -> list[Node]:
    """Recorded work below `roots` that needs no parameter: its values can be computed now.

    Views stay recorded, because an evaluated view would read memory that may change.
    """
    order = topological(roots)
    varying: set[int] = set()
    for node in order:
        if is_parameter(node) or any(id(source) in varying for source in node.src):
            varying.add(id(node))
    users = [node for node in order if id(node) in varying or node.op is ops.VIEW]
    read = [source for node in users for source in node.src] + list(roots)
    found = [node for node in read if id(node) not in varying and node.op not in _VIEW_OR_FULL]
    return [node for node in dict.fromkeys(found) if not _has_value(node)]


def _has_value(node: Node) -> bool:
    """Whether a node's value exists, in memory of the host or of a device."""
    return node.value is not None or node.resident is not None


def _fresh_roots(roots: Sequence[Node]) -> list[Node]:
    """The roots as nodes that each call computes again, each into its own memory."""
    found: list[Node] = []
    seen: set[int] = set()
    for node in roots:
        given = _has_value(node) or is_parameter(node) or node.op is ops.VIEW
        found.append(copy_of(node) if given or id(node) in seen else node)
        seen.add(id(node))
    return found


def _copied(roots: Sequence[Node], leaves: Mapping[str, Node]) -> list[Node]:
    """A copy of the pending graph below `roots`, with `leaves` for the parameters."""
    made: dict[int, Node] = {}
    for node in topological(roots):
        if is_parameter(node):
            made[id(node)] = leaves[node.arg.function.parameter.name]
        elif _has_value(node):
            made[id(node)] = node
        else:
            src = tuple([made[id(source)] for source in node.src])
            made[id(node)] = _renewed(node, src)
    return [made[id(root)] for root in roots]


def _renewed(node: Node, src: tuple[Node, ...]) -> Node:
    return Node(node.op, src, node.arg, node.shape, node.dtype, node.perm, node.location)


def _leaf(value: Any, perm: Perm) -> Node:
    """A leaf over memory that is never written to, since no update may reuse it."""
    node = Node(ops.LEAF, (), None, value.shape, CANONICAL[value.dtype], perm, None)
    node.value = value
    return node


class _Template:
    """One traced graph, with its plan and the positions of parameters and results.

    The template's references to the nodes protect captured memory from writes.
    """

    def __init__(self, parameters: Sequence[Parameter], result: Any, given: Sequence[Node]) -> None:
        self.outputs = _Outputs(result)
        evaluate.compute(_constants(self.outputs.nodes), decisions.FREEZE)
        leaves = {
            each.name: _leaf(meta_array(node.shape, node.dtype, node.perm), node.perm)
            for each, node in zip(parameters, given, strict=True)
        }
        self.roots = _copied(_fresh_roots(self.outputs.nodes), leaves)
        self.outputs.forget()
        self.recording = linearize(self.roots)
        place = {id(node): at for at, node in enumerate(self.recording.nodes)}
        self.places = [place.get(id(leaves[each.name]), -1) for each in parameters]
        self.ends = [place[id(root)] for root in self.roots]
        # for each node that a call copies, the indices of its sources; None for nodes that stay
        self.sources = [
            None if _has_value(node) else tuple([place[id(source)] for source in node.src])
            for node in self.recording.nodes
        ]
        self.planned: tuple[Any, ...] = ()
        self.plan: Plan | None = None
        with evaluate.held():
            self.current_plan()

    def current_plan(self) -> Plan:
        """The plan, made again if options or devices have changed since."""
        options = config.options
        present = (options.fusion, options.fusion_max_length, evaluate.epoch)
        if self.plan is None or self.planned != present:
            self.plan = evaluate.plan_for(self.recording)
            self.planned = present
        return self.plan

    def bound(self, leaves: Sequence[Node]) -> Recording:
        """The recording of one call, the same as `linearize` would make over these leaves."""
        nodes = list(self.recording.nodes)
        for at, node in zip(self.places, leaves, strict=True):
            if at >= 0:
                nodes[at] = node
        for at, sources in enumerate(self.sources):
            if sources is not None:
                nodes[at] = _renewed(nodes[at], tuple([nodes[source] for source in sources]))
        seen = self.recording
        return Recording(nodes, seen.key, seen.held, seen.edges, seen.sizes, seen.graph_cache)

    def run(self, leaves: Sequence[Node], warn: bool = True) -> Any:
        """The results for these leaves."""
        recording = self.bound(leaves)
        with evaluate.held():
            raised = evaluate.run_again(self.current_plan(), recording, decisions.FROZEN_CALL)
        if warn:
            for flags, operations in raised:
                warn_for(flags, operations, now=True)
        return self.outputs.like([recording.nodes[at] for at in self.ends])


# ----------------------------------------------------------------------------------- programs


_programs: Group[Program] = Group(
    "tools.freeze.templates",
    lambda each: len(each._templates),
    None,
    None,
    f"{TEMPLATE_LIMIT} for each program; they go with it",
)


class Program:
    """What `lazyfuse.freeze` makes. Call it with a binding for every parameter, by name.

    Any number of threads may call it. A call runs on the device in use at the time. Values that one
    call leaves on a device, the next call reads there.
    """

    def __init__(self, origin: _Function | _Expression) -> None:
        self._origin = origin
        self._templates: OrderedDict[Geometry, _Template] = OrderedDict()
        _programs.add(self)
        self._lock = threading.Lock()
        if not any(each.is_free for each in self.parameters.values()):
            shapes: Any = [each.shape for each in self.parameters.values()]
            self._template(tuple([(shape, None) for shape in shapes]))

    @property
    def name(self) -> str:
        """The function's name; "program" for an expression."""
        return self._origin.name

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """The parameters: dtype and shape by name."""
        return dict(self._origin.parameters)

    def __call__(self, /, **bindings: Any) -> Any:
        """Run the program, as calling the function with these arrays."""
        nodes = self._bound(bindings)
        return self._template(tuple([(node.shape, node.perm) for node in nodes])).run(nodes)

    def explain(self) -> Explanation:
        """As `lazyfuse.explain`, for a call with the newest combination of shapes."""
        # a copy: nodes with other references would count as results
        found = explain_nodes(_copied(self._last().roots, {}))
        others = decisions.EAGER, decisions.TOGETHER  # a program always runs its own plan
        return replace(found, rules=tuple(r for r in found.rules if r.decides not in others))

    def kernels(self) -> list[Kernel]:
        """The kernels of a call, for `lazyfuse.register_kernel`."""
        with evaluate.quiet:
            return [step.kernel for step in self._last().current_plan().kernels]

    def source(self, language: str = "numba") -> str:
        """The texts of the program's kernels in a language, joined."""
        return "\n\n".join(kernel.source(language) for kernel in self.explain().kernels)

    def warm_up(self, /, **bindings: Any) -> None:
        """Compile the programs that calls will need, by running this program without using results.

        Without bindings it runs on arrays of ones; free sizes are those of the last call.
        """
        if bindings or not self.parameters:
            nodes = self._bound(bindings)
        else:
            nodes = self._ones()
        template = self._template(tuple([(node.shape, node.perm) for node in nodes]))
        for _ in range(config.options.compile_after + 1):
            template.run(nodes, warn=False)
        devices.current().finish()

    def __repr__(self) -> str:
        named = ", ".join(f"{name}: {each}" for name, each in self.parameters.items())
        return f"<lazyfuse program {self.name}({named})>"

    def __reduce__(self) -> Any:
        return Program, (self._origin,)

    def _bound(self, bindings: Mapping[str, Any]) -> list[Node]:
        """An evaluated node for each parameter, in order."""
        expected = self._origin.parameters
        if bindings.keys() != expected.keys():
            check_names(self.name, expected, bindings)
        sizes = Sizes()
        c_order = isinstance(self._origin, _Expression)
        nodes = []
        for name, each in expected.items():
            nodes.append(_bound(self.name, each, bindings[name], sizes, c_order))
        pending = [node for node in nodes if not _has_value(node)]
        if pending:
            evaluate.compute(pending, decisions.BIND)
        return nodes

    def _template(self, geometry: Geometry) -> _Template:
        """The traced graph for these shapes and memory orders, traced now if they are new."""
        found = self._templates.get(geometry)
        if found is None:
            result, given = self._origin.trace(geometry)
            found = _Template(list(self._origin.parameters.values()), result, given)
            with self._lock:
                self._templates[geometry] = found
                if len(self._templates) > TEMPLATE_LIMIT:
                    self._templates.popitem(last=False)
        return found

    def _last(self) -> _Template:
        with self._lock:
            for geometry in reversed(self._templates):
                return self._templates[geometry]
        free = next(name for name, each in self.parameters.items() if each.is_free)
        text = f"sizes of {free!r} are not known yet; call the program or warm_up(...) first"
        raise ValueError(message(self.name, text))

    def _ones(self) -> list[Node]:
        self._last()
        geometry = next(reversed(self._templates))
        pairs = zip(self.parameters.values(), geometry, strict=True)
        layouts = [(meta_array(shape, each.dtype, perm), perm) for each, (shape, perm) in pairs]
        return [_leaf(np.ones_like(layout, order="K"), perm) for layout, perm in layouts]


def _bound(program: str, expected: Parameter, value: Any, sizes: Sizes, c_order: bool) -> Node:
    """The checked binding of one parameter, as a node that may still be pending."""
    if type(value) in OURS:
        storage = value._storage
        if materialise(value) is None and not (storage is not None and storage.shared()):
            return _bound_recorded(program, expected, value, sizes, c_order)
        value = gather(value)  # the host's memory, which no other code changes during the call
    array = expected.converted(program, value)
    expected.check_shape(program, array.shape, sizes)
    packed, perm = packed_order(array)
    if not packed or (c_order and perm is not None):
        array = array.copy(order="C" if c_order else "K")
        perm = packed_order(array)[1]
    return _leaf(array, perm)


def _bound_recorded(
    program: str, expected: Parameter, value: ndarray, sizes: Sizes, c_order: bool
) -> Node:
    node = node_of(value)
    expected.check_shape(program, node.shape, sizes)
    expected.check_dtype(program, node.dtype)
    if c_order and node.perm is not None:
        return _bound(program, expected, gather(value), sizes, c_order)
    if node.op is ops.VIEW:
        node = copy_of(node)
    return cast_node(node, CANONICAL[expected.dtype])
