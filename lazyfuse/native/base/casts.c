/* Casts of whole arrays to another dtype, as NumPy does them. */

#include "base.h"

typedef void Cast(const void *from, void *to, npy_intp count);
static Cast *casts[TYPES][TYPES];

/* Casts that are exact or round as C does: of integers and float32 to a wider type. */
#define CAST(name, wide, narrow)                                             \
    static void name(const void *from, void *to, npy_intp count)            \
    {                                                                        \
        for (npy_intp at = 0; at < count; at++) {                            \
            ((wide *)to)[at] = (wide)((const narrow *)from)[at];             \
        }                                                                    \
    }
#define TO_DOUBLE(_)                                                                               \
    _(NPY_BYTE, npy_byte) _(NPY_UBYTE, npy_ubyte) _(NPY_SHORT, npy_short)                          \
    _(NPY_USHORT, npy_ushort) _(NPY_INT, npy_int) _(NPY_UINT, npy_uint) _(NPY_LONG, npy_long)      \
    _(NPY_ULONG, npy_ulong) _(NPY_LONGLONG, npy_longlong) _(NPY_ULONGLONG, npy_ulonglong)          \
    _(NPY_FLOAT, npy_float)
#define CAST_TO_DOUBLE(code, each) CAST(each##_to_double, npy_double, each)
TO_DOUBLE(CAST_TO_DOUBLE)
#define TRUTH(name, wide)                                                    \
    static void name(const void *from, void *to, npy_intp count)            \
    {                                                                        \
        for (npy_intp at = 0; at < count; at++) {                            \
            ((wide *)to)[at] = (wide)(((const npy_bool *)from)[at] != 0);    \
        }                                                                    \
    }
TRUTH(bool_to_double, npy_double)
TRUTH(bool_to_float, npy_float)
TRUTH(bool_to_int, npy_int)
TRUTH(bool_to_long, npy_long)
CAST(int_to_long, npy_long, npy_int)

void casts_ready(void)
{
#define FILL(code, each) casts[code][NPY_DOUBLE] = each##_to_double;
    TO_DOUBLE(FILL)
#undef FILL
    casts[NPY_BOOL][NPY_DOUBLE] = bool_to_double;
    casts[NPY_BOOL][NPY_FLOAT] = bool_to_float;
    casts[NPY_BOOL][NPY_INT] = bool_to_int;
    casts[NPY_BOOL][NPY_LONG] = bool_to_long;
    casts[NPY_INT][NPY_LONG] = int_to_long;
}

int loops_cast(int from, int to, const void *values, void *room, npy_intp count)
{
    Cast *function = casts[from][to];
    if (function != NULL) {
        function(values, room, count);
    }
    return function != NULL;
}
