/* What every file of lazyfuse._native has: arrays and how they are made, NumPy's inner loops,
   geometry, blocks, hooks and slots, sections.

   The module repeats in C what lazyfuse's Python modules do; comments name them. The behaviour is
   the same, and the suite runs on both. Where C does not know an operand's kind, NumPy or a Python
   function (a hook) does the work; C never decides what an operation means. */

#ifndef LAZYFUSE_BASE_H
#define LAZYFUSE_BASE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <fenv.h>
#include <stddef.h>
#include <stdint.h>
#include <structmember.h>

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL lazyfuse_native_array
#define PY_UFUNC_UNIQUE_SYMBOL lazyfuse_native_ufunc
#ifndef LAZYFUSE_MODULE
#define NO_IMPORT_ARRAY
#define NO_IMPORT_UFUNC
#endif
#include <numpy/arrayobject.h>
#include <numpy/arrayscalars.h>
#include <numpy/ufuncobject.h>

/* Whether an object has more references than so many of ours, all that the caller knows of: the
   program holds it, or looks as if it did. C asks for counts here alone, and Python in its module
   of references. */
static inline int is_held_beyond(PyObject *object, Py_ssize_t ours)
{
    return Py_REFCNT(object) > ours;
}

#if PY_VERSION_HEX < 0x030D0000
#define Py_IsFinalizing _Py_IsFinalizing
#endif

/* ---------------------------------------------------------------------------------------- array */

/* What module.c offers Python: functions of one argument, of none, or of a tuple of them; and of an
   array of arguments. */
typedef PyObject *Offered(PyObject *module, PyObject *given);
typedef PyObject *OfferedFast(PyObject *module, PyObject *const *args, Py_ssize_t count);

/* The slots of an array; ndarray.py says what they hold. NULL: not set. */
typedef struct Core {
    PyObject_HEAD
    PyObject *eager, *node, *storage, *base, *may_grow, *view, *layout, *reals, *ticket, *picks;
    PyObject *deferred, *weak;
    /* of an aliased array: NumPy's array over its part of the memory, while `reals` lists it
       (real_views.c); its neighbours in the list; where a part begins in its block, without a
       `view` */
    PyObject *real;
    struct Core *before, *after;
    npy_intp offset;
} Core;

extern PyTypeObject *array_type; /* `ndarray`, once it exists */

#define IS_ARRAY(x) (Py_TYPE(x) == array_type)
#define IS_REAL(x) (Py_TYPE(x) == &PyArray_Type)
/* Whether an array is eager: its values are a numpy array, on which operations run at once. */
#define EAGER(x) (((Core *)(x))->eager)
#define IS_DIRECT(x) (EAGER(x) != NULL && IS_REAL(EAGER(x)))

/* Whether the type of `x` is in a set of types. A type that cannot be hashed is in none. */
static inline int is_of(PyObject *types, PyObject *x)
{
    int found = PySet_Contains(types, (PyObject *)Py_TYPE(x));
    if (found < 0) {
        PyErr_Clear();
    }
    return found > 0;
}

/* NumPy's whole numbers, as keys. Not those of Python's or the user's classes on them. */
static inline int is_numpy_integer(PyObject *x)
{
    PyTypeObject *type = Py_TYPE(x);
    return type == &PyLongArrType_Type || type == &PyIntArrType_Type ||
           type == &PyLongLongArrType_Type || type == &PyULongArrType_Type ||
           type == &PyUIntArrType_Type || type == &PyShortArrType_Type ||
           type == &PyUShortArrType_Type || type == &PyByteArrType_Type ||
           type == &PyUByteArrType_Type || type == &PyULongLongArrType_Type;
}

static inline int is_index(PyObject *x)
{
    return PyLong_CheckExact(x) || is_numpy_integer(x);
}

/* A slice whose bounds are whole numbers or None. Reading other bounds runs Python code, which
   may raise, evaluate, let other threads run or change the array: C leaves those to
   Python. */
static inline int is_plain_bound(PyObject *x)
{
    return x == Py_None || is_index(x);
}

static inline int is_plain_slice(PyObject *x)
{
    if (!PySlice_Check(x)) {
        return 0;
    }
    PySliceObject *slice = (PySliceObject *)x;
    return is_plain_bound(slice->start) && is_plain_bound(slice->stop) &&
           is_plain_bound(slice->step);
}

