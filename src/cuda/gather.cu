/*
 * A gather: one thread an element, blocks striding over the elements of a job; the grid's second axis is the job.
 * Axes that lie together in both views are merged on the host, so most jobs have one or two.
 */
#include <machine/early.cuh>
#include <machine/kernel.cuh>

#include "elements.cuh"
#include "gather.h"

namespace
{

struct Job {
    const void *source, *factor;
    void *destination;
    int64_t count;
    int64_t shape[RILL_MAX_RANK], from[RILL_MAX_RANK], to[RILL_MAX_RANK];
    int rank, source_dtype, destination_dtype, size;
    bool decay;
};

struct Jobs {
    Job job[RL_GATHER_JOBS];
};

template <typename T> __device__ void move(const Job &job, int64_t from, int64_t to)
{
    ((T *)job.destination)[to] = ((const T *)job.source)[from];
}

__device__ bool is_infinite(double value)
{
    return fabs(value) == __longlong_as_double(0x7ff0000000000000);
}

__device__ void move_element(const Job &job, int64_t from, int64_t to)
{
    if (job.decay) {
        double value = -exp(load_any<double>(job.source, job.source_dtype, from));
        store_any(job.destination, job.destination_dtype, to, value);
    } else if (job.factor) {
        const double value = load_any<double>(job.source, job.source_dtype, from);
        const double factor = load_any<double>(job.factor, job.source_dtype, from);
        store_any(job.destination, job.destination_dtype, to, is_infinite(factor) ? 0 : value * factor);
    } else if (job.source_dtype != job.destination_dtype) {
        store_any(job.destination, job.destination_dtype, to, load_any<double>(job.source, job.source_dtype, from));
    } else if (job.size == 2) {
        move<uint16_t>(job, from, to);
    } else if (job.size == 4) {
        move<uint32_t>(job, from, to);
    } else if (job.size == 8) {
        move<uint64_t>(job, from, to);
    } else { /* complex128 may be aligned to its parts only */
        move<uint64_t>(job, 2 * from, 2 * to);
        move<uint64_t>(job, 2 * from + 1, 2 * to + 1);
    }
}

__global__ void gather_kernel(const __grid_constant__ Jobs jobs)
{
    const Job &job = jobs.job[blockIdx.y];
    let_later_start();
    await_earlier();
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t k = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; k < job.count; k += stride) {
        int64_t rest = k, from = 0, to = 0;
#pragma unroll
        for (int axis = RILL_MAX_RANK - 1; axis >= 0; axis--) {
            if (axis >= job.rank) continue;
            int64_t above = axis == 0 ? 0 : rest / job.shape[axis], index = rest - above * job.shape[axis];
            from += index * job.from[axis];
            to += index * job.to[axis];
            rest = above;
        }
        move_element(job, from, to);
    }
}

Job plan(const rl_gather_job &given)
{
    const rill_tensor &source = given.source, &destination = given.destination;
    Job job = {};
    job.source = source.data;
    job.destination = destination.data;
    job.source_dtype = source.dtype;
    job.destination_dtype = destination.dtype;
    job.size = (int)rill_dtype_size(source.dtype);
    job.decay = given.decay;
    job.factor = given.factor;
    job.count = 1;
    for (int axis = 0; axis < source.rank; axis++) {
        int64_t n = source.shape[axis], from = source.stride[axis], to = destination.stride[axis];
        job.count *= n;
        if (n == 1) continue;
        int last = job.rank - 1;
        if (last >= 0 && job.from[last] == n * from && job.to[last] == n * to) {
            job.shape[last] *= n;
        } else {
            last = job.rank++;
            job.shape[last] = n;
        }
        job.from[last] = from;
        job.to[last] = to;
    }
    return job;
}

} // namespace

const void *rl_cuda_gather_kernel(void)
{
    return kernel_address<gather_kernel>();
}

rill_status rl_cuda_gather(rill_context *context, const rl_gather_job *jobs, int count)
{
    const int threads = 256;
    const int64_t most = (int64_t)rl_cuda_state_of(context)->sms * 32;
    Jobs planned = {};
    int64_t blocks = 0;
    int used = 0;
    for (int k = 0; k < count; k++) {
        Job job = plan(jobs[k]);
        if (job.count == 0) continue;
        planned.job[used++] = job;
        int64_t needed = (job.count + threads - 1) / threads;
        blocks = needed > blocks ? needed : blocks;
    }
    if (used == 0) return RILL_OK;
    void *arguments[] = {&planned};
    return rl_cuda_launch_early(context, kernel_address<gather_kernel>(), blocks < most ? blocks : most, used,
                                threads, 0, arguments, "gather: launch");
}
