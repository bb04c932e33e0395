/* Passes over memory for which eager torch needs several operations each.

   Plain C without headers of Python or torch, called through ctypes (native/library.py). What each function computes is
   said there; the torch operations that it stands for are its oracle. On x86 the dynamic linker picks the version for
   the processor at hand. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#define CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CLONES
#endif
#define EXPORT CLONES
#if defined(__GNUC__) && !defined(__clang__)
#define INDEPENDENT _Pragma("GCC ivdep")
#elif defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT
#endif
#define INLINE static inline __attribute__((always_inline))

/* The C library has versions for vectors of these, which compilers take only when told that they exist. */
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
__attribute__((simd("notinbranch"))) extern float expf(float);
__attribute__((simd("notinbranch"))) extern float logf(float);
__attribute__((simd("notinbranch"))) extern double exp(double);
__attribute__((simd("notinbranch"))) extern double log(double);
#endif

/* Of a loader and a library that do not belong together, the loader wants nothing. */
#ifndef SOURCE
#define SOURCE "unknown"
#endif
const char *slimbayes_source(void) { return SOURCE; }

#define REAL float
#define NAME(name) name##_float
#define EXP expf
#define LOG logf
#include "passes.inc"
#include "laws.inc"
#include "tied.inc"
#undef REAL
#undef NAME
#undef EXP
#undef LOG

#define REAL double
#define NAME(name) name##_double
#define EXP exp
#define LOG log
#include "passes.inc"
#include "laws.inc"
#include "tied.inc"

/* Bits as numbers: -1 or 1, from the lowest bit of the first byte on. */
EXPORT void signs(const unsigned char *bytes, signed char *out, long count) {
    long whole = count / 8;
    for (long i = 0; i < whole; i++) {
        INDEPENDENT for (int j = 0; j < 8; j++) out[8 * i + j] = (signed char)((bytes[i] >> j & 1) * 2 - 1);
    }
    for (long k = 8 * whole; k < count; k++) out[k] = (signed char)((bytes[whole] >> (k - 8 * whole) & 1) * 2 - 1);
}
