/* Contexts: which backend computes, with how many threads or on which GPU, and what went wrong last. */
#ifndef RILL_CONTEXT_H
#define RILL_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rill/export.h>
#include <rill/status.h>
#include <rill/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A context holds a backend, a workspace that only grows, and the last message.  It is used by one thread at a time;
 * any number of contexts work side by side.  rill keeps no global state, prints nothing, and changes no setting of
 * OpenMP, OpenBLAS, CUDA or the floating-point unit.
 */
typedef struct rill_context rill_context;

typedef enum rill_backend {
    RILL_BACKEND_AUTO = 0, /* cuda where a usable GPU is found, else cpu */
    RILL_BACKEND_CPU = 1,
    RILL_BACKEND_CUDA = 2,
    RILL_BACKEND_REFERENCE = 3, /* plain loops in float64 (long double for float64 data): the judge */
    RILL_BACKEND_LOOP = 4       /* the same loops in the accumulation type: the judge's yardstick of rounding */
} rill_backend;

/* The instruction sets of the cpu backend, least first. */
typedef enum rill_isa {
    RILL_ISA_AUTO = 0, /* the widest that the machine has */
    RILL_ISA_BASELINE = 1,
    RILL_ISA_AVX2 = 2,  /* x86-64 with AVX2, FMA and F16C */
    RILL_ISA_AVX512 = 3 /* x86-64 with AVX-512 F, BW, DQ and VL */
} rill_isa;

/* Zero is the default of each field.  A field that says nothing to the backend is checked for range and ignored. */
typedef struct rill_options {
    rill_backend backend;
    int32_t threads;      /* cpu: threads of a call, up to 1024; 0 is OpenMP's own default at creation */
    int32_t device;       /* cuda: the device's ordinal */
    rill_isa isa;         /* cpu: the instruction set to use */
    bool reproducible;    /* results do not depend on the thread count nor on what else is in the batch */
    uint64_t reserved[8]; /* zero */
} rill_options;

/* What a context is made of.  Strings live as long as the context; a field that does not apply is 0 or "". */
typedef struct rill_info {
    rill_backend backend;
    const char *backend_name; /* "cpu", "cuda", "reference", "loop" */
    int32_t threads;
    const char *isa;    /* cpu: "baseline", "avx2", "avx512" */
    const char *blas;   /* the library of the projections' products, with its version and threading */
    const char *device; /* cuda: the GPU's name */
    int32_t device_sms; /* cuda: its multiprocessors */
    int64_t workspace;  /* bytes that the workspace holds now */
    uint64_t reserved[8];
} rill_info;

/*
 * Makes a context; options NULL means all defaults.  On failure *context is NULL and rill_last_error(NULL) tells
 * the calling thread why.  RILL_UNSUPPORTED: the backend is not in this build, the machine has no usable GPU or lacks
 * the instruction set.  Only AUTO falls back from cuda to cpu.
 */
RILL_API rill_status rill_context_create(const rill_options *options, rill_context **context);

/* Waits for the context's work and releases all it holds.  NULL is allowed. */
RILL_API void rill_context_destroy(rill_context *context);

/* The backend that AUTO or the caller chose. */
RILL_API rill_backend rill_context_backend(const rill_context *context);

/* Fills *info. */
RILL_API rill_status rill_context_info(const rill_context *context, rill_info *info);

/*
 * The message of the context's last call that failed: argument, axis, found and expected.  "" when none did.  Valid
 * until the context's next call.  With NULL: the calling thread's last failed rill_context_create.
 */
RILL_API const char *rill_last_error(const rill_context *context);

/*
 * Memory where the context's backend computes (host for cpu, reference and loop; device for cuda), aligned to 256
 * bytes, uninitialised.  bytes 0 gives NULL.  Free it with the context that made it, before that context dies.
 */
RILL_API rill_status rill_alloc(rill_context *context, size_t bytes, void **memory);
RILL_API rill_status rill_free(rill_context *context, void *memory);

/*
 * Copies source into destination, element by element: same type and shape, any strides, host or device on either
 * side.  Work on the context's stream; with host memory on either side the call returns when that memory may be used.
 * The two may not overlap, nor may destination overlap itself.
 */
RILL_API rill_status rill_copy(rill_context *context, const rill_tensor *destination, const rill_tensor *source);

/* Waits for all work of the context, and returns an earlier asynchronous error if there was one. */
RILL_API rill_status rill_synchronize(rill_context *context);

#ifdef __cplusplus
}
#endif

#endif
