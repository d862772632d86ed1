/*
 * Summaries of tiles, and when a summary may stand for the walk that it summarises.
 *
 * The state that leaves is e' = P e + S.  Rounding made P and S; in P e its share is at most about 2 n u |P e| over n
 * steps (u: the unit roundoff of double), for prefix and suffix products multiply to P.  Where states are double, P,
 * S and the states that are handed on have a low part each, which leaves about (n u)^2 of that: a constant decay's
 * rounding errors would add up from tile to tile, while the loop's own may happen to cancel.  So e' is as good as the
 * loop's where |P e| is not much larger than |e'|; where it is, the terms cancel, and the loop, which never forms the
 * large numbers, may be better.  That holds if P and S themselves are sound:
 *   - a running product that overflows stays infinite or turns NaN (the scales in kernels/scan.h make states that the
 *     loop could overflow on show here too, given a bounded e);
 *   - one that leaves the normal range may have lost its bits and grown again: then P is not used, but if no decay is
 *     above 1, so that P cannot have grown, and even its bound times e is nothing beside S;
 *   - a reset drops e whatever it is: S is then the loop's walk from the reset on;
 *   - S has errors of the size of the largest state on the way from zero, times the decays after it (its peak): where
 *     e' is far smaller than that, they would show.
 * Of a complex number either part must be so by itself, for the loop rounds each by itself.
 * In all other cases the piece is walked, in the loop's order and precision, to find the state that leaves it.
 *
 * Growth makes much of little: decays above 1 multiply whatever e' is off, however little that was.  A float state is
 * rounded from double when it is handed on, so that where the exact state is a float, it is that float; if decays
 * within the piece have not multiplied S's own rounding errors too far: the largest product of a piece's last decays
 * is P over the least running product.  A channel of double with decays above 1 is left to the loop (rl_scan_grows).
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "scan_fold.h"

/*
 * How often |P e| may be |e'|, which leaves at most 2^-58 of it where n is 16384; and the largest |e|: with the
 * scales, no state on the way overflows unseen.
 */
#define NARROW_CANCELS 0x1p16
#define WIDE_CANCELS 0x1p20
#define NARROW_GROWTH 0x1p16
/*
 * How much larger than |e'| a state on the way from zero may have been, times the decays that follow it: what its
 * rounding left is then at most 2^-27 of e' over 256 steps, or 2^-58 where numbers are pairs.  The same goes for
 * |P| |e| beside each part of a complex e' where P turns: each part of P has errors of the size of both.
 */
#define NARROW_ROOM 0x1p18
#define WIDE_ROOM 0x1p32
#define NOISE 0x1p-78 /* the errors of pairs, (n u)^2 over as many steps as a run has, beside what has made them */
#define NEGLIGIBLE 0x1p-60 /* P e beside S: its high part stays the loop's own number, the low one takes it */
#define FORGOTTEN 0x1p-110 /* P e beside S, where only a bound of it is known: what leaves is then S */
#define NARROW_ENTRY 0x1p62
#define WIDE_ENTRY 0x1p400

/* Answers how many there are: a vector of float is two of double. */
int rl_scan_parts_of_summary(const rl_scan_job *job, const rl_scan_tile *tile, rl_scan_folding *s,
                             rl_scan_summary part[2])
{
    const int64_t lanes = job->lanes * job->parts, at_once = job->narrow ? lanes / 2 : lanes;
    for (int64_t lane = 0; lane < lanes; lane += at_once)
        part[lane / at_once] = (rl_scan_summary){.rule = job->rule,
                                                 .narrow = job->narrow,
                                                 .rows = tile->rows,
                                                 .pitch = lanes,
                                                 .a = (const char *)tile->a + (size_t)lane * job->real_size,
                                                 .input = (const char *)tile->input + (size_t)lane * job->real_size,
                                                 .decay = s->decay + lane,
                                                 .decay_low = s->decay_low + lane,
                                                 .fresh = s->fresh + lane,
                                                 .fresh_low = s->fresh_low + lane,
                                                 .least = s->least + lane,
                                                 .largest = s->largest + lane,
                                                 .peak = s->peak + lane,
                                                 .reset = s->reset + lane,
                                                 .turns = s->turns + lane};
    return job->narrow ? 2 : 1;
}

void rl_scan_summarise_tile(const rl_scan_job *job, const rl_scan_tile *tile, rl_scan_folding *s)
{
    rl_scan_summary part[2];
    const int count = rl_scan_parts_of_summary(job, tile, s, part);
    for (int i = 0; i < count; i++) job->wide->summarise(&part[i]);
}

