/* Combines the partial results of a reduction whose elements several threads have read. */

#include "replay.h"

#include <math.h>

enum { PARTS = 256 }; /* native_replay.MOST_PARTIAL */

/* `of`: elements. `by`: the type to add in; that of integers wraps. Left to Python: exceptions, NaN,
   and zeros of both signs, of which NumPy chooses one. */
#define COMBINE(name, of, by, is_float)                                                            \
    static int name(const Combining *one, const of *from, of *to)                                  \
    {                                                                                              \
        const unsigned char *joins = (const unsigned char *)PyBytes_AS_STRING(one->joins);         \
        for (Py_ssize_t at = 0; at < one->width; at++) {                                           \
            const of *part = from + at;                                                            \
            of found = *part;                                                                      \
            if (one->how == SUM) {                                                                 \
                by stack[PARTS], total;                                                            \
                Py_ssize_t depth = 0;                                                              \
                for (Py_ssize_t i = 0; i < one->count; i++) {                                      \
                    stack[depth++] = (by)part[i * one->width];                                     \
                    for (int j = joins[i]; j > 0 && depth > 1; j--, depth--) {                     \
                        stack[depth - 2] += stack[depth - 1];                                      \
                    }                                                                              \
                }                                                                                  \
                total = stack[0];                                                                  \
                for (Py_ssize_t i = 1; i < depth; i++) {                                           \
                    total += stack[i];                                                             \
                }                                                                                  \
                found = (of)total;                                                                 \
                if (is_float && !isfinite((double)found)) {                                        \
                    return 0;                                                                      \
                }                                                                                  \
            }                                                                                      \
            else {                                                                                 \
                int minus = 0, zeros = 0;                                                          \
                for (Py_ssize_t i = 0; i < one->count; i++) {                                      \
                    of each = part[i * one->width];                                                \
                    if (is_float && isnan((double)each)) {                                         \
                        return 0;                                                                  \
                    }                                                                              \
                    zeros += each == 0;                                                            \
                    minus += is_float && each == 0 && signbit((double)each);                       \
                    if (one->how == MOST ? each > found : each < found) {                          \
                        found = each;                                                              \
                    }                                                                              \
                }                                                                                  \
                if (found == 0 && minus != 0 && minus != zeros) {                                  \
                    return 0;                                                                      \
                }                                                                                  \
            }                                                                                      \
            to[at] = found;                                                                        \
        }                                                                                          \
        return 1;                                                                                  \
    }

COMBINE(combine_f8, double, double, 1)
COMBINE(combine_f4, float, float, 1)
COMBINE(combine_i8, npy_int64, npy_uint64, 0)
COMBINE(combine_u8, npy_uint64, npy_uint64, 0)
COMBINE(combine_i4, npy_int32, npy_uint32, 0)
COMBINE(combine_u4, npy_uint32, npy_uint32, 0)
COMBINE(combine_i2, npy_int16, npy_uint32, 0)
COMBINE(combine_u2, npy_uint16, npy_uint32, 0)
COMBINE(combine_i1, npy_int8, npy_uint32, 0)
COMBINE(combine_u1, npy_uint8, npy_uint32, 0)

int combine(const Combining *one, const char *from, char *to)
{
    if (one->count < 1 || one->count > PARTS) {
        return 0;
    }
#define AS(type, name, of)                                                                         \
    case type:                                                                                     \
        return name(one, (const of *)from, (of *)to)
    switch (one->type) {
        AS(NPY_DOUBLE, combine_f8, double);
        AS(NPY_FLOAT, combine_f4, float);
        AS(NPY_INT64, combine_i8, npy_int64);
        AS(NPY_UINT64, combine_u8, npy_uint64);
        AS(NPY_INT32, combine_i4, npy_int32);
        AS(NPY_UINT32, combine_u4, npy_uint32);
        AS(NPY_INT16, combine_i2, npy_int16);
        AS(NPY_UINT16, combine_u2, npy_uint16);
        AS(NPY_INT8, combine_i1, npy_int8);
        AS(NPY_BOOL, combine_u1, npy_uint8);
        AS(NPY_UINT8, combine_u1, npy_uint8);
    default:
        return 0;
    }
#undef AS
}
