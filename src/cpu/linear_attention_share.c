/* Lines shared out among threads. */
#include <omp.h>

#include "linear_attention.h"

enum {
    SLAB = 128, /* chunks prepared at a time where threads share them, of all lines */
    LEAST_SLAB = 8,
    SMALL_WORK = 1 << 16, /* elements of states that one thread does in about the time of starting a team */
    GRABS = 16,           /* of tasks, a thread */
    RESIDENT_BYTES = 512 << 10
};

static int64_t quotient_up(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

/* One thread a line would leave threads idle for more than an eighth of the time. */
static bool wants_shared(const rl_attention_need *need, int threads)
{
    return threads > 1 && need->panels > 1 && quotient_up(need->lines, threads) * threads * 7 > need->lines * 8;
}

/*
 * Lines that one thread walks side by side: their states stay in the second-level cache, and what is read of them
 * lies together.  As many for each task, as near as that goes.
 */
static int64_t lines_apart(const rl_attention_need *need, int threads)
{
    int64_t fit = need->states_size ? RESIDENT_BYTES / (int64_t)need->states_size : 1;
    if (fit > need->neighbours) fit = need->neighbours;
    if (fit < 1) fit = 1;
    return quotient_up(need->lines, threads * quotient_up(need->lines, threads * fit));
}

static size_t group_size(const rl_attention_need *need, int64_t lines, int64_t slots)
{
    return (size_t)lines * need->states_size + (size_t)slots * need->slots_size + need->extra_size;
}

static rl_attention_group group_in(const rl_attention_need *need, char *memory, int64_t lines, int64_t slots)
{
    rl_attention_group group = {.slab = 1, .workers = 1, .states = memory};
    group.slots = group.states + (size_t)lines * need->states_size;
    group.extra = group.slots + (size_t)slots * need->slots_size;
    return group;
}

/* All threads on all lines. */
static rill_status run_shared(rill_context *context, const rl_attention_need *need, int threads)
{
    const int64_t lines = need->by_line ? 1 : need->lines;
    const int64_t slab = SLAB / lines > LEAST_SLAB ? SLAB / lines : LEAST_SLAB;
    void *memory, *scratch;
    rill_status status = rl_workspace_take(context, group_size(need, lines, lines * slab), &memory);
    if (status == RILL_OK) status = rl_workspace_take(context, (size_t)threads * need->scratch_size, &scratch);
    if (status != RILL_OK) return status;
#pragma omp parallel num_threads(threads)
    {
        rl_attention_group group = group_in(need, memory, lines, lines * slab);
        group.count = need->lines;
        group.slab = slab;
        group.worker = omp_get_thread_num();
        group.workers = omp_get_num_threads();
        group.scratch = (char *)scratch + (size_t)group.worker * need->scratch_size;
        need->job(&group, need->owner);
    }
    return RILL_OK;
}

static rill_status run_apart(rill_context *context, const rl_attention_need *need, int threads)
{
    const int64_t lines = need->by_line ? 1 : lines_apart(need, threads), tasks = quotient_up(need->lines, lines);
    const size_t size = group_size(need, lines, 1);
    const int64_t most = (int64_t)threads * GRABS, run = tasks > most ? tasks / most : 1;
    void *memory, *scratch;
    rill_status status = rl_workspace_take(context, (size_t)threads * size, &memory);
    if (status == RILL_OK) status = rl_workspace_take(context, (size_t)threads * need->scratch_size, &scratch);
    if (status != RILL_OK) return status;
#pragma omp parallel for num_threads(threads) schedule(dynamic, run)
    for (int64_t task = 0; task < tasks; task++) {
        const size_t own = (size_t)omp_get_thread_num();
        rl_attention_group group = group_in(need, (char *)memory + own * size, lines, 1);
        group.first = task * lines;
        group.count = need->lines - group.first < lines ? need->lines - group.first : lines;
        group.scratch = (char *)scratch + own * need->scratch_size;
        need->job(&group, need->owner);
    }
    return RILL_OK;
}

rill_status rl_attention_share(rill_context *context, const rl_attention_need *need)
{
    const int threads = need->work < SMALL_WORK ? 1 : context->options.threads;
    return wants_shared(need, threads) ? run_shared(context, need, threads) : run_apart(context, need, threads);
}

rl_attention_need rl_attention_need_of(const rl_attention_walk *w)
{
    const int64_t steps = w->sequences > 0 ? w->length * (w->offsets.data ? 1 : w->sequences) + w->sequences : 0;
    return (rl_attention_need){.lines = w->lines,
                               .panels = w->panels,
                               .chunks = w->chunks,
                               .neighbours = w->heads / w->members,
                               .work = steps * w->heads * (w->keys + 1) * (w->values + 1),
                               .states_size = (size_t)(w->members * w->panels) * w->panel_size,
                               .slots_size = (size_t)w->members * w->slot_size,
                               .scratch_size = w->scratch_size};
}

static void walk_whole(rl_attention_group *group, const void *owner)
{
    const rl_attention_walk *w = owner;
    int64_t chunks = 0;
    for (int64_t i = 0; i < group->count; i++) {
        const int64_t own = rl_attention_line_of(w, group->first + i).chunks;
        if (own > chunks) chunks = own;
    }
    rl_attention_load_states(w, group);
    rl_attention_walk_chunks(w, group, 0, chunks);
    rl_attention_store_states(w, group);
}

rill_status rl_attention_run(rill_context *context, rl_attention_walk *w)
{
    rl_attention_plan(w);
    rl_attention_need need = rl_attention_need_of(w);
    need.job = walk_whole;
    need.owner = w;
    return need.lines > 0 && need.panels > 0 ? rl_attention_share(context, &need) : RILL_OK;
}