static double size_of(const double *x, int64_t parts)
{
    return parts == 2 ? fabs(x[0]) + fabs(x[1]) : fabs(x[0]);
}

/* To the type that states have. */
static double round_state(const rl_scan_job *job, double x)
{
    return job->narrow ? (double)(float)x : x;
}

/* Numbers to twice the bits. */
typedef struct longer {
    double high, low;
} longer;

static longer product_of(longer x, longer y)
{
    double high = x.high * y.high;
    return (longer){high, fma(x.high, y.high, -high) + (x.high * y.low + x.low * y.high)};
}

static longer sum_of(longer x, longer y)
{
    double sum = x.high + y.high, part = sum - x.high;
    double low = (x.high - (sum - part)) + (y.high - part) + (x.low + y.low), high = sum + low;
    return (longer){high, low - (high - sum)};
}

rl_scan_long rl_scan_plus(double high, double low, double more)
{
    longer sum = sum_of((longer){high, low}, (longer){more, 0});
    return (rl_scan_long){.high = {sum.high}, .low = {fabs(sum.low) <= DBL_MAX ? sum.low : 0}};
}

/* A low part that may be errors alone, of numbers of that size, is dropped: an exact state has none. */
static void put_part(const rl_scan_job *job, rl_scan_long *to, int part, longer x, double size)
{
    to->high[part] = round_state(job, x.high);
    to->low[part] = !job->narrow && fabs(x.low) <= DBL_MAX && !(fabs(x.low) <= NOISE * size) ? x.low : 0;
}

/* P e, the sizes of the terms in each part, and of P and e as a whole where P turns the one part into the other. */
typedef struct decayed {
    longer part[2];
    double terms[2], whole;
} decayed;

static decayed decayed_of(const rl_scan_job *job, const rl_scan_folding *s, int64_t lane, const rl_scan_long *e)
{
    const double unit = 1 / RL_DECAY_SCALE(job->narrow);
    const longer re = {s->decay[lane] * unit, s->decay_low[lane] * unit}, x = {e->high[0], e->low[0]};
    decayed d = {.part = {product_of(re, x)}};
    d.terms[0] = fabs(d.part[0].high);
    if (job->parts == 1) return d;
    const longer im = {s->decay[lane + 1] * unit, s->decay_low[lane + 1] * unit}, y = {e->high[1], e->low[1]};
    const longer other = product_of((longer){-im.high, -im.low}, y), own = product_of(re, y),
                 from_re = product_of(im, x);
    d.terms[0] += fabs(other.high);
    d.terms[1] = fabs(own.high) + fabs(from_re.high);
    d.part[0] = sum_of(d.part[0], other);
    d.part[1] = sum_of(own, from_re);
    if (re.high != 0 && im.high != 0) d.whole = (fabs(re.high) + fabs(im.high)) * (fabs(x.high) + fabs(y.high));
    return d;
}

static longer fresh_of(const rl_scan_job *job, const rl_scan_folding *s, int64_t lane)
{
    const double unit = 1 / RL_FRESH_SCALE(job->narrow);
    return (longer){s->fresh[lane] * unit, s->fresh_low[lane] * unit};
}

/* The largest state on the way from zero, as far as it is felt at the end. */
static double peak_of(const rl_scan_job *job, const rl_scan_folding *s, int64_t lane)
{
    return s->peak[lane] * (1 / RL_FRESH_SCALE(job->narrow));
}

/* Whether what leaves the part is large enough for the errors that the states on the way have left in S. */
static bool is_steady(const rl_scan_job *job, const rl_scan_folding *s, int64_t lane, longer left)
{
    return peak_of(job, s, lane) / (job->narrow ? NARROW_ROOM : WIDE_ROOM) <= fabs(left.high);
}

/* Of a part of e', with what is left of e in that part: whether it may be, and e' itself in *S. */
static bool add_decayed(const rl_scan_job *job, const rl_scan_folding *s, int64_t lane, const decayed *d, int part,
                        longer *S)
{
    const double cancels = job->narrow ? NARROW_CANCELS : WIDE_CANCELS, room = job->narrow ? NARROW_ROOM : WIDE_ROOM;
    const double terms = d->terms[part];
    if (!job->narrow && terms <= NEGLIGIBLE * fabs(S->high))
        S->low += d->part[part].high;
    else
        *S = sum_of(d->part[part], *S);
    const double size = fabs(round_state(job, S->high));
    return size <= DBL_MAX && terms <= cancels * size && d->whole <= room * size &&
           is_steady(job, s, lane + part, *S);
}