/* The array that a view of `self` has as its base (borrowed). */
static inline PyObject *base_of(Core *self)
{
    return self->base == NULL || self->base == Py_None ? (PyObject *)self : self->base;
}

/* A lazyfuse array around a new result: a NumPy array below the eager threshold that may not
   grow; other objects stay as they are. Steals `value`; NULL stays NULL. */
PyObject *placed(PyObject *value);
/* The same, after a check whether it may grow. */
PyObject *placed_as_is(PyObject *value);
/* A new array over `value` (stolen) whose base is `base` (or None). */
PyObject *direct_over(PyObject *value, PyObject *base, int thin);
int may_grow(PyArrayObject *value);
Py_ssize_t eager_below(void);
/* As eager_rules.small_array. */
int is_small_array(PyArrayObject *value);
/* Operands that NumPy works on at once, arrays or numbers, one of which may grow: how many elements
   a result has to stay below, the largest number where it cannot grow; 0: Python decides. As
   eager_policy.operation_on_values. */
Py_ssize_t limit_of(PyObject *left, PyObject *right);
/* Whether a NumPy array may broadcast to a large result. */
#define MAY_GROW(x) (((Core *)(x))->may_grow != Py_False)
#define WARN_ON_WRITE (1u << 31) /* set by `diagonal` and others: NumPy warns of writes */

/* Whether an array may be written to without a word. */
static inline int is_writeable(PyArrayObject *a)
{
    return PyArray_ISWRITEABLE(a) && !((unsigned)PyArray_FLAGS(a) & WARN_ON_WRITE);
}

/* A tuple of numbers (new). */
PyObject *shape_tuple(int nd, const npy_intp *dims);
/* A numpy array over a part of the memory of another one. */
PyObject *make_view(PyArrayObject *a, int nd, const npy_intp *dims, const npy_intp *strides,
                    char *data);
/* The same, with the dtype and flags of `a`, over memory that `base` keeps alive. */
PyObject *make_view_on(PyObject *base, PyArrayObject *a, int nd, const npy_intp *dims,
                       const npy_intp *strides, char *data);
Offered array_alone;
/* An array without slots set, which the collector does not know yet (new). */
Core *array_made(void);
/* Keeps the memory of one that was freed for the next; 0: enough is kept. */
int array_kept(Core *x);

/* ------------------------------------------------------------------------------------- geometry */

enum { RANK = 8 }; /* most axes of arrays that C records */
enum { MIDDLING = 8 }; /* eager_rules.MIDDLING */

/* Where the elements of an array lie in its block. */
typedef struct {
    int nd;
    npy_intp dims[RANK], strides[RANK], offset; /* of both in bytes */
} Geometry;

static inline npy_intp size_of(const Geometry *g)
{
    npy_intp size = 1;
    for (int axis = 0; axis < g->nd; axis++) {
        size *= g->dims[axis];
    }
    return size;
}

/* What a basic key leaves of an array, and where it lies: some elements, one element (not as an
   array without axes), or neither: nothing, or the key is wrong or no basic one. */
enum { NO_PART, SOME, ELEMENT };
int select_part(int nd, const npy_intp *dims, const npy_intp *strides, PyObject *key, Geometry *g);
/* Whether it leaves some elements. */
int narrow(int nd, const npy_intp *dims, const npy_intp *strides, PyObject *key, Geometry *g);
/* As meta_arrays.falls: C order, whatever the gaps. `long_ones`: for axes that have a say. */
int falls(int nd, const npy_intp *dims, const npy_intp *strides, int long_ones);
/* Folds the lengths of one more operand into the shape of a result that has room for `most`
   axes; 0: they do not fit. */
int broadcast(int *nd, npy_intp *dims, int most, int other_nd, const npy_intp *other);
/* Whether no byte lies in the memory of both, whose elements have one size: by their extents. */
int are_apart(const char *first, int nd, const npy_intp *dims, const npy_intp *strides,
              PyArrayObject *other);
/* The first byte of elements that lie so, and the first one behind them. */
void reach(const char *first, int nd, const npy_intp *dims, const npy_intp *strides, npy_intp size,
           const char **low, const char **high);
/* Copies elements of `size` bytes along all axes; strides of 0 repeat what is read. */
void copy_along(char *to, const npy_intp *to_strides, const char *from,
                const npy_intp *from_strides, const npy_intp *dims, int nd, npy_intp size);

