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
/* The same as factors of a state, or as their logarithms. */
#define GATES                                                                                                        \
    {"gate", DRAW_NORMAL, 0.8, 0.15, DECAY_ITSELF, "gate_is_log", false},                                            \
    {"gate", DRAW_UNIFORM, 0.5, 0.5, DECAY_ITSELF, "gate_is_log", false},                                            \
    {"gate", DRAW_UNIFORM, 0, 1, DECAY_ITSELF, "gate_is_log", false},                                                \
    {"gate", DRAW_NORMAL, 0.8, 0.15, DECAY_EXPONENT, "gate_is_log", true},                                           \
    {"gate", DRAW_UNIFORM, 0.5, 0.5, DECAY_EXPONENT, "gate_is_log", true}
/* Not centered, as B and C below. */
#define ATTENTION_INPUTS                                                                                             \
    {"q", DRAW_NORMAL, 0.3, 1, DECAY_NONE, NULL, false},                                                             \
    {"k", DRAW_NORMAL, 0.3, 1, DECAY_NONE, NULL, false},                                                             \
    {"v", DRAW_NORMAL, 0.3, 1, DECAY_NONE, NULL, false},                                                             \
    GATES,                                                                                                           \
    {"beta", DRAW_UNIFORM, 0.5, 0.5, DECAY_NONE, NULL, false},                                                       \
    {"beta", DRAW_NORMAL, 0.5, 1, DECAY_NONE, NULL, false},                                                          \
    {"S_init", DRAW_NORMAL, 0, 2, DECAY_NONE, NULL, false}
#define ATTENTION_SIZES                                                                                              \
    BATCHES, LENGTHS,                                                                                                \
    {"heads", {0, 1, 1, 2, 3, 4, 4, 6, 8}, 9, NULL},                                                                 \
    {"query_heads", {1, 1, 2, 3, 4, 8, 8}, 7, "heads"},                                                              \
    {"keys", {0, 1, 2, 3, 5, 8, 15, 16, 17, 24, 32, 33, 48, 60, 64, 65, 128, 257}, 18, NULL},                        \
    {"values", {0, 1, 2, 3, 5, 8, 16, 17, 24, 32, 40, 64, 65, 100, 128}, 15, NULL}
#define SCALES {{"scale"}, {{0}, {0}, {1}, {0.125}, {-0.5}, {3}}, 6}
/* Step sizes and what they act on. */
#define SELECTIVE_INPUTS                                                                                             \
    {"x", DRAW_NORMAL, 0, 1, DECAY_NONE, NULL, false},                                                               \
    /* Raw step sizes that softplus takes, its linear part and its tail too. */                                      \
    {"delta", DRAW_NORMAL, -1, 1, DECAY_NONE, "delta_softplus", true},                                               \
    {"delta", DRAW_NORMAL, -3, 2, DECAY_NONE, "delta_softplus", true},                                               \
    {"delta", DRAW_UNIFORM, 0, 30, DECAY_NONE, "delta_softplus", true},                                              \
    /* Without it they are used as they are: positive, mostly. */                                                    \
    {"delta", DRAW_UNIFORM, 0.5, 0.5, DECAY_NONE, "delta_softplus", false},                                          \
    {"delta", DRAW_UNIFORM, 0.04, 0.05, DECAY_NONE, "delta_softplus", false},                                        \
    {"delta_bias", DRAW_UNIFORM, 0, 0.5, DECAY_NONE, "delta_softplus", true},                                        \
    {"delta_bias", DRAW_UNIFORM, 0.1, 0.1, DECAY_NONE, "delta_softplus", false},                                     \
    {"A", DRAW_NEGATIVE, 0, 1, DECAY_FACTOR, NULL, false},                                                           \
    /* Not centered: sums that cancel to nothing say more about luck than about a backend. */                        \
    {"B", DRAW_NORMAL, 0.3, 1, DECAY_NONE, NULL, false},                                                             \
    {"C", DRAW_NORMAL, 0.3, 1, DECAY_NONE, NULL, false},                                                             \
    {"D", DRAW_NORMAL, 1, 0.5, DECAY_NONE, NULL, false},                                                             \
    {"z", DRAW_NORMAL, 0, 2, DECAY_NONE, NULL, false},                                                               \
    {"h_init", DRAW_NORMAL, 0, 2, DECAY_NONE, NULL, false}
