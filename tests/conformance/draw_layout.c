#include "draw_layout.h"

layout draw_layout(rng *r, const case_tensor *t, int rank, bool may_broadcast)
{
    layout how = layout_contiguous();
    how.lead = rng_below(r, 16);
    if (rng_chance(r, 0.4)) return how;
    bool permute = rng_chance(r, 0.4), pad = rng_chance(r, 0.6), reverse = rng_chance(r, 0.2);
    for (int i = rank - 1; permute && i > 0; i--) {
        int k = (int)rng_below(r, i + 1), swap = how.order[i];
        how.order[i] = how.order[k];
        how.order[k] = swap;
    }
    if (rng_chance(r, 0.2)) how.step = 2 + rng_below(r, 2);
    for (int axis = 0; axis < rank; axis++) {
        if (pad && rng_chance(r, 0.7)) how.pad[axis] = rng_below(r, 4);
        if (reverse && t->shape[axis] > 1) how.reversed[axis] = rng_chance(r, 0.5);
    }
    if (may_broadcast && rank > 0 && rng_chance(r, 0.25))
        for (int axis = 0; axis < rank; axis++) how.broadcast[axis] = rng_chance(r, 0.4);
    return how;
}

/* Time or channels as the fastest axis. */
static void set_order(layout *how, int time, int channel, bool time_last)
{
    for (int k = 0; k < RILL_MAX_RANK; k++) how->order[k] = k;
    if (time_last) how->order[time] = channel, how->order[channel] = time;
}

/* One order of axes for all tensors by time: time the fastest, or channels; or each its own. */
static void share_order(rng *r, test_case *c)
{
    int64_t pick = rng_below(r, 3);
    for (int i = 0; i < c->op->tensor_count && pick < 2; i++) {
        int time = op_tensor_axis(&c->op->tensors[i], "length"),
            channel = op_tensor_axis(&c->op->tensors[i], "channels");
        if (time >= 0 && channel >= 0) set_order(&c->tensors[i].how, time, channel, pick == 0);
    }
}

/* Whatever wants aligned rows finds them. */
static void arrange(rng *r, test_case *c, arrangement lie)
{
    bool one_type = rng_chance(r, 0.7);
    for (int i = 0; i < c->op->tensor_count; i++) {
        const op_tensor *t = &c->op->tensors[i];
        case_tensor *out = &c->tensors[i];
        int time = op_tensor_axis(t, "length"), channel = op_tensor_axis(t, "channels");
        if (time < 0 || channel < 0) continue;
        out->how = layout_contiguous();
        out->how.align = 16;
        set_order(&out->how, time, channel, lie == ARRANGED_TIME_LAST);
        int fastest = lie == ARRANGED_TIME_LAST ? time : channel;
        if (out->shape[fastest] > 1) out->how.pad[fastest] = 15 - (out->shape[fastest] - 1) % 16;
        if (t->kind == OP_GRADIENT && one_type) out->dtype = c->activations;
    }
}

void draw_arrangement(rng *r, test_case *c, const draw_limits *limits)
{
    arrangement lie = limits->lie;
    if (limits->plain) {
        c->time_last = rng_chance(r, 0.5);
        return;
    }
    if (!limits->arranged) lie = rng_chance(r, 0.5) ? ARRANGED_ANYHOW : (arrangement)rng_below(r, 3);
    if (lie == ARRANGED_ANYHOW)
        share_order(r, c);
    else
        arrange(r, c, lie);
}

void draw_decays(rng *r, test_case *c, const draw_limits *limits)
{
    for (int i = 0; i < c->op->tensor_count; i++) {
        case_tensor *decay = &c->tensors[i];
        int time = op_tensor_axis(&c->op->tensors[i], "length"),
            channel = op_tensor_axis(&c->op->tensors[i], "channels");
        if (channel < 0) channel = op_tensor_axis(&c->op->tensors[i], "heads");
        bool by_step = decay->rule && (decay->rule->decay == DECAY_ITSELF || decay->rule->decay == DECAY_EXPONENT);
        if (!by_step || time < 0 || channel < 0) continue;
        if (!limits->plain && rng_chance(r, 0.3)) {
            int64_t pick = rng_below(r, 4);
            decay->how.broadcast[0] = pick < 3;
            decay->how.broadcast[time] = pick != 2;
            decay->how.broadcast[channel] = pick != 1;
        }
        bool unread = c->rules->unread && !c->tensors[case_tensor_index(c, c->rules->unread)].given;
        decay->unread_first = unread && !decay->how.broadcast[time] && rng_chance(r, 0.3);
    }
}
