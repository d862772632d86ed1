/* Optional: running on the caller's CUDA stream.  Includes no CUDA header; present, and answering, in every build. */
#ifndef RILL_CUDA_H
#define RILL_CUDA_H

#include <rill/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/* cudaStream_t, by its own definition. */
typedef struct CUstream_st *rill_cuda_stream;

/*
 * From now on the context works on the caller's stream of the context's device; NULL is the legacy default stream.
 * Work already queued on the stream used before is not waited for.  The stream stays the caller's and must outlive
 * its use here.  A context that is never told one works on a stream of its own, which does not synchronise with the
 * legacy default stream.  RILL_UNSUPPORTED on a context that is not cuda.
 */
RILL_API rill_status rill_cuda_set_stream(rill_context *context, rill_cuda_stream stream);

/* The stream that the context works on, in *stream. */
RILL_API rill_status rill_cuda_get_stream(rill_context *context, rill_cuda_stream *stream);

#ifdef __cplusplus
}
#endif

#endif
