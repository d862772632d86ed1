#include "scan.h"

#include <omp.h>

#include "../counts.h"

enum {
    BLOCK_CHANNELS = 4096, /* that one thread walks together: their states stay in the first-level cache */
    TASKS_PER_THREAD = 4,
    OVER_TIME_LEAST = 4096, /* steps from which one channel's time fills the lanes */
    SPLIT_LEAST = 4096,     /* steps from which sharing a sequence among threads pays its second walk */
    SPLIT_THREADS = 4, /* from which that is faster than one walk: with two, 0.15 s against 0.08 (16 channels, f32) */
    SPLIT_ALWAYS = 1 << 15, /* where results must not depend on the threads: split few channels from here on */
    SPLIT_VECTORS = 4,
    SMALL_WORK = 1 << 15,  /* elements that one thread does in about the time of starting a team */
    CACHE_BYTES = 32 << 20 /* tensors together larger than this do not stay in cache in any case */
};

/* Which way a sequence goes: by its own length and channels, where results must not depend on anything else. */

static bool runs_over_time(const rl_scan_job *job)
{
    if (job->channels == 1) return true;
    bool side_by_side = (job->a.stride[1] == 0 || job->a.stride[1] == 1 || job->a.stride[1] == -1) &&
                        (job->input.stride[1] == 1 || job->input.stride[1] == -1);
    return side_by_side && job->channels * 2 <= job->lanes;
}

/* Whether one of `strips` strips of a sequence is more than half a thread's share of the work. */
static bool is_large_share(const rl_scan_job *job, int64_t length, int64_t strips)
{
    return job->threads > 1 &&
           (double)length * 2 * job->threads > (double)job->batch * (double)job->length * (double)strips;
}

static rl_scan_way way_of(const rl_scan_job *job, int64_t length)
{
    if (length >= OVER_TIME_LEAST && runs_over_time(job)) return RL_SCAN_OVER_TIME;
    bool split = job->reproducible ? length >= SPLIT_ALWAYS && job->vectors <= SPLIT_VECTORS
                                   : length >= SPLIT_LEAST && job->threads >= SPLIT_THREADS &&
                                         is_large_share(job, length, job->vectors);
    return split ? RL_SCAN_SPLIT : RL_SCAN_WHOLE;
}

static int64_t strips_of(const rl_scan_job *job, rl_scan_way way)
{
    return way == RL_SCAN_OVER_TIME ? job->channels : job->vectors;
}

static bool is_shared(const rl_scan_job *job, rl_scan_way way, int64_t length)
{
    return way != RL_SCAN_WHOLE && is_large_share(job, length, strips_of(job, way));
}

/* Planning and running */

/* A block is whole vectors, and the last one takes what is left of the channels too. */
static void plan_blocks(rl_scan_job *job)
{
    bool in_time = job->out.data && job->out.stride[2] != 1;
    int64_t whole = job->channels / job->lanes;
    job->block_vectors = in_time ? 1 : rl_most(1, BLOCK_CHANNELS / job->lanes);
    job->block_vectors = rl_most(1, rl_least(job->block_vectors, whole));
    while (job->block_vectors > 1 &&
           job->sequences * (whole / job->block_vectors) < (int64_t)job->threads * TASKS_PER_THREAD &&
           job->block_vectors * (int64_t)job->vector_size > 1024)
        job->block_vectors = (job->block_vectors + 1) / 2;
    job->blocks = rl_most(1, whole / job->block_vectors);
}

static rill_status plan(rill_context *context, rl_scan_job *job)
{
    double elements = (double)job->batch * (double)job->length * (double)job->channels + (double)job->sequences;
    job->threads = elements < SMALL_WORK ? 1 : context->options.threads;
    job->past_cache =
        job->input.data != job->out.data && elements * 3 * (double)rill_dtype_size(job->a.dtype) > CACHE_BYTES;
    plan_blocks(job);
    job->scratch_size = (3 * RL_TILE_ROWS + 2 * (size_t)job->block_vectors + 1) * job->vector_size;
    job->scratch_size = (job->scratch_size + 255) & ~(size_t)255;
    void *memory;
    rill_status status = rl_workspace_take(context, job->scratch_size * (size_t)job->threads, &memory);
    job->scratch = memory;
    return status;
}

