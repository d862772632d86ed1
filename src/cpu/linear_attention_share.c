/* Lines shared out among threads. */
#include <omp.h>

#include "linear_attention.h"

enum {
    SLAB = 16,            /* chunks prepared at a time where threads share them */
    SMALL_WORK = 1 << 16, /* elements of states that one thread does in about the time of starting a team */
    GRABS = 16            /* of lines, a thread */
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

static size_t group_size(const rl_attention_need *need, int64_t count, int64_t slab)
{
    return (size_t)count * (need->states_size + (size_t)slab * need->slots_size + need->extra_size);
}

static int64_t lines_at_once(const rl_attention_need *need)
{
    return need->by_line ? 1 : need->lines;
}

static rl_attention_group group_in(const rl_attention_need *need, char *memory, int64_t first, int64_t count,
                                   int64_t slab)
{
    rl_attention_group group = {.first = first, .count = count, .slab = slab, .workers = 1};
    group.states = memory;
    group.slots = group.states + (size_t)count * need->states_size;
    group.extra = group.slots + (size_t)(count * slab) * need->slots_size;
    return group;
}

/* All threads on all lines. */
static void run_shared(const rl_attention_need *need, int threads, char *memory, char *scratch)
{
#pragma omp parallel num_threads(threads)
    {
        rl_attention_group group = group_in(need, memory, 0, lines_at_once(need), SLAB);
        group.count = need->lines;
        group.worker = omp_get_thread_num();
        group.workers = omp_get_num_threads();
        group.scratch = scratch + (size_t)group.worker * need->scratch_size;
        need->job(&group, need->owner);
    }
}

static void run_apart(const rl_attention_need *need, int threads, char *memory, char *scratch)
{
    const int64_t most = (int64_t)threads * GRABS;
    const int64_t run = need->lines > most ? need->lines / most : 1, runs = quotient_up(need->lines, run);
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t task = 0; task < runs; task++)
        for (int64_t line = task * run; line < (task + 1) * run && line < need->lines; line++) {
            const size_t own = (size_t)omp_get_thread_num();
            rl_attention_group group = group_in(need, memory + own * group_size(need, 1, 1), line, 1, 1);
            group.scratch = scratch + own * need->scratch_size;
            need->job(&group, need->owner);
        }
}

rill_status rl_attention_share(rill_context *context, const rl_attention_need *need)
{
    const int threads = need->work < SMALL_WORK ? 1 : context->options.threads;
    const bool shared = wants_shared(need, threads);
    const size_t size =
        shared ? group_size(need, lines_at_once(need), SLAB) : (size_t)threads * group_size(need, 1, 1);
    void *memory, *scratch;
    rill_status status = rl_workspace_take(context, size, &memory);
    if (status == RILL_OK) status = rl_workspace_take(context, (size_t)threads * need->scratch_size, &scratch);
    if (status != RILL_OK) return status;
    if (shared)
        run_shared(need, threads, memory, scratch);
    else
        run_apart(need, threads, memory, scratch);
    return RILL_OK;
}

rl_attention_need rl_attention_need_of(const rl_attention_walk *w)
{
    const int64_t steps = w->sequences > 0 ? w->length * (w->offsets.data ? 1 : w->sequences) + w->sequences : 0;
    return (rl_attention_need){.lines = w->lines,
                               .panels = w->panels,
                               .chunks = w->chunks,
                               .work = steps * w->heads * (w->keys + 1) * (w->values + 1),
                               .states_size = (size_t)(w->members * w->panels) * w->panel_size,
                               .slots_size = (size_t)w->members * w->slot_size,
                               .scratch_size = w->scratch_size};
}

static void walk_whole(rl_attention_group *group, const void *owner)
{
    const rl_attention_walk *w = owner;
    int64_t chunks = w->chunks;
    if (group->count == 1) chunks = rl_attention_line_of(w, group->first).chunks;
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