/* Copies elements of so many bytes along one axis. */
void copy_row(npy_intp item, const char *from, npy_intp from_step, char *to, npy_intp to_step,
              npy_intp count);
/* A copy of an array in C order, not of a subclass. */
PyObject *copy_of(PyArrayObject *a);
/* Of a condition and two values the value that it selects, to a fourth row, which may be one of the
   values. */
void select_row(npy_intp item, char **data, const npy_intp *steps, npy_intp count);

/* ---------------------------------------------------------------------------------------- loops */

#define TYPES (NPY_CDOUBLE + 1)

/* NumPy's inner loops of a ufunc whose operands have the same type, by that type. */
typedef struct {
    PyUFuncObject *ufunc;
    char exact[TYPES]; /* the value of an element depends only on its operands */
    short index[TYPES]; /* into `functions`, -1: none that is taken */
    unsigned char out[TYPES];
    int reduces;      /* base.loop_types says how */
    int raised;       /* the flags that NumPy's loops of floats raise */
    char library[12]; /* the function of the C library that computes it; "": none */
    void *simd[2];    /* its SIMD versions for doubles and floats, once asked for */
    char asked[2];
} Loops;

enum { NO_REDUCTION, SUMS, JOINS }; /* how a loop reduces */

int loops_ready(void);
void casts_ready(void);
int reductions_ready(void);
extern PyArray_Descr *descriptors[TYPES]; /* of the plain dtypes */
/* The bytes of an element of a plain dtype. */
npy_intp size_of_type(int type);
Loops *loops_new(PyObject *ufunc);
void loops_free(Loops *loops);
/* The operation in NumPy's own inner loop; NULL without an exception: Python does it. `limit`:
   the result's elements must be fewer, if operands are broadcast. */
PyObject *loops_binary(Loops *loops, PyObject *left, PyObject *right, Py_ssize_t limit);
PyObject *loops_unary(Loops *loops, PyObject *operand);
/* Casts elements as NumPy does; 0: no such cast is known here. */
int loops_cast(int from, int to, const void *values, void *room, npy_intp count);
/* The operation written to `out`: 1, 0 where Python does it, -1 with an exception. */
int loops_into(Loops *loops, PyObject *left, PyObject *right, PyArrayObject *out);
/* Calls the loop at that index. */
static inline void loop_run(const Loops *loops, int at, char **args, npy_intp count,
                            npy_intp *steps)
{
    PyUFuncObject *u = loops->ufunc;
    u->functions[at](args, &count, steps, u->data == NULL ? NULL : u->data[at]);
}

/* Python's and NumPy's plain numbers. */
int is_number(PyObject *x);
/* A number as an element of `type`, if NumPy takes it so with such an array: 1, else 0. */
int put_any_number(void *to, PyObject *x, int type);

static inline int put_number(void *to, PyObject *x, int type)
{
    if (type == NPY_DOUBLE && PyFloat_CheckExact(x)) { /* the commonest case */
        *(double *)to = PyFloat_AS_DOUBLE(x);
        return 1;
    }
    return put_any_number(to, x, type);
}

/* The code of a method that reduces, -1: none that is known here. */
int loops_reduction(const char *method);
/* The reduction along an axis (-1: along all); NULL without an exception: Python does it. */
PyObject *loops_reduce(int which, PyArrayObject *a, int along, int keepdims);
/* The same by a ufunc, always as an array. */
PyArrayObject *loops_reduced(const Loops *loops, PyArrayObject *a, int along, int keepdims);
/* One element of each operand to one of the result: 1, 0 where a floating-point exception arose.
   The loop must be known. */
int loops_element(Loops *loops, int type, char **args);
/* The dtype's number of an array that loops may read as it lies; -1 for all else. */
int plain_type(PyArrayObject *array);

/* Whether two arrays have one shape. */
static inline int same_shape(PyArrayObject *a, PyArrayObject *b)
{
    int nd = PyArray_NDIM(a);
    if (nd != PyArray_NDIM(b)) {
        return 0;
    }
    npy_intp *first = PyArray_DIMS(a), *second = PyArray_DIMS(b);
    for (int axis = 0; axis < nd; axis++) {
        if (first[axis] != second[axis]) {
            return 0;
        }
    }
    return 1;
}

#define MOST_AXES 8 /* of a walk */
#define CONDITIONS (FE_DIVBYZERO | FE_OVERFLOW | FE_UNDERFLOW | FE_INVALID)
#define FLAGS_FIRST 64 /* elements that go first: what all raise a flag is not computed twice */
#define UNLOCKED 1000  /* elements from which the loop runs without the GIL; NumPy: 500 */

