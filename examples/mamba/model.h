/* A Mamba language model: weights, the states of some independent texts, and room for a block of tokens. */
#ifndef MAMBA_MODEL_H
#define MAMBA_MODEL_H

#include "checkpoint.h"
#include "compute.h"

typedef struct model model;

/* For `texts` texts, and blocks of at most `block` tokens in all.  `scores` asks for room for model_score. */
model *model_create(compute *on, checkpoint *from, int64_t texts, int64_t block, bool scores);
void model_destroy(model *made);

/* Sets the states of all texts back to their beginnings. */
void model_forget(model *made);

/*
 * Runs `length` tokens [texts, length] of `count` texts from `first` on, from their states, which move on.  Leaves
 * the logits after each text's last token in logits [count, vocab], on the host.
 */
void model_read(model *made, const int64_t *tokens, int64_t first, int64_t count, int64_t length, float *logits);

/* As model_read with one token for every text, by a recording where the backend has such: its nodes, or 0. */
void model_step(model *made, const int64_t *tokens, float *logits);
int64_t model_recorded(const model *made);
void model_use_recording(model *made, bool use);

/* All logits of a block of the first text, [length, vocab], on the host. */
void model_logits(model *made, const int64_t *tokens, int64_t length, float *logits);

/* Runs a block of the first text, and gives for each token the bits that the one after it, in targets, took. */
void model_score(model *made, const int64_t *tokens, const int64_t *targets, int64_t length, float *bits);

/* Bytes of weights and states. */
size_t model_bytes(const model *made);

#endif