#define LAYER_INPUTS                                                                                                 \
    {"x", DRAW_NORMAL, 0, 1, DECAY_NONE, NULL, false},                                                               \
    {"W_delta", DRAW_MATRIX, 0, 1, DECAY_NONE, NULL, false},                                                         \
    {"W_delta_down", DRAW_MATRIX, 0, 1, DECAY_NONE, NULL, false},                                                    \
    {"W_B", DRAW_MATRIX, 0, 1, DECAY_NONE, NULL, false},                                                             \
    {"W_C", DRAW_MATRIX, 0, 1, DECAY_NONE, NULL, false},                                                             \
    {"A_log", DRAW_NORMAL, 0, 1, DECAY_LOG, NULL, false},                                                            \
    {"b_delta", DRAW_UNIFORM, -1, 2, DECAY_NONE, NULL, false},                                                       \
    {"D", DRAW_NORMAL, 1, 0.5, DECAY_NONE, NULL, false},                                                             \
    {"z", DRAW_NORMAL, 0, 2, DECAY_NONE, NULL, false},                                                               \
    {"h_init", DRAW_NORMAL, 0, 2, DECAY_NONE, NULL, false}
#define UPSTREAM                                                                                                     \
    {"dy", DRAW_NORMAL, 0.3, 1, DECAY_NONE, NULL, false},                                                            \
    {"dh_final", DRAW_NORMAL, 0, 2, DECAY_NONE, NULL, false}
