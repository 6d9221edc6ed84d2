/* The hooks: what C calls and reads of Python's. `bind` stores functions, classes and tables by
   name, and finds where the slots of classes lie, once for all files. */

#include "native.h"

#include <string.h>

Bindings hooks = {.plain = 1};
NodeSlots in_node;
StorageSlots in_storage;
RootSlots in_root;
MemorySlots in_memory;
OptionSlots in_options;

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
    SLOT(storage, in_storage, flat), SLOT(storage, in_storage, always_eager),
    SLOT(storage, in_storage, exports), SLOT(storage, in_storage, reals),
    SLOT(storage, in_storage, picks), SLOT(storage, in_storage, visits),
    SLOT(root, in_root, array), SLOT(root, in_root, own),
    SLOT(memory, in_memory, owned), SLOT(memory, in_memory, leaves),
    SLOT(options, in_options, eager_below), SLOT(options, in_options, device),
    SLOT(options, in_options, exported_at_once),
#undef SLOT
};

#define NAME(name, text) PyObject *name_##name;
NAMES(NAME)
#undef NAME

int names_ready(void)
{
#define NAME(name, text) (name_##name = PyUnicode_InternFromString(text)) != NULL &&
    return NAMES(NAME) 1 ? 0 : -1;
#undef NAME
}

Py_ssize_t eager_below(void)
{
    Py_ssize_t limit = PyLong_AsSsize_t(OPTION(eager_below));
    if (limit < 0) {
        PyErr_Clear();
        return PY_SSIZE_T_MAX;
    }
    return limit;
}

Py_ssize_t slot_offset(PyObject *type, const char *name)
{
    PyObject *found = PyObject_GetAttrString(type, name);
    Py_ssize_t offset = -1;
    if (found == NULL) {
        return -1;
    }
    if (Py_IS_TYPE(found, &PyMemberDescr_Type) &&
        ((PyMemberDescrObject *)found)->d_member->type == T_OBJECT_EX) {
        offset = ((PyMemberDescrObject *)found)->d_member->offset;
    }
    else {
        PyErr_Format(PyExc_TypeError, "%s: expected a slot", name);
    }
    Py_DECREF(found);
    return offset;
}

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

PyObject *hooks_bind(PyObject *Py_UNUSED(module), PyObject *args)
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