/* The elements of several operands, axis by axis; the last operand is the result. */
typedef struct {
    int nd;
    npy_intp dims[MOST_AXES];
    npy_intp (*steps)[MOST_AXES]; /* of each operand, in bytes */
} Walk;

/* Moves the places of all operands to the next row along the last axis; 0 behind the last one.
   `place`: where the row lies, zeros at first. */
static inline int next_row(int nd, const npy_intp *dims, npy_intp (*steps)[MOST_AXES],
                           int operands, npy_intp *place, char **data)
{
    for (int axis = nd - 2; axis >= 0; axis--) {
        int is_within = ++place[axis] < dims[axis];
        for (int k = 0; k < operands; k++) {
            data[k] += (is_within ? 1 : 1 - dims[axis]) * steps[k][axis];
        }
        if (is_within) {
            return 1;
        }
        place[axis] = 0;
    }
    return 0;
}

/* Finds the strides of an operand along the axes of the result; 0 if its shape does not fit. */
int walk_steps(PyArrayObject *a, Walk *walk, int k);
/* Joins axes that are contiguous with each other in all operands. */
void walk_simplify(Walk *walk, int operands);
/* Whether strides fall from axis to axis, which decides the memory order of results: 1 if they do
   and no axis is broadcast, 0 if they do, -1 if not. */
int walk_falls(PyArrayObject *a, int nd, const npy_intp *dims);
/* A new array of a plain dtype, not initialised. */
PyArrayObject *new_array(int type, int nd, npy_intp *dims, int fortran);

/* The floating-point flags of this thread, and the same forgotten. */
#if defined(__x86_64__) && defined(__GNUC__)
/* those of SSE, which is all that loops use: FE_ names their bits in its register, and the functions
   of fenv.h read another one besides */
static inline int flags_of(int wanted)
{
    return (int)__builtin_ia32_stmxcsr() & wanted;
}

static inline void forget_flags(int flags)
{
    if (flags_of(flags)) {
        __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() & ~(unsigned)flags);
    }
}
#else
static inline int flags_of(int wanted)
{
    return fetestexcept(wanted);
}

static inline void forget_flags(int flags)
{
    if (fetestexcept(flags)) {
        feclearexcept(flags);
    }
}
#endif

/* `loops_begin` before a loop and `loops_raised` after it: the flags that it raised. */
static inline void loops_begin(void)
{
    forget_flags(CONDITIONS);
}

static inline int loops_raised(void)
{
    return flags_of(CONDITIONS);
}

static inline int from_numpys(int flags)
{
    return (flags & NPY_FPE_DIVIDEBYZERO ? FE_DIVBYZERO : 0) |
           (flags & NPY_FPE_OVERFLOW ? FE_OVERFLOW : 0) |
           (flags & NPY_FPE_UNDERFLOW ? FE_UNDERFLOW : 0) |
           (flags & NPY_FPE_INVALID ? FE_INVALID : 0);
}

/* Such flags as NumPy numbers them. */
static inline int as_numpys(int flags)
{
    return (flags & FE_DIVBYZERO ? NPY_FPE_DIVIDEBYZERO : 0) |
           (flags & FE_OVERFLOW ? NPY_FPE_OVERFLOW : 0) |
           (flags & FE_UNDERFLOW ? NPY_FPE_UNDERFLOW : 0) |
           (flags & FE_INVALID ? NPY_FPE_INVALID : 0);
}

/* --------------------------------------------------------------------------------------- blocks */

extern PyTypeObject LeaseType;
/* `BufferPool.empty`: an array of a pool (new), not initialised. */
PyObject *pool_array(PyObject *pool, int nd, npy_intp *dims, PyArray_Descr *descr);
PyObject *array_from(PyObject *pool, PyObject *shape, PyObject *dtype);
OfferedFast pool_empty;
/* Seconds since the first call: a number that is small enough for nanoseconds. */
double seconds_now(void);
/* The least time of late: what was before grows a little, as a busy machine is not for ever. 0: none
   was known. */
double least_of_late(double before, double now);
Offered clock_seconds;

/* ---------------------------------------------------------------------------------------- hooks */

/* What C calls and reads of Python's: functions, classes, op definitions, tables. `bind` stores
   them by name; NULL: not yet. */