static rill_status plan_shared(rill_context *context, rl_scan_job *job)
{
    void *memory = NULL;
    for (int pass = 0; pass < 2; pass++) {
        int64_t count = 0;
        for (int64_t i = 0; i < job->sequences; i++) {
            int64_t length = rl_sequence_of(&job->offsets, i, job->length, false).length;
            rl_scan_way way = way_of(job, length);
            if (!is_shared(job, way, length)) continue;
            for (int64_t strip = 0; strip < strips_of(job, way); strip++, count++)
                if (pass == 1) rl_scan_make_shared_strip(job, count, way, i, strip);
        }
        if (count == 0) return RILL_OK;
        if (pass == 1) break;
        job->strip_count = count;
        rill_status status = rl_workspace_take(context, (size_t)count * rl_scan_strip_size(), &memory);
        if (status != RILL_OK) return status;
        job->strips = memory;
    }
    return RILL_OK;
}

/* One of a sequence's tasks, of which a way may leave the last ones empty. */
static void run_task(const rl_scan_job *job, const rl_scan_scratch *scratch, int64_t sequence, int64_t index)
{
    rl_scan_block b = {.s = rl_sequence_of(&job->offsets, sequence, job->length, job->reverse), .sequence = sequence};
    rl_scan_way way = way_of(job, b.s.length);
    if (is_shared(job, way, b.s.length)) return;
    if (way != RL_SCAN_WHOLE) {
        if (index >= strips_of(job, way) || rl_scan_run_strip(job, way, sequence, index, scratch)) return;
        b = rl_scan_block_of(job, way, sequence, index);
        rl_scan_run_block(job, &b, scratch);
        return;
    }
    if (index >= job->blocks) return;
    b.first = index * job->block_vectors * job->lanes;
    b.end = index + 1 == job->blocks ? job->channels : b.first + job->block_vectors * job->lanes;
    rl_scan_run_block(job, &b, scratch);
}

/* Every thread of the team calls it. */
static void run_shared(const rl_scan_job *job, const rl_scan_scratch *scratch)
{
    if (job->strip_count == 0) return;
    for (int64_t i = 0; i < job->strip_count; i++)
        rl_scan_look_at_shared_strip(job, i, scratch, omp_get_thread_num());
#pragma omp barrier
    for (int64_t i = 0; i < job->strip_count; i++) rl_scan_run_shared_strip(job, i, scratch);
    rl_scan_settle();
#pragma omp barrier
#pragma omp for schedule(dynamic) nowait
    for (int64_t i = 0; i < job->strip_count; i++) {
        rl_scan_block block;
        if (rl_scan_must_repeat(job, i, &block)) rl_scan_run_block(job, &block, scratch);
    }
}

static rill_status run(rill_context *context, rl_scan_job *job)
{
    rill_status status = plan(context, job);
    if (status == RILL_OK) status = plan_shared(context, job);
    if (status != RILL_OK) return status;
    int64_t longest = rl_longest_sequence(&job->offsets, job->sequences, job->length);
    rl_scan_way way = way_of(job, longest);
    int64_t each = way == RL_SCAN_WHOLE ? job->blocks : rl_most(job->blocks, strips_of(job, way));
    int64_t tasks = job->sequences * each, chunk = rl_most(1, tasks / (job->threads * 64));
#pragma omp parallel num_threads(job->threads)
    {
        rl_scan_scratch scratch = rl_scan_scratch_of(job, omp_get_thread_num());
        run_shared(job, &scratch);
#pragma omp for schedule(dynamic, chunk) nowait
        for (int64_t task = 0; task < tasks; task++) run_task(job, &scratch, task / each, task % each);
        if (job->past_cache) rl_scan_settle();
    }
    return RILL_OK;
}

