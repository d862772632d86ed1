/* What a call can answer.  The hundreds digit is the kind: argument, unsupported, memory, device, internal. */
#ifndef RILL_STATUS_H
#define RILL_STATUS_H

#include <rill/export.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum rill_status {
    RILL_OK = 0,

    /* The caller's arguments.  The context's last message names argument, axis, found and expected. */
    RILL_INVALID_NULL = 100,    /* a required argument or its data is NULL */
    RILL_INVALID_DTYPE = 101,   /* a tensor's type does not fit its role */
    RILL_INVALID_SHAPE = 102,   /* rank, a size, or sizes that disagree */
    RILL_INVALID_STRIDE = 103,  /* strides that leave the address space, or data that is not aligned */
    RILL_INVALID_OVERLAP = 104, /* an output overlaps itself or another tensor of the call */
    RILL_INVALID_DEVICE = 105,  /* a tensor lies where the context cannot use it, or tensors lie apart */
    RILL_INVALID_OFFSETS = 106, /* offsets of packed sequences that are not ordered, or do not span the data */
    RILL_INVALID_OPTION = 107,  /* an option out of range, or a reserved field that is not zero */

    RILL_UNSUPPORTED = 200, /* valid, but not in this build or on this machine */

    RILL_OUT_OF_MEMORY = 300, /* host or device memory; also growth of a workspace during graph capture */

    RILL_DEVICE_ERROR = 400, /* the GPU or its driver reported an error */

    RILL_INTERNAL = 500 /* a fault of rill itself */
} rill_status;

/* The name of a status ("RILL_INVALID_SHAPE"), or "unknown status".  Never NULL; never freed. */
RILL_API const char *rill_status_name(rill_status status);

#ifdef __cplusplus
}
#endif

#endif