#define HOOKS(_)                                                                                   \
    /* functions that C calls where it has no path */                                              \
    _(get_item) _(set_item) _(del_item) _(iterate) _(length) _(matmul) _(power) _(dtype)           \
    _(geometry) _(shape) _(transposed) _(real) _(imag) _(wrap) _(export) _(adopted) _(note)        \
    _(caller) _(constant) _(arrangement) _(quiet) _(leaf) _(room) _(exact_types)                   \
    _(array_ufunc) _(error_bits) _(real_view)                                                      \
    _(pool_empty) _(trim) _(stretch_left) _(deliver)                                               \
    _(traced) _(storage_of) _(plain_node) _(snapshot) _(small_program) _(is_same)                  \
    _(called_name) _(calls_counted) _(evaluate_in_full) _(lost) _(export_rule)                     \
    _(numpys_item) _(numpys_matmul)                                                                \
    _(evaluations_begin) _(evaluations_first) _(number_uses) _(numbers_inside) _(gather_rule) _(takes_numbers)          \
    _(evaluation_error) _(gathered)                                                                \
    /* classes; `scalar`: of lazy ones; `source_location`: errstate's */                           \
    _(node) _(storage) _(root) _(memory) _(layout) _(host_call) _(moves) _(scalar)                 \
    _(source_location)                                                                             \
    _(leaf_memory) _(pool) _(block)                                                                \
    /* op definitions; `reduce_rows`: by their codes in reductions.c */                            \
    _(leaf_op) _(scalar_op) _(full_op) _(view_op) _(index_op) _(update_op)                         \
    _(reduce_rows)                                                                                 \
    /* what was met before: nodes of numbers, loops, parts of complex numbers by dtype and side,   \
       reductions by method, what reductions gave, arrangements of views */                        \
    _(constants) _(reductions) _(arranged)                                                         \
    /* the dtypes of NumPy's numbers, by type */                                                   \
    _(strong)                                                                                      \
    /* how NumPy's loops of a ufunc may be called: base.loop_types; a meta array */                \
    _(loop_types) _(meta)                                                                          \
    /* sets of types, and of lazyfuse's packages; names of tracing.py; NumPy's error state and its \
       default; how often NumPy ran, by line */                                                    \
    _(simple) _(plain_numbers) _(inside) _(options) _(tracing) _(state) _(usual_state)             \
    _(run_counts)

typedef struct {
#define HOOK(name) PyObject *name;
    HOOKS(HOOK)
#undef HOOK
    void *origin; /* where meta arrays begin */
    int plain; /* whether NumPy's error state is its default */
} Bindings;

extern Bindings hooks;

/* Names of attributes, arguments and entries, interned. */
#define NAMES(_)                                                                                   \
    _(accumulate, "accumulate") _(at, "at") _(outer, "outer") _(reduceat, "reduceat")              \
    _(general_accumulate, "_general_accumulate") _(general_at, "_general_at")                      \
    _(general_outer, "_general_outer") _(general_reduceat, "_general_reduceat")                    \
    _(append, "append") _(pop, "pop") _(keeping, "keeping") _(release, "release")                  \
    _(reserve, "reserve") _(may_capture, "_may_capture") _(busy, "busy") _(on, "on")               \
    _(reset, "reset") _(choice, "choice") _(cost, "cost") _(elided, "elided") _(share, "share")                    \
    _(active, "active") _(chunked, "chunked") _(pending, "pending")                                \
    _(rematerialised, "rematerialised") _(found, "found") _(state, "_state") _(calls, "calls")     \
    _(op, "op") _(rule, "rule") _(entered, "entered") _(compiled_turns, "compiled_turns")          \
    _(compiled_seconds, "compiled_seconds") _(start, "start") _(stop, "stop") _(step, "step")      \
    _(axis, "axis") _(char, "char") _(check_limits, "check_limits") _(depth, "depth")              \
    _(device, "device") _(dtype, "dtype") _(filters, "filters") _(general, "_general")             \
    _(ignored, "ignored") _(keepdims, "keepdims") _(kind, "kind") _(listeners, "listeners")        \
    _(map, "map") _(module, "__name__") _(name, "name") _(note, "note") _(number, "number") _(order, "order")            \
    _(out, "out") _(package, "__package__") _(qualname, "__qualname__") _(read, "read")            \
    _(structure, "structure") _(shape, "shape") _(ufunc, "ufunc") _(worth, "WORTH_A_LAUNCH")

