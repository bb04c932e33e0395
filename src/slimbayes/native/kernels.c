/* Passes over memory for which eager torch needs several operations each.

   Plain C without headers of Python or torch, called through ctypes (native/library.py). What each function computes is
   said there; the torch operations that it stands for are its oracle. On x86 the dynamic linker picks the version for
   the processor at hand. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#define ON_X86
#endif
#ifdef ON_X86
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
#ifdef ON_X86
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

/* Products are written for two kinds of processors: those with the 32 wide registers of x86-64-v4, and x86-64-v3. */
#ifdef ON_X86
typedef struct {
    long height, width, inputs, outputs, kernel_height, kernel_width, stride_y, stride_x, pad_y, pad_x, out_height, out_width;
} ConvShape;

#undef REAL
#undef NAME
#define REAL float
#define INDEX int
#define BASE(name) name##_float
#define NAME(name) name##_float_v4
#define VERSION 4
#include "products.inc"
#define NAME(name) name##_float_v3
#define VERSION 3
#include "products.inc"
#undef REAL
#undef INDEX
#undef BASE

#define REAL double
#define INDEX long
#define BASE(name) name##_double
#define NAME(name) name##_double_v4
#define VERSION 4
#include "products.inc"
#define NAME(name) name##_double_v3
#define VERSION 3
#include "products.inc"

static int kind = 0; /* the version that is used; 0 for none */

/* Returns 4 or 3 where a version can be used, or 0. */
int products_known(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("x86-64-v4") ? 4 : __builtin_cpu_supports("x86-64-v3") ? 3 : 0;
}

/* Whether they are taken to be quicker than what torch brings: both versions were, on an AMD processor with v4. */
int products_quicker(void) {
    __builtin_cpu_init();
    return __builtin_cpu_is("amd") && products_known() > 0;
}

void products_use(int version) { kind = version; }

#define BY_KIND(name, type, ...) (kind == 4 ? name##_##type##_v4(__VA_ARGS__) : name##_##type##_v3(__VA_ARGS__))
#define EACH_TYPE(type) \
    void product_##type( \
        const type *left, const type *right, int turned, long rows, long depth, long columns, type *out, type *memory \
    ) { \
        BY_KIND(product, type, left, right, turned, rows, depth, columns, out, memory); \
    } \
    void turned_product_##type( \
        const type *left, const type *right, long rows, long outputs, long inputs, type *out, type *memory \
    ) { \
        BY_KIND(turned_product, type, left, right, rows, outputs, inputs, out, memory); \
    } \
    void groups_back_##type( \
        const type *grad, const type *x, const type *weight, const type *s, const type *r, long groups, long rows, \
        long outputs, long inputs, type *of_weight, type *of_s, type *of_r, type *memory \
    ) { \
        BY_KIND(groups_back, type, grad, x, weight, s, r, groups, rows, outputs, inputs, of_weight, of_s, of_r, memory); \
    } \
    void scaled_conv_##type( \
        const type *x, const type *weight, const type *s, const type *s_deviation, long s_stride, const signed char *s_signs, \
        long s_signs_stride, long s_members, long s_draws, long s_share, long s_inner, long s_channels, const type *r, \
        const type *r_deviation, long r_stride, const signed char *r_signs, long r_signs_stride, long r_members, \
        long r_draws, long r_share, long r_inner, long r_channels, const type *bias, long biases, long rows, \
        const ConvShape *shape, type *out, type *memory \
    ) { \
        Side_##type before = { \
            s, s_deviation, s_signs, s_stride, s_signs_stride, s_members, s_draws, s_share, s_inner, s_channels}; \
        Side_##type behind = { \
            r, r_deviation, r_signs, r_stride, r_signs_stride, r_members, r_draws, r_share, r_inner, r_channels}; \
        BY_KIND(scaled_conv, type, x, weight, before, behind, bias, biases, rows, shape, out, memory); \
    }
EACH_TYPE(float)
EACH_TYPE(double)
#endif
