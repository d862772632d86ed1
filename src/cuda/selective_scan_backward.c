/*
 * The launcher of the selective scan's gradients: cuts a problem up, and launches the kernels that
 * selective_scan_back.cuh tells of.
 */
#include "counts.h"
#include "device.h"
#include "s6_back_copies.h"
#include "s6_back_kernels.h"
#include "s6_back_resolve.h"
#include "s6_back_tuning.h"

static const int64_t MOST_BLOCKS = 1 << 30; /* of a launch; blocks stride over the work beyond */

static bool is_f64(const rl_s6_back_args *args)
{
    return args->scan.x.dtype == RILL_F64;
}

static int64_t element_of(const rl_s6_back_args *args)
{
    return is_f64(args) ? sizeof(double) : sizeof(float);
}

static bool is_float_state(const rl_s6_state *state)
{
    return !state->data || state->dtype == (int32_t)RILL_F32;
}

/* Bytes of a step as kernels that are cut by roles have them; whether they are small enough. */
static bool find_paces(rl_s6_back_args *args)
{
    const rl_s6_view *views[] = {&args->scan.x, &args->scan.delta, &args->dy,     &args->scan.z, &args->dx,
                                 &args->ddelta, &args->dz,         &args->scan.B, &args->scan.C};
    const int64_t most = INT32_MAX / (2 * RL_S6_BACK_STEPS);
    for (int i = 0; i < 9; i++) {
        const int64_t bytes =
            views[i]->data ? views[i]->step * (int64_t)rill_dtype_size((rill_dtype)views[i]->dtype) : 0;
        if (bytes > most || bytes < -most) return false;
        args->pace[i] = bytes;
    }
    return true;
}

/* Steps of the last chunk, where all sequences are of one length. */
static int64_t last_steps(const rl_s6_args *scan)
{
    const int64_t share = scan->chunks > 1 ? rl_s6_back_share(scan->length, scan->chunks) : scan->length;
    return scan->length - share * (scan->chunks - 1);
}

/* Whether the walk, cut as it is, may be cut by roles too, which knows the usual problem only. */
static bool has_roles(rill_context *context, rl_s6_back_args *args)
{
    const rl_s6_args *scan = &args->scan;
    const size_t shared = rl_s6_back_roles_shared();
    if (shared == 0 || shared > rl_cuda_state_of(context)->most_shared) return false;
    if (args->form < RL_S6_BACK_NEAT_F32) return false;
    if (args->whole || args->clamps || !scan->softplus || scan->offsets || scan->z.data) return false;
    if (!args->dy.data || !args->dx.data || !args->ddelta.data) return false; /* which it reads and writes unasked */
    return scan->block_channels == RL_S6_BACK_CHANNELS && last_steps(scan) > RL_S6_BACK_LEAST &&
           is_float_state(&scan->h_init) && is_float_state(&args->dh_final) && is_float_state(&args->dh_init) &&
           find_paces(args);
}

/* The number of chunks that takes the least time of those whose own scratch stays below the size of x. */
static int64_t pick_chunks(const rl_s6_back_args *args, int sms)
{
    const rl_s6_args *scan = &args->scan;
    const int64_t tasks = scan->sequences * scan->blocks, length = args->rows / rl_most(scan->sequences, 1);
    const int64_t chunk = rl_s6_back_chunk_bytes(scan->sequences, scan->channels, scan->states, element_of(args));
    const int64_t room = rl_most(args->rows * scan->channels * element_of(args), RL_S6_BACK_FREE);
    int64_t best = 1, least = rl_s6_back_time(tasks, length, 1, sms);
    for (int64_t chunks = 2; chunks <= rl_least(RL_S6_BACK_TRIED, length / RL_S6_BACK_STEPS); chunks++) {
        if (rl_s6_back_share(length, chunks) * (chunks - 1) >= length) continue; /* the last would have no steps */
        if (chunks * chunk > room) break;
        int64_t time = rl_s6_back_time(tasks, length, chunks, sms);
        if (time >= least) continue;
        least = time;
        best = chunks;
    }
    return best;
}