#define NAME(name, text) extern PyObject *name_##name;
NAMES(NAME)
#undef NAME

int names_ready(void);

/* Where the slots of Python's classes lie: found once, when a class is bound. */
typedef struct {
    Py_ssize_t op, src, arg, shape, dtype, perm, location, value, resident;
} NodeSlots;
typedef struct {
    Py_ssize_t node, value, flat, origin, always_eager, exports, reals, picks, visits;
} StorageSlots;
typedef struct {
    Py_ssize_t array, own;
} RootSlots;
typedef struct {
    Py_ssize_t owned, leaves;
} MemorySlots;
typedef struct {
    Py_ssize_t eager_below, device, exported_at_once, plan_after, lazy_numbers,
        flush_nodes, flush_bytes;
} OptionSlots;
typedef struct {
    Py_ssize_t leaf;
} LeafSlots;
typedef struct {
    Py_ssize_t _free, _free_bytes, _look, limit, reused;
} PoolSlots;
typedef struct {
    Py_ssize_t address, size, since;
} BlockSlots;

extern NodeSlots in_node;
extern StorageSlots in_storage;
extern RootSlots in_root;
extern MemorySlots in_memory;
extern OptionSlots in_options;
extern LeafSlots in_leaf;
extern PoolSlots in_pool;
extern BlockSlots in_block;

#define AT(object, offset) (*(PyObject **)((char *)(object) + (offset)))
#define NODE(node, slot) AT(node, in_node.slot)
#define STORAGE(storage, slot) AT(storage, in_storage.slot)
#define ROOT(root, slot) AT(root, in_root.slot)
#define LEAF_MEMORY(memory, slot) AT(memory, in_leaf.slot)
#define POOL(pool, slot) AT(pool, in_pool.slot)
#define RAW(block, slot) AT(block, in_block.slot)
#define MEMORY(memory, slot) AT(memory, in_memory.slot)
#define OPTION(slot) AT(hooks.options, in_options.slot)
#define IS_NODE(x) ((PyObject *)Py_TYPE(x) == hooks.node)
#define IS_LAYOUT(x) ((PyObject *)Py_TYPE(x) == hooks.layout)

/* The fields of a layout, and of the arguments of a reduction, which are tuples. */
enum { LAYOUT_OFFSET, LAYOUT_SHAPE, LAYOUT_STRIDES, LAYOUT_FIELDS };
enum { REDUCED_AXES, REDUCED_KEEPS, REDUCED_DTYPE, REDUCED_SHORT, REDUCED_FIELDS };

/* Where a slot of a Python class lies; -1 with an exception if it is none. */
Py_ssize_t slot_offset(PyObject *type, const char *name);

/* Loops over dense arrays that call SIMD functions of the C library; what the processor has. */
Offered vector_run, vector_features;
/* The SIMD version of a function of doubles (size 8) or floats (4); NULL: there is none. */
void *simd_function(const char *name, int arity, int size);
/* A loop that calls it, up to the first part of it that raises one of the flags. The last of `args`
   is written, and may be one of the others. */
void simd_run(void *function, int arity, int size, char **args, npy_intp count,
              const npy_intp *steps, int flags);

/* -------------------------------------------------------------------------------------- section */

extern PyTypeObject NoteType, SectionType;
/* An exception that is set aside; it becomes the context of a later one. */
typedef struct {
    PyObject *kind, *value, *trace;
} Aside;
void set_aside(Aside *error);
/* -1 if there is one; then it is raised. */
int raise_aside(Aside *error);
/* A section of this thread begins and ends, for the collector: -1 with an exception. */
int collector_enter(void);
int collector_leave(void);
/* The collection that was due in a section, after the last one; an exception that is set stays. */
void collector_late(void);
int drop_threads(void);
/* Enter a section, and leave it; an exception that is set stays. -1: an error. */
int section_begin(PyObject *section);
/* The part of it that signals need, for callers that have the lock: handlers wait until they are run.
   -1 with an exception, perhaps of a handler. */
int handlers_wait(void);
int handlers_run(void);
int section_end(PyObject *section);
/* The same where next to no Python runs in between: handlers of signals need not wait, the collector
   does. */
int section_lock(PyObject *section);
int section_unlock(PyObject *section);
Offered section_setup, section_new_main, section_put_off, section_bring_back, section_enter,
    section_leave, section_collect_late, collector_setup;

#endif