#define GROUPS {"groups", {1, 1, 1, 2, 3, 4, 5, 8}, 8, "channels"}
#define RANKS {"rank", {0, 1, 2, 3, 4, 7, 8, 16, 17, 33}, 10, NULL}
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
     .reaches = {{"h", "da", REACH_NEXT}, {"h_init", "da", REACH_ALWAYS}},
     .resumes = {"h_init", "h"}},

    {.op = "selective_scan",
     .values = {SELECTIVE_INPUTS},
     .sizes = {BATCHES, LENGTHS, CHANNELS, STATES, GROUPS},
     .aliases = {{"y", "x"}, {"h_final", "h_init"}},
     .options = {CLAMPS},
     .states = {{"h_init", "h_final"}},
     .regimes = REGIMES_OF_EXPONENTIALS},

    {.op = "selective_layer",
     .values = {LAYER_INPUTS},
     .sizes = {BATCHES, LENGTHS, CHANNELS, STATES, RANKS},
     .aliases = {{"h_final", "h_init"}},
     .options = {CLAMPS},
     .mixed = {"x"},
     .states = {{"h_init", "h_final"}},
     .regimes = REGIMES_OF_EXPONENTIALS},

    {.op = "linear_attention",
     .values = {ATTENTION_INPUTS},
     .sizes = {ATTENTION_SIZES},
     .aliases = {{"S_final", "S_init"}},
     .options = {SCALES},
     .states = {{"S_init", "S_final"}},
     .regimes = REGIME_COUNT,
     .unread = "S_init",
     .later = 1,
     .ease = 16},

    {.op = "linear_attention_backward",
     .values = {
         ATTENTION_INPUTS,
         {"dy", DRAW_NORMAL, 0.3, 1, DECAY_NONE, NULL, false},
         {"dS_final", DRAW_NORMAL, 0, 2, DECAY_NONE, NULL, false}},
     .sizes = {ATTENTION_SIZES},
     .options = {SCALES},
     .states = {{"dS_final", "dS_init"}},
     .regimes = REGIME_COUNT,
     .unread = "S_init",
     /* States run one way, their gradients the other. */
     .reaches = {
         {"q", "dk", REACH_UNTIL}, {"q", "dv", REACH_UNTIL}, {"q", "dgate", REACH_UNTIL},
         {"q", "dbeta", REACH_UNTIL}, {"q", "dS_init", REACH_ALWAYS},
         {"k", "dq", REACH_FROM}, {"k", "dv", REACH_OWN}, {"k", "dgate", REACH_LATER}, {"k", "dbeta", REACH_OWN},
         {"v", "dq", REACH_FROM}, {"v", "dk", REACH_OWN}, {"v", "dgate", REACH_LATER}, {"v", "dbeta", REACH_OWN},
         {"gate", "dq", REACH_FROM}, {"gate", "dk", REACH_EARLIER}, {"gate", "dv", REACH_EARLIER},
         {"gate", "dgate", REACH_ALWAYS}, {"gate", "dbeta", REACH_EARLIER}, {"gate", "dS_init", REACH_ALWAYS},
         {"beta", "dq", REACH_FROM}, {"beta", "dk", REACH_OWN}, {"beta", "dv", REACH_OWN},
         {"beta", "dgate", REACH_LATER},
         {"S_init", "dq", REACH_ALWAYS}, {"S_init", "dgate", REACH_ALWAYS},
         {"dy", "dq", REACH_OWN}, {"dy", "dk", REACH_UNTIL}, {"dy", "dv", REACH_UNTIL},
         {"dy", "dgate", REACH_UNTIL}, {"dy", "dbeta", REACH_UNTIL}, {"dy", "dS_init", REACH_ALWAYS},
         {"dS_final", "dk", REACH_ALWAYS}, {"dS_final", "dv", REACH_ALWAYS}, {"dS_final", "dgate", REACH_ALWAYS},
         {"dS_final", "dbeta", REACH_ALWAYS}, {"dS_final", "dS_init", REACH_ALWAYS}},
     .resumes = {"S_init"},
     .later = 1,
     .ease = 16},

    {.op = "selective_scan_backward",
     .values = {SELECTIVE_INPUTS, UPSTREAM},
     .sizes = {BATCHES, LENGTHS, CHANNELS, STATES, GROUPS},
     .options = {CLAMPS},
     .states = {{"dh_final", "dh_init"}},
     .regimes = REGIMES_OF_EXPONENTIALS,
     /* States run one way, their gradients the other; parameters have no steps. */
     .reaches = {
         {"x", "dz", REACH_FROM}, {"x", "ddelta", REACH_FROM}, {"x", "dB", REACH_OWN}, {"x", "dC", REACH_FROM},
         {"x", "dA", REACH_ALWAYS}, {"x", "dD", REACH_ALWAYS}, {"x", "ddelta_bias", REACH_ALWAYS},
         {"delta", "dz", REACH_FROM}, {"delta", "dx", REACH_UNTIL}, {"delta", "ddelta", REACH_ALWAYS},
         {"delta", "dB", REACH_UNTIL}, {"delta", "dC", REACH_FROM}, {"delta", "dA", REACH_ALWAYS},
         {"delta", "ddelta_bias", REACH_ALWAYS}, {"delta", "dh_init", REACH_ALWAYS}, {"B", "dz", REACH_FROM},
         {"B", "dx", REACH_OWN}, {"B", "ddelta", REACH_FROM}, {"B", "dC", REACH_FROM}, {"B", "dA", REACH_ALWAYS},
         {"B", "ddelta_bias", REACH_ALWAYS}, {"C", "dz", REACH_OWN}, {"C", "dx", REACH_UNTIL},
         {"C", "ddelta", REACH_UNTIL}, {"C", "dB", REACH_UNTIL}, {"C", "dA", REACH_ALWAYS},
         {"C", "ddelta_bias", REACH_ALWAYS}, {"C", "dh_init", REACH_ALWAYS}, {"z", "dz", REACH_OWN},
         {"z", "dx", REACH_UNTIL}, {"z", "ddelta", REACH_UNTIL}, {"z", "dB", REACH_UNTIL}, {"z", "dC", REACH_OWN},
         {"z", "dA", REACH_ALWAYS}, {"z", "dD", REACH_ALWAYS}, {"z", "ddelta_bias", REACH_ALWAYS},
         {"z", "dh_init", REACH_ALWAYS}, {"h_init", "dz", REACH_ALWAYS}, {"h_init", "ddelta", REACH_ALWAYS},
         {"h_init", "dC", REACH_ALWAYS}, {"h_init", "dA", REACH_ALWAYS}, {"h_init", "ddelta_bias", REACH_ALWAYS},
         {"dy", "dz", REACH_OWN}, {"dy", "dx", REACH_UNTIL}, {"dy", "ddelta", REACH_UNTIL},
         {"dy", "dB", REACH_UNTIL}, {"dy", "dC", REACH_OWN}, {"dy", "dA", REACH_ALWAYS},
         {"dy", "dD", REACH_ALWAYS}, {"dy", "ddelta_bias", REACH_ALWAYS}, {"dy", "dh_init", REACH_ALWAYS},
         {"dh_final", "dx", REACH_ALWAYS}, {"dh_final", "ddelta", REACH_ALWAYS}, {"dh_final", "dB", REACH_ALWAYS},
         {"dh_final", "dA", REACH_ALWAYS}, {"dh_final", "ddelta_bias", REACH_ALWAYS},
         {"dh_final", "dh_init", REACH_ALWAYS}},
     .resumes = {"h_init"},
     .later = 2},

    {.op = "selective_layer_backward",
     .values = {LAYER_INPUTS, UPSTREAM},
     .sizes = {BATCHES, LENGTHS, CHANNELS, STATES, RANKS},
     .options = {CLAMPS},
     .mixed = {"x", "dx", "dW_delta_down", "dW_B", "dW_C"},
     .states = {{"dh_final", "dh_init"}},
     .regimes = REGIMES_OF_EXPONENTIALS,
     .reaches = {
         {"x", "dz", REACH_FROM}, {"x", "dx", REACH_ALWAYS}, {"x", "dW_delta", REACH_ALWAYS},
         {"x", "dW_delta_down", REACH_ALWAYS}, {"x", "dW_B", REACH_ALWAYS}, {"x", "dW_C", REACH_ALWAYS},
         {"x", "dA_log", REACH_ALWAYS}, {"x", "db_delta", REACH_ALWAYS}, {"x", "dD", REACH_ALWAYS},
         {"x", "dh_init", REACH_ALWAYS}, {"z", "dz", REACH_OWN}, {"z", "dx", REACH_UNTIL},
         {"z", "dW_delta", REACH_ALWAYS}, {"z", "dW_delta_down", REACH_ALWAYS}, {"z", "dW_B", REACH_ALWAYS},
         {"z", "dW_C", REACH_ALWAYS}, {"z", "dA_log", REACH_ALWAYS}, {"z", "db_delta", REACH_ALWAYS},
         {"z", "dD", REACH_ALWAYS}, {"z", "dh_init", REACH_ALWAYS}, {"h_init", "dz", REACH_ALWAYS},
         {"h_init", "dx", REACH_ALWAYS}, {"h_init", "dW_delta", REACH_ALWAYS},
         {"h_init", "dW_delta_down", REACH_ALWAYS}, {"h_init", "dW_C", REACH_ALWAYS},
         {"h_init", "dA_log", REACH_ALWAYS}, {"h_init", "db_delta", REACH_ALWAYS}, {"dy", "dz", REACH_OWN},
         {"dy", "dx", REACH_UNTIL}, {"dy", "dW_delta", REACH_ALWAYS}, {"dy", "dW_delta_down", REACH_ALWAYS},
         {"dy", "dW_B", REACH_ALWAYS}, {"dy", "dW_C", REACH_ALWAYS}, {"dy", "dA_log", REACH_ALWAYS},
         {"dy", "db_delta", REACH_ALWAYS}, {"dy", "dD", REACH_ALWAYS}, {"dy", "dh_init", REACH_ALWAYS},
         {"dh_final", "dx", REACH_ALWAYS}, {"dh_final", "dW_delta", REACH_ALWAYS},
         {"dh_final", "dW_delta_down", REACH_ALWAYS}, {"dh_final", "dW_B", REACH_ALWAYS},
         {"dh_final", "dA_log", REACH_ALWAYS}, {"dh_final", "db_delta", REACH_ALWAYS},
         {"dh_final", "dh_init", REACH_ALWAYS}},
     .resumes = {"h_init"},
     .later = 2},
};
/* clang-format on */

const plausible *plausible_find(const char *op)
{
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (strcmp(table[i].op, op) == 0) return &table[i];
    return NULL;
}