/* Sequences that a task takes one after the other, so that the sums of parameters' gradients stay small. */
static int64_t pick_run(const rl_s6_back_args *args)
{
    const rl_s6_args *scan = &args->scan;
    int64_t part = rl_most(scan->channels * (scan->states + 2) * element_of(args), 1);
    int64_t room = rl_most(args->rows * scan->channels * element_of(args) / 8, RL_S6_BACK_FREE / 2);
    int64_t pieces = rl_most(1, rl_least(scan->sequences, room / part));
    return rl_most(1, rl_s6_ceil(scan->sequences, pieces));
}

static void cut(rill_context *context, rl_s6_back_args *args)
{
    rl_s6_args *scan = &args->scan;
    scan->block_channels = rl_s6_back_block_channels(scan->group_channels, is_f64(args));
    scan->blocks_per_group = rl_s6_ceil(scan->group_channels, scan->block_channels);
    scan->blocks = scan->blocks_per_group * args->groups;
    scan->panels = scan->states == 0 ? 1 : (int32_t)rl_s6_ceil(scan->states, RL_S6_PANEL);
    args->add_groups = scan->blocks_per_group <= 1;
    scan->chunks = 1;
    /* Where bits must not depend on the number of sequences, time is not cut. */
    if (!args->whole && !context->options.reproducible && scan->blocks > 0)
        scan->chunks = pick_chunks(args, rl_cuda_state_of(context)->sms);
    scan->tasks = scan->sequences * scan->chunks * scan->blocks;
    args->run = scan->chunks > 1 ? 1 : pick_run(args);
    args->pieces = scan->chunks > 1 ? scan->sequences * scan->chunks : rl_s6_ceil(scan->sequences, args->run);
    args->shares = rl_s6_back_shares(args->pieces);
}

static rill_status take_scratch(rill_context *context, rl_s6_back_args *args)
{
    const rl_s6_args *scan = &args->scan;
    const bool split = scan->chunks > 1, inputs = args->dB.data || args->dC.data;
    const size_t element = (size_t)element_of(args), channels = (size_t)scan->channels;
    const size_t matrix = channels * (size_t)scan->states, padded = (size_t)rl_s6_back_matrix(scan);
    const size_t pieces = (size_t)args->pieces;
    const size_t tiles = args->whole ? 0 : (size_t)(args->rows / RL_S6_BACK_STEPS + 1);
    const size_t chunks = args->whole && scan->panels == 1 ? 0 : (size_t)(scan->sequences * scan->chunks);
    const size_t shares = inputs && !args->add_groups ? (size_t)(scan->blocks * args->rows) : 0;
    const struct {
        void **block;
        size_t bytes;
    } blocks[] = {
        {&args->kept, tiles * padded * element},
        {&args->kept_sums, tiles * channels * element},
        {&args->ends, split ? chunks * padded * element : 0},
        {&args->backs, split || scan->panels > 1 ? chunks * padded * element : 0},
        {(void **)&args->step_sums, split ? chunks * channels * sizeof *args->step_sums : 0},
        {(void **)&args->wild, chunks * channels * sizeof *args->wild},
        {(void **)&args->plain, chunks * matrix * sizeof *args->plain},
        {&args->A_parts, pieces * padded * element},
        {&args->D_parts, pieces * channels * element},
        {&args->bias_parts, pieces * channels * element},
        {&args->bc_parts, shares * 2 * (size_t)scan->states * element},
        {(void **)&args->again, has_roles(context, args) ? pieces * (size_t)scan->blocks * sizeof *args->again : 0},
    };
    rill_status status = RILL_OK;
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0] && status == RILL_OK; i++)
        status = rl_workspace_take(context, blocks[i].bytes, blocks[i].block);
    return status;
}