static bool is_complex(rill_dtype dtype)
{
    return dtype == RILL_C64 || dtype == RILL_C128;
}

/* What follows from the type, once the tensors are in place. */
static void set_type(rill_context *context, rl_scan_job *job)
{
    const rill_dtype dtype = job->a.dtype;
    const rl_kernels *wide = rl_cpu_kernels(context, RILL_F64), *narrow = rl_cpu_kernels(context, RILL_F32);
    job->narrow = dtype != RILL_F64 && dtype != RILL_C128;
    const rl_kernels *kernels = job->narrow ? narrow : wide;
    job->kernels = kernels->scan;
    job->wide = wide->scan;
    job->mover = dtype == RILL_C64 ? wide->scan : kernels->scan;
    job->rule.is_complex = is_complex(dtype);
    job->parts = job->rule.is_complex ? 2 : 1;
    job->real_dtype = dtype == RILL_C64 ? RILL_F32 : dtype == RILL_C128 ? RILL_F64 : dtype;
    job->real_size = job->narrow ? sizeof(float) : sizeof(double);
    job->vector_size = (size_t)kernels->lanes * job->real_size;
    job->lanes = kernels->lanes / job->parts;
    job->vectors = (job->channels + job->lanes - 1) / job->lanes;
    job->reproducible = context->options.reproducible;
    rill_tensor *all[] = {&job->a, &job->input, &job->out, &job->h, &job->da, &job->h_init, &job->start, &job->end};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i]->dtype == RILL_C64) all[i]->dtype = RILL_F64;
}

/* One channel in a batch of short sequences: the batch takes the channels' place in the lanes. */
static void turn(rl_scan_job *job)
{
    if (job->channels != 1 || job->batch <= 1 || job->length >= OVER_TIME_LEAST) return;
    rill_tensor *in_time[] = {&job->a, &job->input, &job->out, &job->h, &job->da};
    rill_tensor *states[] = {&job->start, &job->end, &job->h_init};
    for (size_t i = 0; i < sizeof in_time / sizeof in_time[0]; i++) {
        int64_t stride = in_time[i]->stride[0];
        in_time[i]->stride[0] = in_time[i]->stride[2];
        in_time[i]->stride[2] = stride;
    }
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++) {
        int64_t stride = states[i]->stride[0];
        states[i]->stride[0] = states[i]->stride[1];
        states[i]->stride[1] = stride;
    }
    job->channels = job->batch;
    job->batch = job->sequences = 1;
}

rill_status rl_cpu_scan(rill_context *context, const rl_scan_problem *p)
{
    rl_scan_job job = {.reverse = p->reverse,
                       .batch = p->batch,
                       .length = p->length,
                       .channels = p->channels,
                       .sequences = p->sequences,
                       .offsets = p->offsets,
                       .a = p->a,
                       .input = p->b,
                       .out = p->h,
                       .h_init = p->h_init,
                       .start = p->h_init,
                       .end = p->h_final};
    if (p->channels == 0 || p->sequences == 0) return RILL_OK;
    turn(&job);
    set_type(context, &job);
    return run(context, &job);
}

rill_status rl_cpu_scan_backward(rill_context *context, const rl_scan_backward_problem *p)
{
    rl_scan_job job = {.rule.back = true,
                       .reverse = !p->reverse,
                       .batch = p->batch,
                       .length = p->length,
                       .channels = p->channels,
                       .sequences = p->sequences,
                       .offsets = p->offsets,
                       .a = p->a,
                       .input = p->dh,
                       .out = p->db,
                       .h = p->h,
                       .da = p->da,
                       .h_init = p->h_init,
                       .start = p->dh_final,
                       .end = p->dh_init};
    if (p->channels == 0 || p->sequences == 0) return RILL_OK;
    turn(&job);
    set_type(context, &job);
    return run(context, &job);
}
