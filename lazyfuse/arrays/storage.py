"""Memory identity: which node holds a block's present values, and which exports the block has.

Owns `Storage` (the only mutable thing besides arrays), `Block` and the registry of blocks from
which numpy arrays were made. Knows nodes and numpy arrays, not the array type.
"""

from __future__ import annotations

import itertools
import weakref
from typing import Any

import numpy as np

from lazyfuse import bootstrap
from lazyfuse.codegen.graph import references
from lazyfuse.codegen.graph.node import Memory, Node
from lazyfuse.codegen.graph.references import IN_SLOT, count
from lazyfuse.codegen.table import ops
from lazyfuse.runtime.events import decisions
from lazyfuse.runtime.events.decisions import Rule
from lazyfuse.runtime.execution import concurrency
from lazyfuse.runtime.layout.meta_arrays import (
    Array,
    DType,
    Holder,
    Perm,
    address,
    held,
    is_exported,
    terminal,
    window,
)
from lazyfuse.runtime.placement import devices, residency
from lazyfuse.runtime.scheduling import evaluate


class Block(Memory):
    """The memory of one leaf. Holds the leaf weakly: a cycle would keep big arrays alive."""

    __slots__ = ("leaf",)

    def __init__(self, leaf: Node) -> None:
        super().__init__(True)
        self.leaf = weakref.ref(leaf)

    def has_readers(self, edges: dict[int, int] | None = None) -> bool:
        """Whether anything beyond `edges` reads the leaf (see `Memory.has_readers`)."""
        if self.leaf() is None:
            return False
        holders = references.of(self.leaf())  # this holds it weakly
        return holders > (edges.get(id(self.leaf()), 0) if edges else 0)


# Native dtypes that can be recorded, each with the one spelling that nodes use (long for longlong).
CANONICAL: dict[DType, DType] = {
    np.dtype(char): np.dtype(np.dtype(char).str) for char in "?bBhHiIlLqQefdgFDG"
}


def leaf(value: Array, perm: Perm) -> Node:
    """A node for existing memory: `value` is packed in memory order `perm`."""
    node = Node(ops.LEAF, (), None, value.shape, CANONICAL[value.dtype], perm, None)
    node.arg = Block(node)
    node.value = value
    return node


def is_evaluated(node: Node) -> bool:
    """Whether a node's values exist, here or in the memory of a device."""
    return node.value is not None or node.resident is not None


def fresh_leaf(node: Node) -> Node:
    """A leaf instead of an evaluated node without other readers: updates may reuse its memory."""
    resident = node.resident
    if resident is None or node.value is not None:
        assert node.value is not None
        made = leaf(node.value, node.perm)
    else:
        made = Node(ops.LEAF, (), None, node.shape, node.dtype, node.perm, node.location)
        made.arg = Block(made)
    if resident is not None:
        residency.hand_over(node, made)
    return made


def own_value(node: Node) -> Array:
    """The value of an evaluated node that has one owner, in memory that no other node refers to."""
    shared = references.of(node.value) > 1  # 1: the node; more: two nodes have one array
    value = node.value
    assert value is not None
    if shared:
        value = node.value = devices.copied(value)
    return value


class Export:
    """A numpy array through which other code may read and write a block.

    `own` is how many references to it lazyfuse holds; -1 if references cannot be counted.
    """

    __slots__ = ("array", "own")

    def __init__(self, array: Array, own: int) -> None:
        self.array = array
        self.own = own

    def is_held(self) -> bool:
        """Whether other code still holds the array, or a view or buffer of it."""
        return self.own < 0 or references.of(self.array) > self.own


# The most numpy views of one block that are kept; a view is some 100 bytes.
REALS_LIMIT = 256

TICKETS = itertools.count()
"""The numbers under which storages keep numpy arrays over their memory."""