static rill_status launch(rill_context *context, rl_s6_back_args *args, const void *kernel, int64_t blocks,
                          int threads, size_t shared, const char *what)
{
    void *arguments[] = {args};
    if (blocks == 0) return RILL_OK;
    return rl_cuda_launch_early(context, kernel, rl_least(blocks, MOST_BLOCKS), 1, threads, shared, arguments, what);
}

/*
 * Few short sequences: what counts is the number of launches.  The choice depends on the number of sequences, so that
 * bits would too: not where they must not.
 */
static bool is_short(rill_context *context, const rl_s6_back_args *args)
{
    const rl_s6_args *scan = &args->scan;
    const int64_t pairs = args->groups * rl_s6_ceil(scan->group_channels, RL_S6_BACK_SHORT_CHANNELS);
    if (context->options.reproducible || scan->states == 0 || pairs == 0 || scan->length == 0) return false;
    return scan->states <= RL_S6_BACK_SHORT_STATES && scan->length <= rl_s6_back_short_steps(is_f64(args)) &&
           scan->sequences <= RL_S6_BACK_SHORT_ROUNDS * rl_cuda_state_of(context)->sms / pairs;
}

static rill_status take_short_scratch(rill_context *context, rl_s6_back_args *args)
{
    const rl_s6_args *scan = &args->scan;
    const size_t element = (size_t)element_of(args), vectors = (size_t)(scan->sequences * scan->channels);
    const int64_t parts = args->dB.data || args->dC.data ? scan->blocks / args->mates : 0;
    const size_t inputs = (size_t)(parts * args->rows * 2 * scan->states);
    rill_status status = rl_workspace_take(context, vectors * (size_t)scan->states * element, &args->A_parts);
    if (status == RILL_OK) status = rl_workspace_take(context, vectors * element, &args->D_parts);
    if (status == RILL_OK) status = rl_workspace_take(context, vectors * element, &args->bias_parts);
    if (status == RILL_OK && inputs) status = rl_workspace_take(context, inputs * element, &args->bc_parts);
    return status;
}

/* Clusters are of blocks of one sequence and group; they pay only where they spare the second kernel. */
static bool has_mates(const rill_context *context, const rl_s6_args *scan)
{
    return rl_cuda_state_of(context)->multiplies && scan->blocks_per_group % RL_S6_BACK_SHORT_MATES == 0;
}

static rill_status launch_short(rill_context *context, rl_s6_back_args *args)
{
    static const char what[] = "selective_scan_backward: launch of short ones";
    const rl_s6_args *scan = &args->scan;
    const bool f64 = is_f64(args);
    const void *kernel = rl_s6_back_short_kernel(f64, rl_s6_back_all_of_type(args, RILL_F32));
    const size_t shared = rl_s6_back_short_shared(f64, scan->length);
    void *arguments[] = {args};
    if (args->mates > 1 && scan->tasks > 0)
        return rl_cuda_launch_clusters(context, kernel, scan->tasks / args->mates, (unsigned)args->mates,
                                       RL_S6_BACK_SHORT_THREADS, shared, arguments, what);
    return launch(context, args, kernel, scan->tasks, RL_S6_BACK_SHORT_THREADS, shared, what);
}

static rill_status run_short(rill_context *context, rl_s6_back_args *args, rl_cuda_scan_back_left *left)
{
    rl_s6_args *scan = &args->scan;
    const int threads = 128;
    const bool inputs = args->dB.data || args->dC.data;
    scan->chunks = 1;
    scan->blocks_per_group = rl_s6_ceil(scan->group_channels, RL_S6_BACK_SHORT_CHANNELS);
    scan->blocks = scan->blocks_per_group * args->groups;
    scan->tasks = scan->sequences * scan->blocks;
    args->mates = left && inputs && has_mates(context, scan) ? RL_S6_BACK_SHORT_MATES : 1;
    rill_status status = take_short_scratch(context, args);
    if (status == RILL_OK) status = launch_short(context, args);
    if (left && (!inputs || args->mates > 1)) {
        *left = (rl_cuda_scan_back_left){.BC = args->bc_parts,
                                         .A = args->A_parts,
                                         .D = args->D_parts,
                                         .bias = args->bias_parts,
                                         .inputs = scan->blocks / args->mates};
        return status;
    }
    const int64_t numbers =
        (args->bc_parts ? args->groups * args->rows * 2 * scan->states : 0) + scan->channels * (scan->states + 2);
    if (status == RILL_OK)
        status = launch(context, args, rl_s6_back_short_sums_kernel(is_f64(args)), rl_s6_ceil(numbers, threads),
                        threads, 0, "selective_scan_backward: launch of the sums of short ones");
    return status;
}

