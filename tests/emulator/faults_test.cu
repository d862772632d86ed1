/* Kernels with a fault each, which the emulator must find: each runs in a process of its own, which has to say what.
 */
#include <machine/barriers.cuh>
#include <machine/bulk.cuh>
#include <machine/copies.cuh>
#include <machine/kernel.cuh>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

namespace
{

constexpr int THREADS = 64;

__global__ void lonely_barrier(float *)
{
    if (threadIdx.x < 32) barrier_meet<1>(THREADS);
}

__global__ void unlike_counts(float *)
{
    barrier_meet<1>(threadIdx.x < 32 ? 64 : 96);
}

__global__ void foreign_lane(float *)
{
    __syncwarp(1u << ((threadIdx.x + 1) % 32));
}

__global__ void lane_that_stays_away(float *)
{
    if (threadIdx.x == 3) __syncthreads();
    __shfl_sync(~0u, 1, 0);
}

__global__ void write_behind_shared(float *)
{
    dynamic_shared[64 + threadIdx.x] = 1;
}

__global__ void write_behind_memory(float *memory)
{
    memory[THREADS - 1] = 1;
}

__global__ void write_far_behind_memory(float *memory)
{
    memory[THREADS + 64] = 1;
}

__global__ void barrier_never_made(float *)
{
    __shared__ uint64_t barrier;
    barrier_wait(&barrier, 0);
}

__global__ void wait_without_end(float *)
{
    __shared__ uint64_t barrier;
    if (threadIdx.x == 0) barrier_init(&barrier, THREADS + 1);
    __syncthreads();
    barrier_arrive(&barrier);
    barrier_wait(&barrier, 0);
}

__global__ void store_not_waited_for(float *memory)
{
    if (threadIdx.x == 0) bytes_store(memory, dynamic_shared, 64);
    stores_commit();
}

__global__ void unaligned_copy(float *memory)
{
    copy_async_16(dynamic_shared, memory + 1, 16);
}

/* These end well, and leave something else than what a reader may have hoped for. */
__global__ void unwaited_copy(float *memory)
{
    float *const own = (float *)dynamic_shared;
    if (threadIdx.x == 0) {
        copy_number(own, memory);
        memory[1] = *own;
        await_copies();
        memory[2] = *own;
    }
}

__global__ void untouched_shared(float *memory)
{
    __shared__ float value;
    if (!memory) value = 1;
    memory[1] = value;
    memory[2] = ((float *)dynamic_shared)[threadIdx.x % 16];
}

cudaError_t run(const void *kernel, float *memory)
{
    void *arguments[] = {&memory};
    return cudaLaunchKernel(kernel, dim3(1), dim3(THREADS), arguments, 64, NULL);
}

/* In a child, since what is wrong ends a process; gives what it printed. */
bool ends_with(const void *kernel, const char *expected)
{
    int pipes[2], status;
    char said[4096] = "";
    if (pipe(pipes) != 0) return false;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        void *memory;
        dup2(pipes[1], STDERR_FILENO);
        cudaMalloc(&memory, (THREADS - 1) * sizeof(float));
        run(kernel, (float *)memory);
        cudaFree(memory);
        _exit(0);
    }
    close(pipes[1]);
    size_t length = 0;
    for (ssize_t more; (more = read(pipes[0], said + length, sizeof said - 1 - length)) > 0;) length += (size_t)more;
    close(pipes[0]);
    waitpid(child, &status, 0);
    const bool holds = WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && strstr(said, expected);
    if (!holds) printf("expected \"%s\", found status %d and \"%s\"\n", expected, status, said);
    return holds;
}

bool leaves(const void *kernel, bool first_is_nan, bool second_is_nan)
{
    void *memory;
    float value[3] = {7};
    cudaMalloc(&memory, THREADS * sizeof(float));
    cudaMemcpy(memory, value, sizeof value, cudaMemcpyHostToDevice);
    run(kernel, (float *)memory);
    cudaMemcpy(value, memory, sizeof value, cudaMemcpyDeviceToHost);
    cudaFree(memory);
    const bool holds = isnan(value[1]) == first_is_nan && isnan(value[2]) == second_is_nan;
    if (!holds) printf("left %g and %g\n", value[1], value[2]);
    return holds;
}

} // namespace

int main()
{
    int failed = 0;
    failed += !ends_with(kernel_address<lonely_barrier>(), "threads 0 to 31: bar.sync");
    failed += !ends_with(kernel_address<unlike_counts>(), "barrier 1 for 96 threads, where others come for 64");
    failed += !ends_with(kernel_address<foreign_lane>(), "not among the lanes");
    failed += !ends_with(kernel_address<lane_that_stays_away>(), "threads 3 to 3: __syncthreads");
    failed += !ends_with(kernel_address<write_behind_shared>(), "behind the block's 64 bytes");
    failed += !ends_with(kernel_address<barrier_never_made>(), "not initialised");
    failed += !ends_with(kernel_address<store_not_waited_for>(), "before its bulk stores");
    failed += !ends_with(kernel_address<unaligned_copy>(), "not a multiple of 16");
    failed += !ends_with(kernel_address<write_behind_memory>(), "were written beyond their end");
    failed += !ends_with(kernel_address<write_far_behind_memory>(), "memory that is not there");
    failed += !ends_with(kernel_address<wait_without_end>(), "threads 0 to 63: an mbarrier");
    failed += !leaves(kernel_address<unwaited_copy>(), true, false);
    failed += !leaves(kernel_address<untouched_shared>(), true, true);
    printf("%d failed\n", failed);
    return failed > 0;
}