Reals: type[dict[int, Array]] = getattr(bootstrap.machine_code(), "Reals", dict)
"""A table of real views. In C (native/graph/real_views.c) it lists also those that arrays
hold themselves."""


class Storage:
    """One block of memory with its views. `node` has its present values, packed.

    `flat` is the block as a flat numpy array once the values exist (see `memory`), `origin` its
    address. `reals` are the numpy arrays of our arrays over it. They are dropped when the values
    are replaced, so that they neither keep old memory alive nor make it look shared. `picks` and
    `visits` count the elements and small parts that were read while the values were pending. An
    always-eager storage is never pending again: everything on it runs at once.
    """

    __slots__ = (
        "__weakref__",
        "always_eager",
        "exports",
        "flat",
        "node",
        "origin",
        "picks",
        "reals",
        "value",
        "visits",
    )

    def __init__(self, node: Node) -> None:
        self.node = node
        self.value: Array | None = None
        self.flat: Array | None = None
        self.origin = -1
        self.exports: list[Export] | None = None
        self.always_eager = False
        self.picks = 0
        self.visits = 0
        self.reals = Reals()

    def memory(self) -> Array | None:
        """The flat memory, if the host has the values."""
        node = self.node
        if node.value is None:
            return None
        if node.value is not self.value:  # no local name for it: own_value counts them
            with evaluate.quiet:
                if node.value is not self.value:
                    self.adopt_value(own_value(node))
        return self.flat

    def adopt_value(self, value: Array) -> Array:
        """Take the value of the present node as the memory, and return it flat."""
        perm = self.node.perm
        flat = value.reshape(-1) if perm is None else value.transpose(perm).reshape(-1)
        if not is_exported(flat):
            flat = held(flat, value)
        if self.reals:
            self.forget_reals()
        self.flat = flat
        self.origin = address(flat)
        self.picks = self.visits = 0
        self.value = value  # last: for other threads it means that all is set
        return flat

    def forget_reals(self) -> None:
        """Drop the numpy arrays over the memory; arrays with the old table find it empty."""
        reals = self.reals
        self.reals = Reals()
        reals.clear()

    @staticmethod
    def add_real(reals: dict[int, Array], view: Array) -> int:
        """Keep a numpy array in `reals`, the table of its memory, and return its number there.

        Until the values are replaced this is the storage's own table; it may be read only then.
        """
        if len(reals) >= REALS_LIMIT:  # a loop over parts that no longer exist
            dict.clear(reals)
        ticket = next(TICKETS)
        reals[ticket] = view
        return ticket

    def force(self, rule: Rule) -> Array:
        """The flat memory, evaluated if needed."""
        flat = self.memory()
        if flat is None:
            if concurrency.busy or concurrency.share or evaluate.chunked is not None:
                evaluate.ahead([self.node], rule)
            # without the lock another thread, or a signal handler, might record a write in between
            with evaluate.held():
                evaluate.evaluate([self.node], rule)
                flat = self.memory()
            assert flat is not None, "evaluation left a node without a value"
        return flat

    def has_readers(self) -> bool:
        """Whether recorded work, or a copy that was not made yet, reads the present values."""
        return count(self.node) > IN_SLOT

    def detach(self) -> None:
        """Give the readers of the old values a copy, before the block is written at once."""
        wanted = self.has_readers()
        seen = references.of(self.node.value) > 3  # the node, our slot, the holder
        node = self.node
        value = node.value
        assert value is not None
        if wanted and (self.exports is not None or not concurrency.under_way):
            self.node = leaf(value, node.perm)
            node.value = devices.copied(value)
        elif self.exports is None and (seen or wanted):
            # another thread's kernel may be reading the memory
            self.node = leaf(devices.copied(value), node.perm)

    def writable(self, rule: Rule) -> Array:
        """The flat memory for a write that happens at once (see `array.changing`)."""
        with evaluate.held():
            self.force(rule)
            self.detach()
            node = self.node
            if node.resident is not None:
                residency.forget(node)
            del node  # `memory` counts its references
            flat = self.memory()
        assert flat is not None
        return flat

    def shared(self) -> bool:
        """Whether other code may read the block, or write to it, at any time."""
        roots = self.exports
        if roots is None:
            return False
        roots[:] = [root for root in roots if root.is_held()]
        if not roots:
            self.exports = None
        return bool(roots)

    def lend(self) -> Array:
        """Export the flat memory as an array that other code may keep: from now on it is shared."""
        flat = self.writable(decisions.EXPORT)
        roots = self.exports
        if roots is not None and self.shared():
            for root in roots:
                if is_exported(root.array) and root.array.shape == flat.shape:
                    return root.array
        array = held(flat, flat)
        lent = Export(array, 1)  # 1: the slot of the export
        self.exports = [lent] if self.exports is None else [*self.exports, lent]
        base: Any = array.base
        base.owner = weakref.ref(self)
        return array

    def read(self) -> Node:
        """The present node; a leaf, whose memory updates may reuse, if it has no readers."""
        if self.node.op is not ops.LEAF and is_evaluated(self.node) and not self.has_readers():
            with evaluate.quiet:
                if (
                    is_evaluated(self.node) and not self.has_readers()
                ):  # no other thread has done it
                    self.node = fresh_leaf(self.node)
        return self.node

    def replace(self, old: Node, node: Node) -> bool:
        """Make `node` the present node instead of `old`, with the same shape, dtype and order;
        False, and nothing is done, if `old` is not the present node any more.

        The caller holds the lock since it read `old`: else another thread's write would be lost. A
        write of a signal handler or finaliser is seen: none runs between the check and the change.
        """
        if self.node is not old:
            return False
        self.node = node
        self.value = self.flat = None
        self.forget_reals()
        evaluate.note_recorded(node)
        return True