/* These kernels take more shared memory than one may have unasked. */
cudaError_t rl_cuda_prepare_selective_scan_backward(rl_cuda_state *state)
{
    cudaError_t error = cudaSuccess;
    for (int i = 0; i < 2 * RL_S6_BACK_FORMS && error == cudaSuccess; i++) {
        const bool f64 = i >= RL_S6_BACK_FORMS;
        const rl_s6_back_form form = (rl_s6_back_form)(i % RL_S6_BACK_FORMS);
        const size_t summary = rl_s6_back_summary_shared(f64);
        error = rl_cuda_allow(state, rl_s6_back_walk_kernel(f64, form), rl_s6_back_walk_shared(f64));
        if (error == cudaSuccess && form >= RL_S6_BACK_NEAT_F32)
            error = rl_cuda_allow(state, rl_s6_back_summary_neat_kernel(form, f64),
                                  rl_s6_back_summary_neat_shared(form, f64));
        if (error == cudaSuccess && !f64 && form >= RL_S6_BACK_NEAT_F32 && rl_s6_back_roles_shared() > 0)
            error = rl_cuda_allow(state, rl_s6_back_roles_kernel(form), rl_s6_back_roles_shared());
        if (error == cudaSuccess) error = rl_cuda_allow(state, rl_s6_back_summary_kernel(f64, false, form), summary);
        if (error == cudaSuccess) error = rl_cuda_allow(state, rl_s6_back_summary_kernel(f64, true, form), summary);
        if (error == cudaSuccess)
            error = rl_cuda_allow(state, rl_s6_back_short_kernel(f64, i % 2 == 0),
                                  rl_s6_back_short_shared(f64, rl_s6_back_short_steps(f64)));
    }
    return error;
}

static rill_status launch_summaries(rill_context *context, rl_s6_back_args *args)
{
    static const char what[] = "selective_scan_backward: launch of the summaries";
    const rl_s6_args *scan = &args->scan;
    const rl_s6_back_form form = (rl_s6_back_form)args->form;
    const int threads = scan->block_channels * RL_S6_BACK_SUMMARY_THREADS;
    rl_s6_back_summary_args copied = {.back = *args};
    void *arguments[] = {&copied};
    if (scan->tasks > 0 && rl_s6_back_describe(context, args, &copied.copies)) {
        const bool gated = scan->z.data && args->dy.data;
        return rl_cuda_launch_early(context, rl_s6_back_summary_neat_kernel(form, gated),
                                    rl_least(scan->tasks, MOST_BLOCKS), 1, threads,
                                    rl_s6_back_summary_neat_shared(form, gated), arguments, what);
    }
    return launch(context, args, rl_s6_back_summary_kernel(is_f64(args), scan->chunks > 1, form), scan->tasks,
                  threads, rl_s6_back_summary_shared(is_f64(args)), what);
}

/* A block for each multiprocessor, which takes several tasks at a time. */
static rill_status launch_roles(rill_context *context, rl_s6_back_args *args)
{
    const int64_t tasks = args->pieces * args->scan.blocks;
    return launch(context, args, rl_s6_back_roles_kernel((rl_s6_back_form)args->form),
                  rl_least(tasks, rl_cuda_state_of(context)->sms), (RL_S6_BACK_BLOCKS + 1) * RL_S6_BACK_TEAM,
                  rl_s6_back_roles_shared(), "selective_scan_backward: launch of the roles");
}

