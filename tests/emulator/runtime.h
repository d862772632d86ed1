/* Between the files of the emulated runtime. */
#ifndef EMULATOR_RUNTIME_H
#define EMULATOR_RUNTIME_H

#include <cuda_runtime_api.h>

#include <functional>

#include "block.h"

namespace emulator
{

/* The caller's last error, which the runtime's functions leave behind. */
cudaError_t answer(cudaError_t error);
extern thread_local cudaError_t last_error;

cudaError_t allocate(void **memory, size_t bytes);
cudaError_t release(void *memory);

/* Does it now, or has the graph do it that the stream is captured into. */
cudaError_t enqueue(cudaStream_t stream, std::function<void()> work);
bool is_captured(cudaStream_t stream);
/* Whether the thread captures any stream: then nothing may be allocated or waited for. */
bool captures();

/* What is known of a kernel; NULL: nothing. */
const Kernel *find(const void *kernel);

} // namespace emulator

#endif