class Records:
    """The memory of a structured array whose fields are recorded (index_keys.py)."""

    __slots__ = ("meta", "storage")

    def __init__(self, storage: Storage, meta: Array) -> None:
        self.storage = storage
        self.meta = meta

    @property
    def dtype(self) -> DType:
        return self.meta.dtype


EXPORTED: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""id of the numpy array at the end of a chain of bases -> the storage (or array) that owns it."""
_owners: dict[int, weakref.ref[Any]] = EXPORTED.data  # type: ignore[attr-defined]


def note_owner(array: Array, owner: Any) -> None:
    """Note which storage or array owns the memory that NumPy is about to get."""
    key = id(terminal(array))
    known = _owners.get(key)
    if known is None or known() is not owner:  # a new entry costs several times a look
        EXPORTED[key] = owner


def lender(last: Array) -> Any:
    """The storage or array of ours that owns `last` (see `meta_arrays.terminal`), or None."""
    base: Any = last.base
    owner = base.owner if isinstance(base, Holder) else None
    return EXPORTED.get(id(last)) if owner is None else owner()


def foreign(array: Array) -> Storage | None:
    """A storage over the memory of other code's array; None if it must not be recorded."""
    found = window(array)
    return None if found is None else foreign_over(array, found)


def foreign_over(array: Array, found: tuple[Array, int]) -> Storage | None:
    """The same, for an array whose `window` was found already."""
    if not array.flags.aligned:
        return None
    owner = terminal(array)
    flat = held(found[0], owner)
    storage = Storage(leaf(flat, None))
    storage.adopt_value(flat)
    # the export's slot and the holder's
    storage.exports = [Export(owner, 2 if is_countable(owner) else -1)]
    return storage


def is_countable(owner: Array) -> bool:
    """Whether every way to the memory of `owner` leads through a reference to it."""
    if owner.base is None:
        return bool(owner.flags.owndata)
    # our own: what an export left behind, and the leases of the buffer pool
    return type(owner.base).__module__.partition(".")[0] == "lazyfuse"