/* Where the product of decays vanished: whether what it leaves of e is nothing beside S, part by part. */
static bool vanishes(const rl_scan_job *job, const rl_scan_folding *s, int64_t lane, const rl_scan_long *e,
                     const longer *S)
{
    const double most = job->narrow ? 0 : RL_LEAST_DECAY / RL_DECAY_SCALE(false) * 2;
    const double entry = size_of(e->high, job->parts);
    bool none = s->largest[lane] <= 1;
    for (int i = 0; i < job->parts; i++) {
        double reaches = job->parts == 2 && s->turns[lane] == 0 ? fabs(e->high[i]) : entry;
        none &= most * reaches <= FORGOTTEN * fabs(S[i].high);
    }
    return none;
}

bool rl_scan_fold(const rl_scan_job *job, const rl_scan_folding *s, int64_t lane, const rl_scan_long *e,
                  rl_scan_long *end)
{
    const double entry_most = job->narrow ? NARROW_ENTRY : WIDE_ENTRY;
    const int parts = (int)job->parts;
    longer S[2] = {{0}};
    bool steady = true, good = true;
    for (int i = 0; i < parts; i++) {
        S[i] = fresh_of(job, s, lane + i);
        put_part(job, end, i, S[i], peak_of(job, s, lane + i));
        steady &= is_steady(job, s, lane + i, S[i]);
    }
    double fresh = size_of(end->high, parts), entry = size_of(e->high, parts),
           decay = size_of(s->decay + lane, parts);
    if (s->reset[lane] != 0) return steady || !(fresh <= DBL_MAX);
    if (!(fresh <= DBL_MAX && decay <= DBL_MAX && entry <= entry_most)) return false;
    if (entry == 0) return steady;
    if (!(s->least[lane] >= RL_LEAST_DECAY)) return steady && vanishes(job, s, lane, e, S);
    if (job->narrow && decay > NARROW_GROWTH * s->least[lane]) return false;
    const decayed d = decayed_of(job, s, lane, e);
    for (int i = 0; i < parts; i++) {
        good &= add_decayed(job, s, lane, &d, i, &S[i]);
        put_part(job, end, i, S[i], peak_of(job, s, lane + i) + d.terms[i] + d.whole);
    }
    return good;
}

/* The common case of a real lane, in few operations: no product came near 0, and the terms do not cancel. */
static bool fold_plainly(const rl_scan_job *job, const rl_scan_folding *s, int64_t lane, rl_scan_long *state)
{
    const double most = job->narrow ? NARROW_ENTRY : WIDE_ENTRY;
    const decayed d = decayed_of(job, s, lane, state);
    longer left = fresh_of(job, s, lane);
    bool sound = s->least[lane] >= RL_LEAST_DECAY && fabs(s->decay[lane]) <= DBL_MAX && fabs(left.high) <= DBL_MAX;
    sound &= !job->narrow || fabs(s->decay[lane]) <= NARROW_GROWTH * s->least[lane];
    sound &= fabs(state->high[0]) <= most && add_decayed(job, s, lane, &d, 0, &left);
    if (sound) put_part(job, state, 0, left, peak_of(job, s, lane) + d.terms[0]);
    return sound;
}

static void pass_lane(const rl_scan_job *job, const rl_scan_tile *tile, const rl_scan_folding *s, int64_t lane,
                      rl_scan_long *state)
{
    rl_scan_long end = {{0}, {0}};
    if (job->parts == 1 && fold_plainly(job, s, lane, state)) return;
    if (!rl_scan_fold(job, s, lane, state, &end)) {
        end = *state;
        job->kernels->walk_lane(tile, lane, end.high, end.low);
    }
    *state = end;
}

void rl_scan_pass_through(const rl_scan_job *job, rl_scan_way way, const rl_scan_tile *tile, rl_scan_folding *s,
                          rl_scan_long *state)
{
    for (int64_t i = 0, lane = 0; i < job->lanes; i++, lane += job->parts) {
        rl_scan_long *own = way == RL_SCAN_OVER_TIME ? state : state + i;
        memcpy(s->entry + lane, own->high, sizeof(double) * (size_t)job->parts);
        pass_lane(job, tile, s, lane, own);
    }
}

/* Rounding that makes a decay of modulus 1 a little larger is no growth: (1 + 2^-40)^n stays small. */
bool rl_scan_grows(const rl_scan_job *job, double largest)
{
    return !job->narrow && !(largest <= 1 + 0x1p-40);
}

bool rl_scan_tile_grows(const rl_scan_job *job, const rl_scan_folding *s)
{
    bool grows = false;
    for (int64_t lane = 0; lane < job->lanes * job->parts; lane++) grows |= rl_scan_grows(job, s->largest[lane]);
    return grows;
}