/* All but the parameters' and groups' sums. */
static rill_status launch_walks(rill_context *context, rl_s6_back_args *args)
{
    const rl_s6_args *scan = &args->scan;
    const bool f64 = is_f64(args), split = scan->chunks > 1;
    const int threads = scan->block_channels * RL_S6_BACK_CHANNEL_THREADS, carrying = 128;
    const int64_t lanes = scan->sequences * rl_s6_back_matrix(scan) / RL_S6_OWN * (split ? 2 : 1);
    rill_status status = RILL_OK;
    if (!args->whole) status = launch_summaries(context, args);
    if (!args->whole && scan->states > 0 && status == RILL_OK)
        status = launch(context, args, rl_s6_back_carry_kernel(f64), rl_s6_ceil(lanes, carrying), carrying, 0,
                        "selective_scan_backward: launch of the carries");
    if (status == RILL_OK && args->again) status = launch_roles(context, args);
    if (status != RILL_OK) return status;
    const int64_t tasks = args->pieces * scan->blocks, round = rl_cuda_state_of(context)->sms * RL_S6_BACK_BLOCKS;
    /* What the roles leave is little as a rule: no more blocks than run at a time look for it. */
    return launch(context, args, rl_s6_back_walk_kernel(f64, (rl_s6_back_form)args->form),
                  args->again ? rl_least(tasks, round) : tasks, threads, rl_s6_back_walk_shared(f64),
                  "selective_scan_backward: launch");
}

/* One launch: of dB and dC where groups have several blocks, and of what parameters there are. */
static rill_status launch_sums(rill_context *context, rl_s6_back_args *args)
{
    const rl_s6_args *scan = &args->scan;
    const int64_t numbers = args->groups * args->rows * 2 * scan->states;
    const int64_t parameters = scan->channels * (scan->states + 2);
    int64_t blocks = 0;
    args->sum_blocks = 0;
    if ((args->dB.data || args->dC.data) && (!args->add_groups || scan->channels == 0)) {
        args->input_shares = rl_s6_back_input_shares(numbers, scan->blocks_per_group);
        const int64_t threads = numbers / (scan->states % 4 == 0 ? 4 : 1) * args->input_shares;
        args->sum_blocks = rl_least(rl_s6_ceil(threads, RL_S6_BACK_SUM_THREADS), MOST_BLOCKS / 2);
    }
    if (args->dA.data || args->dD.data || args->dbias.data)
        blocks = rl_least(rl_s6_ceil(parameters * args->shares, RL_S6_BACK_SUM_THREADS), MOST_BLOCKS / 2);
    return launch(context, args, rl_s6_back_sums_kernel(is_f64(args)), args->sum_blocks + blocks,
                  RL_S6_BACK_SUM_THREADS, 0, "selective_scan_backward: launch of the sums");
}

static rill_status run_long(rill_context *context, rl_s6_back_args *args)
{
    cut(context, args);
    rill_status status = take_scratch(context, args);
    if (status == RILL_OK) status = launch_walks(context, args);
    if (status == RILL_OK) status = launch_sums(context, args);
    return status;
}

rill_status rl_cuda_selective_scan_backward_but_sums(rill_context *context,
                                                     const rl_selective_scan_backward_problem *problem,
                                                     rl_cuda_scan_back_left *left)
{
    rl_s6_back_args args = rl_s6_back_resolve(problem);
    rl_cuda_scope scope = rl_cuda_enter(context);
    rill_status status = is_short(context, &args) ? run_short(context, &args, left) : run_long(context, &args);
    rl_cuda_leave(context, &scope);
    return status;
}

rill_status rl_cuda_selective_scan_backward(rill_context *context, const rl_selective_scan_backward_problem *problem)
{
    return rl_cuda_selective_scan_backward_but_sums(context, problem, NULL);
}
