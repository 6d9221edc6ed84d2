/* The module lazyfuse._native: what it offers, and its hooks, which are what C calls and reads of
   Python's. `bind` stores functions, classes and tables by name, and finds where the slots of
   classes lie, once for all files. See base/base.h. */

#define LAZYFUSE_MODULE
#include "entering/entering.h"

#include <string.h>

static const struct {
    const char *name;
    PyObject **place;
} PLACES[] = {
#define HOOK(name) {#name, &hooks.name},
    HOOKS(HOOK)
#undef HOOK
};

static const struct {
    PyObject **hook;
    const char *name;
    Py_ssize_t *offset;
} SLOTS[] = {
#define SLOT(hook, slots, name) {&hooks.hook, #name, &slots.name}
    SLOT(node, in_node, op), SLOT(node, in_node, src), SLOT(node, in_node, arg),
    SLOT(node, in_node, shape), SLOT(node, in_node, dtype), SLOT(node, in_node, perm),
    SLOT(node, in_node, location), SLOT(node, in_node, value), SLOT(node, in_node, resident),
    SLOT(storage, in_storage, node), SLOT(storage, in_storage, value),
    SLOT(storage, in_storage, flat), SLOT(storage, in_storage, origin),
    SLOT(storage, in_storage, always_eager),
    SLOT(storage, in_storage, exports), SLOT(storage, in_storage, reals),
    SLOT(storage, in_storage, picks), SLOT(storage, in_storage, visits),
    SLOT(root, in_root, array), SLOT(root, in_root, own),
    SLOT(memory, in_memory, owned), SLOT(memory, in_memory, leaves),
    SLOT(options, in_options, eager_below), SLOT(options, in_options, device),
    SLOT(options, in_options, exported_at_once), SLOT(options, in_options, plan_after),
    SLOT(options, in_options, lazy_numbers), SLOT(options, in_options, flush_nodes),
    SLOT(options, in_options, flush_bytes),
    SLOT(leaf_memory, in_leaf, leaf),
    SLOT(pool, in_pool, _free), SLOT(pool, in_pool, _free_bytes), SLOT(pool, in_pool, _look),
    SLOT(pool, in_pool, limit), SLOT(pool, in_pool, reused),
    SLOT(block, in_block, address), SLOT(block, in_block, size), SLOT(block, in_block, since),
#undef SLOT
};

/* The slots of a class, or of an object's class, that is bound to a hook. -1 with an exception
   where one is missing. */
static int find_slots(PyObject **hook, PyObject *value)
{
    PyObject *type = PyType_Check(value) ? value : (PyObject *)Py_TYPE(value);
    for (size_t at = 0; at < sizeof(SLOTS) / sizeof(*SLOTS); at++) {
        if (SLOTS[at].hook == hook &&
            (*SLOTS[at].offset = slot_offset(type, SLOTS[at].name)) < 0) {
            return -1;
        }
    }
    return 0;
}

