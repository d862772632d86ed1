/* Runs of a strip: float64 whose steps are neighbours, read, walked and written in the order of memory. */
#include <float.h>
#include <math.h>

#include "scan_strip.h"

enum {
    AHEAD = 4096,    /* bytes, and as good as more; half of it is slower */
    WARM_STEPS = 512 /* before a run */
};

#define AGREEMENT 0x1p-44 /* as within a run */
#define RUN_PEAK 0x1p12   /* how much less of a peak is to be had than in a tile: by the square of the steps */

bool rl_scan_has_runs(const rl_scan_walk *w)
{
    const rl_scan_job *job = w->job;
    return w->way == RL_SCAN_OVER_TIME && !job->rule.back && job->real_dtype == RILL_F64 && rl_scan_has_columns(job);
}

static rl_scan_run run_of(const rl_scan_walk *w, int64_t t, int64_t steps)
{
    rl_scan_place place = w->place;
    place.t = t, place.rows = place.piece = steps, place.lanes = 1;
    rl_scan_columns columns = rl_scan_columns_of(w->job, &place);
    return (rl_scan_run){.steps = steps,
                         .a = columns.a,
                         .input = columns.input,
                         .out = columns.out,
                         .falling = columns.falling,
                         .a_is_constant = columns.a_is_constant,
                         .past_cache = columns.past_cache,
                         .ahead = columns.falling ? -AHEAD : AHEAD,
                         .state = w->state[0].high[0],
                         .low = w->state[0].low[0]};
}

/*
 * What a run's summary says of the products within blocks: with decays up to 1 they only fall, and with decays up to
 * 2 they were at most 2^64 below the next block's end, and above the last one.
 */
static bool judge_run(const rl_scan_run_summary *run, rl_scan_folding *s)
{
    *s = (rl_scan_folding){.decay = {run->decay},
                           .decay_low = {run->decay_low},
                           .fresh = {run->fresh},
                           .fresh_low = {run->fresh_low},
                           .least = {run->least},
                           .largest = {run->largest},
                           .peak = {run->peak * RUN_PEAK}};
    if (run->largest > 1) s->least[0] *= 0x1p-64;
    return run->largest <= 2;
}

/*
 * The state that enters a run, from the steps before it alone, where their decays let nothing older through: answers
 * whether they seem to.
 */
static bool guess_entry(rl_scan_walk *w, rl_scan_run *run, int64_t t)
{
    const rl_scan_job *job = w->job;
    const int64_t steps[] = {RL_BLOCK_STEPS, WARM_STEPS};
    const double most[] = {0x1p-8, 0x1p-64};
    rl_scan_run_summary s = {0};
    for (int i = 0; i < 2; i++) {
        rl_scan_run before = run_of(w, t - steps[i], steps[i]);
        s = job->wide->summarise_run(&before);
        if (!(s.largest <= 1 && fabs(s.decay) <= most[i] * RL_DECAY_SCALE(false) && fabs(s.fresh) <= DBL_MAX))
            return false;
    }
    run->state = s.fresh;
    run->low = s.fresh_low;
    return true;
}

/*
 * In one pass, from a guess; the state that the tile before hands on, when it comes, must be the same nearly to the
 * last bit, or the run is walked again from that.  What little they differ by is handed on, as far as the run's
 * decays let it through: it may be all that is left where the run's own state cancels.
 */
bool rl_scan_run_ahead(rl_scan_walk *w, int64_t index, int64_t tiles)
{
    const rl_scan_job *job = w->job;
    const int64_t t = index * w->tile_steps;
    rl_scan_run run = run_of(w, t, tiles * w->tile_steps);
    if (job->input.data == job->out.data || t <= WARM_STEPS || !guess_entry(w, &run, t)) return false;
    const double guess = run.state, guess_low = run.low;
    job->wide->walk_run(&run);
    rl_scan_await_state(w, index);
    const double high = w->state[0].high[0], low = w->state[0].low[0];
    double off = ((high - guess) + (low - guess_low)) * run.decay;
    if (!(fabs(high - guess) <= fabs(guess) * AGREEMENT && fabs(off) <= DBL_MAX)) {
        run.state = high;
        run.low = low;
        job->wide->walk_run(&run);
        off = 0;
    }
    w->grows |= rl_scan_grows(job, run.largest);
    w->state[0] = rl_scan_plus(run.state, run.low, off);
    rl_scan_pass_state(w, index + tiles);
    return true;
}

bool rl_scan_run_in_order(rl_scan_walk *w, int64_t index, int64_t tiles)
{
    const rl_scan_job *job = w->job;
    rl_scan_run run = run_of(w, index * w->tile_steps, tiles * w->tile_steps);
    rl_scan_run_summary run_summary = job->wide->summarise_run(&run);
    rl_scan_folding s;
    rl_scan_long end;
    w->grows |= rl_scan_grows(job, run_summary.largest);
    if (!judge_run(&run_summary, &s)) return false;
    rl_scan_await_state(w, index);
    if (!rl_scan_fold(job, &s, 0, w->state, &end)) return false;
    run.state = w->state[0].high[0];
    run.low = w->state[0].low[0];
    run.ahead = 0;
    w->state[0] = end;
    rl_scan_pass_state(w, index + tiles);
    job->wide->walk_run(&run);
    return true;
}

/* Runs are all of the strip but its first and last steps. */
void rl_scan_run_alone(rl_scan_walk *w)
{
    const rl_scan_job *job = w->job;
    const int64_t block = RL_BLOCK_STEPS, length = w->place.s.length;
    const int64_t first = job->h_init.data ? 0 : block, steps = (length - 1 - first) / block * block;
    rl_scan_place place = w->place;
    rl_scan_await_state(w, 0);
    if (first > 0) {
        place.rows = first;
        rl_scan_walk_rest(w, place);
        rl_scan_widen(job, w->state, w->scratch->state);
    }
    rl_scan_run run = run_of(w, first, steps);
    run.exact = true;
    job->wide->walk_run(&run);
    w->state[0] = (rl_scan_long){.high = {run.state}};
    w->grows |= rl_scan_grows(job, run.largest);
    place.t = first + steps;
    place.rows = length - place.t;
    rl_scan_walk_rest(w, place);
    rl_scan_leave(w, &place);
}
