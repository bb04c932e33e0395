/* y = x * v + b for rows of channels, and its gradients: one pass over memory where torch needs several.

   Plain C without headers of Python or torch, called through ctypes (_fast/library.py). The torch operations that each
   function stands for are in _fast/scaled_rows.py, and are its oracle. On x86 the dynamic linker picks the version for
   the processor at hand. */

#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#define EXPORT __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define EXPORT
#endif
/* The memory that is written never overlaps what is read, but for an element with itself. */
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define INDEPENDENT _Pragma("GCC ivdep")
#else
#define INDEPENDENT
#endif
#define INLINE static inline __attribute__((always_inline))

/* Half-precision numbers are computed with as float. Rounding is to nearest, ties to even, as torch's is. */
typedef unsigned short bfloat16;

INLINE float widen(bfloat16 x) {
    unsigned bits = (unsigned)x << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

INLINE bfloat16 narrow(float value) {
    unsigned bits;
    memcpy(&bits, &value, sizeof bits);
    unsigned rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (bfloat16)(value != value ? 0x7fc0 : rounded);
}

/* Writes +1 and -1 for bits 1 and 0, eight at a time; byte i of a word gets bit i, as on any little-endian machine. */
INLINE void unpack_signs(const unsigned char *bits, long channels, signed char *signs) {
    for (long c = 0; c < channels; c += 8) {
        unsigned long long word = (bits[c / 8] * 0x0101010101010101ULL) & 0x8040201008040201ULL;
        word = (word + 0x7f7f7f7f7f7f7f7fULL) >> 7 & 0x0101010101010101ULL;
        word = ~(word * 0xfe);
        memcpy(signs + c, &word, 8);
    }
}

#define STORED float
#define REAL float
#define NAME(name) name##_float
#define LOAD(x) (x)
#define SAVE(x) (x)
#include "rows.inc"
#undef STORED
#undef REAL
#undef NAME

#define STORED double
#define REAL double
#define NAME(name) name##_double
#include "rows.inc"
#undef STORED
#undef REAL
#undef NAME
#undef LOAD
#undef SAVE

#define STORED bfloat16
#define REAL float
#define NAME(name) name##_bfloat16
#define LOAD(x) widen(x)
#define SAVE(x) narrow(x)
#include "rows.inc"
