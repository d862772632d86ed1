#include "plausible.h"

#include <stddef.h>
#include <string.h>

/* clang-format off */
#define BATCHES {"batch", {0, 1, 1, 1, 2, 3, 5}, 7, NULL}
#define LENGTHS {"length", {0, 1, 2, 3, 5, 16, 31, 33, 64, 65, 127, 129, 300, 1025, 2049}, 15, NULL}
#define CHANNELS {"channels", {0, 1, 2, 3, 5, 7, 8, 15, 16, 17, 32, 33, 48, 65, 128, 257}, 16, NULL}
#define STATES {"states", {0, 1, 2, 3, 4, 5, 8, 16, 16, 17, 32, 33, 64, 96, 257}, 15, NULL}
/* What to draw where a step costs next to nothing: one long channel, crowds of short sequences, many channels. */
#define CHEAP_SIZES                                                                                                  \
    {"batch", {0, 1, 1, 1, 2, 3, 5, 64, 300}, 9, NULL},                                                              \
    {"length", {0, 1, 2, 3, 4, 5, 16, 31, 33, 64, 65, 127, 129, 300, 1025, 2049, 4096, 10007, 65537, 100003}, 20,    \
     NULL},                                                                                                          \
    {"channels", {0, 1, 1, 2, 3, 3, 5, 7, 8, 15, 16, 17, 32, 33, 64, 65, 128, 257, 300, 1000}, 20, NULL}
/* Decays that keep a long sequence in range; the last ones change sign. */
#define CHEAP_DECAYS                                                                                                 \
    {"a", DRAW_NORMAL, 0.8, 0.15, DECAY_ITSELF, NULL, false},                                                        \
    {"a", DRAW_UNIFORM, 0.5, 0.5, DECAY_ITSELF, NULL, false},                                                        \
    {"a", DRAW_UNIFORM, 0, 1, DECAY_ITSELF, NULL, false}
/* No lower limit, an upper one, both, a narrow band, a band around 0. */
#define CLAMPS {{"delta_min", "delta_max"}, {{0, 0}, {0, 0}, {0, 0.1}, {0.01, 0}, {0.001, 0.1}, {-0.05, 0.05}}, 6}

static const plausible table[] = {
    {.op = "scan",
     .values = {
         CHEAP_DECAYS,
         /* Not centered, as B and C below. */
         {"b", DRAW_NORMAL, 0.3, 1, DECAY_NONE, NULL, false},
         {"h_init", DRAW_NORMAL, 0, 2, DECAY_NONE, NULL, false}},
     .sizes = {CHEAP_SIZES},
     .aliases = {{"h", "b"}, {"h_final", "h_init"}},
     .states = {{"h_init", "h_final"}},
     .regimes = REGIME_COUNT,
     .cheap_steps = true,
     .unread = "h_init"},

    {.op = "scan_backward",
     .values = {
         CHEAP_DECAYS,
         {"h", DRAW_NORMAL, 0.3, 1, DECAY_NONE, NULL, false},
         {"h_init", DRAW_NORMAL, 0, 2, DECAY_NONE, NULL, false},
         {"dh", DRAW_NORMAL, 0.3, 1, DECAY_NONE, NULL, false},
         {"dh_final", DRAW_NORMAL, 0, 2, DECAY_NONE, NULL, false}},
     .sizes = {CHEAP_SIZES},
     .states = {{"dh_final", "dh_init"}},
     .regimes = REGIME_COUNT,
     .cheap_steps = true,
     .unread = "h_init",
     .needs = {"da", "h"},
     .reaches = {{"h", "da", 1}, {"h_init", "da", 0}},
     .resumes = {"h_init", "h"}},

    {.op = "selective_scan",
     .values = {
         {"x", DRAW_NORMAL, 0, 1, DECAY_NONE, NULL, false},
         /* Raw step sizes that softplus takes, its linear part and its tail too. */
         {"delta", DRAW_NORMAL, -1, 1, DECAY_NONE, "delta_softplus", true},
         {"delta", DRAW_NORMAL, -3, 2, DECAY_NONE, "delta_softplus", true},
         {"delta", DRAW_UNIFORM, 0, 30, DECAY_NONE, "delta_softplus", true},
         /* Without it they are used as they are: positive, mostly. */
         {"delta", DRAW_UNIFORM, 0.5, 0.5, DECAY_NONE, "delta_softplus", false},
         {"delta", DRAW_UNIFORM, 0.04, 0.05, DECAY_NONE, "delta_softplus", false},
         {"delta_bias", DRAW_UNIFORM, 0, 0.5, DECAY_NONE, "delta_softplus", true},
         {"delta_bias", DRAW_UNIFORM, 0.1, 0.1, DECAY_NONE, "delta_softplus", false},
         {"A", DRAW_NEGATIVE, 0, 1, DECAY_FACTOR, NULL, false},
         /* Not centered: sums that cancel to nothing say more about luck than about a backend. */
         {"B", DRAW_NORMAL, 0.3, 1, DECAY_NONE, NULL, false},
         {"C", DRAW_NORMAL, 0.3, 1, DECAY_NONE, NULL, false},
         {"D", DRAW_NORMAL, 1, 0.5, DECAY_NONE, NULL, false},
         {"z", DRAW_NORMAL, 0, 2, DECAY_NONE, NULL, false},
         {"h_init", DRAW_NORMAL, 0, 2, DECAY_NONE, NULL, false}},
     .sizes = {BATCHES, LENGTHS, CHANNELS, STATES, {"groups", {1, 1, 1, 2, 3, 4, 5, 8}, 8, "channels"}},
     .aliases = {{"y", "x"}, {"h_final", "h_init"}},
     .options = {CLAMPS},
     .states = {{"h_init", "h_final"}},
     .regimes = REGIMES_OF_EXPONENTIALS},

    {.op = "selective_layer",
     .values = {
         {"x", DRAW_NORMAL, 0, 1, DECAY_NONE, NULL, false},
         {"W_delta", DRAW_MATRIX, 0, 1, DECAY_NONE, NULL, false},
         {"W_delta_down", DRAW_MATRIX, 0, 1, DECAY_NONE, NULL, false},
         {"W_B", DRAW_MATRIX, 0, 1, DECAY_NONE, NULL, false},
         {"W_C", DRAW_MATRIX, 0, 1, DECAY_NONE, NULL, false},
         {"A_log", DRAW_NORMAL, 0, 1, DECAY_LOG, NULL, false},
         {"b_delta", DRAW_UNIFORM, -1, 2, DECAY_NONE, NULL, false},
         {"D", DRAW_NORMAL, 1, 0.5, DECAY_NONE, NULL, false},
         {"z", DRAW_NORMAL, 0, 2, DECAY_NONE, NULL, false},
         {"h_init", DRAW_NORMAL, 0, 2, DECAY_NONE, NULL, false}},
     .sizes = {BATCHES, LENGTHS, CHANNELS, STATES, {"rank", {0, 1, 2, 3, 4, 7, 8, 16, 17, 33}, 10, NULL}},
     .aliases = {{"h_final", "h_init"}},
     .options = {CLAMPS},
     .mixed = {"x"},
     .states = {{"h_init", "h_final"}},
     .regimes = REGIMES_OF_EXPONENTIALS},
};
/* clang-format on */

const plausible *plausible_find(const char *op)
{
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (strcmp(table[i].op, op) == 0) return &table[i];
    return NULL;
}
