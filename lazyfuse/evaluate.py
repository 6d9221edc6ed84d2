"""The one place where recorded work runs: sinks -> plan cache -> device.

Owns the plan cache and the choice between running a plan (execute.py) and one operation in NumPy.
Never imports the array type: it speaks of nodes and numpy arrays.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

from lazyfuse import config, floating, hardware, report
from lazyfuse.codegen import interpret
from lazyfuse.codegen.cluster import Limits
from lazyfuse.codegen.graph import Node, source_line, topological
from lazyfuse.codegen.linearize import Recording, linearize
from lazyfuse.codegen.plan import Plan, make_plan
from lazyfuse.codegen.shapes import size_of
from lazyfuse.devices.base import Device
from lazyfuse.errors import EvaluationError
from lazyfuse.execute import Run, explain_failure
from lazyfuse.flush import Pending

Array = np.ndarray[Any, np.dtype[Any]]

# Plans are a few kilobytes each; a program that has more structures than this is not looping.
PLAN_LIMIT = 1024

# So few operations, one of them with many elements but fewer than this, are over in NumPy before a
# plan would have been looked up.
DIRECT_NODES = 4
HEAVY_ELEMENTS = 2048
DIRECT_ELEMENTS = 1 << 18

# Held by whoever evaluates, and by whoever moves an array from one state to another.
lock = threading.RLock()
_plans: OrderedDict[Any, Plan] = OrderedDict()
counters = {"plan hits": 0, "plan misses": 0, "evaluations": 0}


def evaluate(nodes: Sequence[Node], reason: str) -> None:
    """Give every node a value (a numpy array). `reason` says which sink or rule asked."""
    pending = [node for node in nodes if node.value is None]
    if not pending:
        return
    with lock:
        pending = [node for node in pending if node.value is None]
        if pending:
            _evaluate(pending, reason)


# A child forked in the middle of an evaluation would wait for ever, on tables half changed.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
    )

_recorded = Pending(evaluate)
note_recorded = _recorded.note


def _evaluate(pending: list[Node], reason: str) -> None:
    device = hardware.current()
    if not device.traits.languages:
        op, where = pending[0].op.name, source_line(pending[0].where)
        what = f"evaluation is switched off (LAZYFUSE_DEVICE={device.traits.name}): {reason}"
        raise EvaluationError(what, op=op, file=where[0], line=where[1], function=where[2])
    counters["evaluations"] += 1
    few = _few(pending[0], device) if len(pending) == 1 else None
    if few is not None:
        _run_directly(few)
        return
    recording = linearize(pending)
    plan = plan_for(recording)
    run = Run(plan, recording, device)
    report.flushed(reason, plan, recording)
    try:
        run.execute()
    finally:
        _recorded.settle()
    for flags, operations in run.raised:
        floating.warn_for(flags, operations)


def _few(node: Node, device: Device) -> list[Node] | None:
    """The pending operations below a node, if NumPy should simply do them, one after the other.

    So it is where they are few and exact and only one of them has many elements: fusing would save
    nothing, and the bits are those of every tier.
    """
    if device.traits.kind != "cpu" or config.options.validate or not config.options.fusion:
        return None
    found = [node]
    heavy = 0
    for each in found:
        size = _elements(each)
        if size < 0 or size >= DIRECT_ELEMENTS:
            return None
        heavy += size >= HEAVY_ELEMENTS
        found += [source for source in each.src if source.value is None]
        if heavy > 1 or len(found) > DIRECT_NODES:
            return None
    return found if len(found) == 1 else topological(found[:1])


def _elements(node: Node) -> int:
    """Elements that an exact map or reduction reads; -1 for every other node."""
    op = node.op
    if op.kind == "map":
        return size_of(node.shape) if op.is_exact(node.arg.ins[0]) else -1
    if op.kind == "reduce":
        source = node.src[0]
        return size_of(source.shape) if op.is_exact(source.dtype) else -1
    return -1


def _run_directly(nodes: list[Node]) -> None:
    """A few operations, by NumPy."""
    raised: list[tuple[int, Node]] = []
    try:
        for node in nodes:
            if node.value is None:
                bits = _run_node(node)
                if bits:
                    raised.append((bits, node))
    finally:
        _recorded.settle()
    for bits, node in raised:
        floating.warn_for(bits, [(node.op, node)])


def _run_node(node: Node) -> int:
    values = [source.value for source in node.src if source.value is not None]
    perms = [source.perm for source in node.src]
    try:
        with floating.collecting() as flags:
            node.value = interpret.run_node(
                node.op, node.arg, node.shape, node.dtype, node.perm, values, perms
            )
    except Exception as error:
        explain_failure(error, [node])
        raise
    node.src = ()
    report.ran_single(node)
    return flags.bits


def plan_for(recording: Recording) -> Plan:
    """The plan of a recording, from the cache where its structure has been seen."""
    options = config.options
    key = (recording.key, options.fusion, options.fusion_max_length)
    plan = _plans.get(key)
    if plan is not None:
        counters["plan hits"] += 1
        return plan
    counters["plan misses"] += 1
    plan = make_plan(recording.graph(), Limits(options.fusion, options.fusion_max_length))
    plan.sizes = recording.sizes
    _plans[key] = plan
    if len(_plans) > PLAN_LIMIT:
        _plans.popitem(last=False)
    return plan


def plan_cache_info() -> dict[str, int]:
    """Entries, limit and counters of the plan cache."""
    return {"entries": len(_plans), "limit": PLAN_LIMIT, **counters}


def clear_plans() -> None:
    """Forget every plan."""
    with lock:
        _plans.clear()
