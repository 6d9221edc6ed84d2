/* What Python has bound: its functions, classes and tables by name, and slots of its classes. */

#include "base.h"

Bindings hooks = {.plain = 1};
NodeSlots in_node;
StorageSlots in_storage;
RootSlots in_root;
MemorySlots in_memory;
OptionSlots in_options;
LeafSlots in_leaf;
PoolSlots in_pool;
BlockSlots in_block;

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
