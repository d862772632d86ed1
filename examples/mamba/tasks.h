/* What mamba-lm can do with a model. */
#ifndef MAMBA_TASKS_H
#define MAMBA_TASKS_H

#include "checkpoint.h"
#include "compute.h"

typedef struct task {
    const char *folder, *score;
    const char **prompts;
    int64_t texts, tokens, block;
    double temperature;
    uint64_t seed;
    rill_backend backend;
    int32_t threads;
    bool ids, records;
} task;

/* Goes on with the prompts, and prints them.  Figures go to stderr. */
void task_generate(const task *asked, compute *on, checkpoint *opened);

/* Prints how many bits a token of a file takes. */
void task_score(const task *asked, compute *on, checkpoint *opened);

#endif
