/* Lines shared out among threads. */
#include <omp.h>

#include "../counts.h"
#include "linear_attention.h"

enum {
    SLAB = 128, /* chunks prepared at a time where threads share them, of all lines */
    LEAST_SLAB = 8,
    SMALL_WORK = 1 << 16, /* elements of states that one thread does in about the time of starting a team */
    GRABS = 16,           /* of tasks, a thread */
    RESIDENT_BYTES = 512 << 10
};

/*
 * Into how many parts to cut the lines, 0 for all threads on all lines.  A thread prepares every chunk of which it
 * walks a part, so parts must win time by more than an eighth; sharing has threads wait for each other, on a busy
 * machine for long, and must win more than a quarter.
 */
static int64_t choose_parts(const rl_attention_walk *w, int threads)
{
    const int64_t panel_cost = RL_PANEL_VECTORS * w->vector_cost;
    int64_t best = 1, time = rl_quotient_up(w->lines, threads) * (w->chunk_cost + w->panels * panel_cost);
    for (int64_t parts = 2; parts <= threads && parts <= w->panels; parts++) {
        int64_t panels = rl_quotient_up(w->panels, parts);
        int64_t other = rl_quotient_up(w->lines * parts, threads) * (w->chunk_cost + panels * panel_cost);
        if (other * 8 < time * 7) best = parts, time = other;
    }
    const int64_t shared = rl_quotient_up(w->lines * w->chunk_cost, threads) +
                           rl_quotient_up(w->lines * w->panels, threads) * panel_cost;
    return shared * 4 < time * 3 ? 0 : best;
}

/*
 * Lines that one thread walks side by side: their states stay in the second-level cache, and what is read of them
 * lies together.  As many for each task, as near as that goes.
 */
static int64_t lines_apart(const rl_attention_need *need)
{
    const int64_t units = need->lines * need->parts, threads = need->threads;
    int64_t fit = need->states_size ? RESIDENT_BYTES / (int64_t)need->states_size : 1;
    if (fit > need->neighbours) fit = need->neighbours;
    if (fit < 1) fit = 1;
    return rl_least(need->lines, rl_quotient_up(units, threads * rl_quotient_up(units, threads * fit)));
}

void rl_attention_meet(const rl_attention_group *group)
{
    if (group->workers > 1) {
#pragma omp barrier
    }
}

static size_t group_size(const rl_attention_need *need, int64_t lines, int64_t slots)
{
    return (size_t)lines * need->states_size + (size_t)slots * need->slots_size + need->extra_size;
}

static rl_attention_group group_in(const rl_attention_need *need, char *memory, int64_t lines, int64_t slots)
{
    rl_attention_group group = {.slab = 1, .panels = need->panels, .workers = 1, .states = memory};
    group.slots = group.states + (size_t)lines * need->states_size;
    group.extra = group.slots + (size_t)slots * need->slots_size;
    return group;
}

/* All threads on all lines. */
static rill_status run_shared(rill_context *context, const rl_attention_need *need)
{
    const int threads = need->threads;
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

/* Each thread on its own: parts of the same lines one after the other, so that threads read the same at one time. */
static rill_status run_apart(rill_context *context, const rl_attention_need *need)
{
    const int64_t lines = need->by_line ? 1 : lines_apart(need), parts = need->parts;
    const int64_t tasks = rl_quotient_up(need->lines, lines) * parts;
    const int threads = (int)rl_least(need->threads, tasks);
    const size_t size = group_size(need, lines, 1);
    const int64_t most = (int64_t)threads * GRABS, run = tasks > most ? tasks / most : 1;
    void *memory, *scratch;
    rill_status status = rl_workspace_take(context, (size_t)threads * size, &memory);
    if (status == RILL_OK) status = rl_workspace_take(context, (size_t)threads * need->scratch_size, &scratch);
    if (status != RILL_OK) return status;
#pragma omp parallel for num_threads(threads) schedule(dynamic, run)
    for (int64_t task = 0; task < tasks; task++) {
        const size_t own = (size_t)omp_get_thread_num();
        const int64_t part = task % parts;
        rl_attention_group group = group_in(need, (char *)memory + own * size, lines, 1);
        group.first = task / parts * lines;
        group.count = rl_least(need->lines - group.first, lines);
        group.first_panel = need->panels * part / parts;
        group.panels = need->panels * (part + 1) / parts - group.first_panel;
        group.scratch = (char *)scratch + own * need->scratch_size;
        need->job(&group, need->owner);
    }
    return RILL_OK;
}

rill_status rl_attention_share(rill_context *context, const rl_attention_need *need)
{
    return need->parts ? run_apart(context, need) : run_shared(context, need);
}

rl_attention_need rl_attention_need_of(const rill_context *context, const rl_attention_walk *w)
{
    const int64_t steps = w->sequences > 0 ? w->length * (w->offsets.data ? 1 : w->sequences) + w->sequences : 0;
    const int64_t work = steps * w->heads * (w->keys + 1) * (w->values + 1);
    const int threads = work < SMALL_WORK ? 1 : context->options.threads;
    const int64_t parts = choose_parts(w, threads);
    return (rl_attention_need){.lines = w->lines,
                               .panels = w->panels,
                               .chunks = w->chunks,
                               .neighbours = w->heads / w->members,
                               .threads = threads,
                               .parts = parts,
                               .states_size = (size_t)(w->members * rl_quotient_up(w->panels, parts ? parts : 1)) *
                                              w->panel_size,
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
    rl_attention_need need = rl_attention_need_of(context, w);
    need.job = walk_whole;
    need.owner = w;
    return need.lines > 0 && need.panels > 0 ? rl_attention_share(context, &need) : RILL_OK;
}