static PyObject *hooks_bind(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *name;
    PyObject *value;
    if (!PyArg_ParseTuple(args, "sO", &name, &value)) {
        return NULL;
    }
    if (strcmp(name, "plain") == 0) {
        hooks.plain = PyObject_IsTrue(value);
        Py_RETURN_NONE;
    }
    if (strcmp(name, "origin") == 0) {
        hooks.origin = PyLong_AsVoidPtr(value);
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    for (size_t at = 0; at < sizeof(PLACES) / sizeof(*PLACES); at++) {
        PyObject **place = PLACES[at].place;
        if (strcmp(PLACES[at].name, name) == 0) {
            Py_CLEAR(*place); /* no object is of a class whose slots lie elsewhere */
            if (find_slots(place, value) < 0) {
                return NULL;
            }
            *place = Py_NewRef(value);
            if (place == &hooks.loop_types && operators_find_loops() < 0) {
                return NULL;
            }
            if (place == &hooks.node) {
                look_for_other_slots();
            }
            Py_RETURN_NONE;
        }
    }
    PyErr_Format(PyExc_KeyError, "bind: %s", name);
    return NULL;
}

#define VARARGS(function) function, METH_VARARGS
#define ONE(function) function, METH_O
#define NONE(function) function, METH_NOARGS
#define FAST(function) (PyCFunction)(void (*)(void))function, METH_FASTCALL

static PyMethodDef functions[] = {
    {"bind", VARARGS(hooks_bind), "Put a function, class or table of Python's in, by name."},
    /* arrays */
    {"adopt", ONE(array_adopt), "Let a class on Core be the array type."},
    {"alone", ONE(array_alone), "An array whose values are those of a node."},
    {"buffer", ONE(array_buffer), "Let arrays export the buffer that a function gives for them."},
    {"direct", FAST(array_direct),
     "An array that runs everything at once on a numpy array, and perhaps its base."},
    {"get_dtype", ONE(geometry_dtype), "The dtype of an array."},
    {"get_imag", ONE(geometry_imag), "The imaginary parts of an array."},
    {"get_ndim", ONE(geometry_ndim), "How many axes an array has."},
    {"get_real", ONE(geometry_real), "The real parts of an array."},
    {"get_shape", ONE(geometry_shape), "The shape of an array."},
    {"get_size", ONE(geometry_size), "How many elements an array has."},
    {"get_transposed", ONE(geometry_transposed), "The transpose of an array."},
    {"items", ONE(array_items), "An iterator over the items of an array, by index."},
    {"kept_real", FAST(kept_real), "The real view of an array that a table keeps, or None."},
    {"may_grow", ONE(array_may_grow), "Whether an operation on a numpy array may give much."},
    {"new", ONE(array_new), "An array without slots set."},
    {"override", ONE(array_override), "The method by which NumPy's ufuncs call arrays of a class."},
    {"serve", VARARGS(array_serve), "Ask a function for these attributes of the array type."},
    {"operator", VARARGS(array_operator), "Complete the operator of that name."},
    /* functions and ufuncs */
    {"adopt_ufunc", ONE(ufunc_adopt), "Let objects of a class on UfuncCore be called directly."},
    {"any_arrays", VARARGS(quick_any_arrays), "A function of arrays, and of lists of them."},
    {"call_plainly", FAST(call_plainly), "NumPy's function on plain values, wrapped."},
    {"created", VARARGS(quick_created), "A function that makes an array of a shape."},
    {"first_array", VARARGS(quick_first_array), "A function of one array and plain values."},
    {"followed", VARARGS(quick_followed), "A function whose calls are followed."},
    {"listed", VARARGS(quick_listed), "`array`, of a short list or an eager array."},
    {"method", VARARGS(quick_method), "A method: NumPy's on eager arrays, ours on the others."},
    /* the graph, launches, replays */
    {"number", ONE(number_value), "NumPy's number of a lazy one."},
    {"deliver", ONE(deliver), "What the user gets for a recorded number."},
    {"evaluate", FAST(evaluate_nodes), "Give every node a value, by a rule."},
    {"frontier", VARARGS(walk_frontier), "Pending nodes that no other pending node reads."},
    {"clock", NONE(clock_seconds), "Seconds since some moment."},
    {"pool_empty", FAST(pool_empty), "`BufferPool.empty`: a pool, a shape, a dtype."},
    {"notes", VARARGS(notes_new), "Writes nodes down as `Pending.note` does."},
    {"mask_take", FAST(masks_take), "Whether `out[:] = values[mask]` was done, of plain arrays."},
    {"mask_put", FAST(masks_put), "Whether `values[mask] = value` was done, of plain arrays."},
    {"replay_begin", FAST(replay_begin), "The blocks of a replay, and their addresses."},
    {"replay_bind", FAST(replay_bind),
     "What a run begins with, and the key under which replays are kept."},
    {"replay_again", FAST(replay_again), "An evaluation that was done before, again."},
    {"replay_commit", FAST(replay_commit), "Give the nodes their values."},
    {"replay_play", FAST(replay_play), "Go through the events of a replay."},
    {"replay_setup", ONE(replay_setup), "What `replay_again` asks Python for."},
    {"replay_run", FAST(replay_run), "All of a replay: its events, and the values of the nodes."},
    {"replay_program", VARARGS(replay_program), "A replay as numbers."},
    {"replay_uncounted", NONE(replay_uncounted), "What C has done since this was called last."},
    {"rows", VARARGS(rows_new), "A launch with only addresses and scalars to fill in."},
    {"walk", ONE(walk_roots), "Nodes, key, held, edges and sizes, as `linearize` finds them."},
    {"stretch_begin", NONE(stretch_begin), "Whether this thread's expression is open now."},
    {"frame_local", VARARGS(frame_local), "A local name of a frame: its place, the name."},
    {"steps_after", ONE(steps_after), "Set the visit at which a call is traced; 0: never."},
    {"steps_count", NONE(steps_count), "How many calls are known, and how many were followed."},
    {"steps_forget", NONE(steps_forget), "Forget all calls that were met before."},
    {"expressions_ran", NONE(expressions_ran), "How many expressions of small arrays ran as one."},
    {"numbers_count", NONE(numbers_count), "How many places that give numbers are known."},
    {"numbers_forget", NONE(numbers_forget), "Forget what is known of them."},
    {"loop_call", FAST(loop_call), "Run a compiled loop, and read what it has assigned."},
    {"loop_fill", FAST(loop_fill), "Write what a compiled loop begins with."},
    /* spans */
    {"span_begin", NONE(span_begin), "A span begins."},
    {"span_end", ONE(span_end), "The seconds of a span without those of the spans in it."},
    {"span_skip", ONE(span_skip), "Take seconds out of the spans that are open."},
    {"spans_switch", ONE(spans_switch), "Take the time of operations from now on, or no longer."},
    {"spans_take", NONE(spans_take), "What operations took, by instruction, which is forgotten."},
    /* sections */
    {"bring_back", NONE(section_bring_back),
     "Bring handlers back, after so many calls as of put_off."},
    {"new_main", ONE(section_new_main), "The thread that runs handlers from now on."},
    {"enter", NONE(section_enter), "Begin a section of this thread: its collections wait."},
    {"leave", NONE(section_leave), "End a section of this thread."},
    {"collect_late", NONE(section_collect_late), "Do the collection that has waited."},
    {"put_off", NONE(section_put_off), "Let handlers of signals wait."},
    {"section_setup", VARARGS(section_setup), "What sections call: critical.use."},
    {"vector_features", NONE(vector_features), "What the processor has for SIMD functions."},
    {"vector_run", VARARGS(vector_run), "A loop that calls a SIMD function."},
    {"collector_setup", VARARGS(collector_setup), "How the collector waits."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject *const types[] = {
    &CoreType, &ExportType, &UfuncCoreType, &QuickType, &NoteType, &SectionType, &NotesType, &RowsType,
    &ReplayProgramType, &RealsType, &HolderType, &LeaseType, &LoopEntranceType, &LoopEntryType,
};

/* Fill the module. What this file and the others keep is the process's: it serves one interpreter,
   and one import there. Others of lazyfuse are Python's. */
static int fill(PyObject *module)
{
    static int taken;
    if (taken || PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetString(PyExc_ImportError,
                        "it serves one import of lazyfuse, in the main interpreter");
        return -1;
    }
    import_array1(-1);
    import_umath1(-1);
    function_type = &QuickType;
    ufunc_type = &UfuncCoreType;
    int failed = names_ready() < 0 || loops_ready() < 0 || operators_ready() < 0 ||
                 walk_ready() < 0 || reals_ready() < 0 || expressions_ready() < 0;
    for (size_t at = 0; !failed && at < sizeof(types) / sizeof(*types); at++) {
        failed = PyModule_AddType(module, types[at]) < 0;
    }
    PyObject *empty = failed ? NULL : PyObject_GetAttrString(module, "pool_empty");
    PyObject *method = empty == NULL ? NULL : PyInstanceMethod_New(empty); /* binds to a pool */
    failed = method == NULL || PyObject_SetAttrString(module, "pool_empty", method) < 0;
    Py_XDECREF(empty);
    Py_XDECREF(method);
    taken = !failed;
    return failed ? -1 : 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, fill}, {0, NULL}};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_native",
    .m_doc = "The record path in C: arrays, ufuncs and functions, the walk, launches, replays.",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&definition); }
