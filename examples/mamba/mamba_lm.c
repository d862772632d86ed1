/*
 * Runs a Mamba language model from a Hugging Face checkpoint:
 *
 *     mamba-lm DIR [--prompt TEXT]... [--tokens N]     goes on with each prompt, all side by side
 *     mamba-lm DIR --score FILE                        how well it foretells a text: bits a token
 *
 * Models whose vocabulary is the 256 bytes take and give text; with --ids, and for all others, prompts, files and
 * output are token numbers.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "tasks.h"

static const char USAGE[] =
    "usage: mamba-lm DIR [--prompt TEXT]... [--tokens N] [--temperature T] [--seed S]\n"
    "       mamba-lm DIR --score FILE\n"
    "       both: [--backend auto|cpu|cuda|reference|loop] [--threads N] [--block N] [--ids] [--no-graph]\n"
    "\n"
    "--temperature 0 takes the likeliest token; the default is 0.8.  --block: tokens of a prompt or file at a time.";

static int64_t whole(const char *option, const char *word, int64_t least, int64_t most)
{
    char *end;
    errno = 0;
    const long long value = strtoll(word, &end, 10);
    if (end == word || *end || errno || value < least || value > most)
        fail("%s %s: expected a whole number from %lld to %lld", option, word, (long long)least, (long long)most);
    return value;
}

static double real(const char *option, const char *word)
{
    char *end;
    const double value = strtod(word, &end);
    if (end == word || *end || !(value >= 0) || value > 1e6) fail("%s %s: expected a number from 0 on", option, word);
    return value;
}

static rill_backend backend_of(const char *word)
{
    static const char *const names[] = {"auto", "cpu", "cuda", "reference", "loop"};
    for (int k = 0; k < 5; k++)
        if (strcmp(word, names[k]) == 0) return (rill_backend)k;
    fail("--backend %s: expected auto, cpu, cuda, reference or loop", word);
}

static task task_of(int count, char **words)
{
    task asked = {.tokens = 200, .temperature = 0.8, .seed = 1, .block = 512, .records = true};
    asked.prompts = take((size_t)count, sizeof *asked.prompts);
    for (int k = 1; k < count; k++) {
        const char *word = words[k], *value = k + 1 < count ? words[k + 1] : NULL;
        if (strncmp(word, "--", 2) != 0) {
            if (asked.folder) fail("%s: one folder is enough\n%s", word, USAGE);
            asked.folder = word;
        } else if (strcmp(word, "--help") == 0) {
            puts(USAGE);
            flush_output();
            exit(0);
        } else if (strcmp(word, "--ids") == 0) {
            asked.ids = true;
        } else if (strcmp(word, "--no-graph") == 0) {
            asked.records = false;
        } else if (!value) {
            fail("%s: a value should follow\n%s", word, USAGE);
        } else {
            k++;
            if (strcmp(word, "--prompt") == 0)
                asked.prompts[asked.texts++] = value;
            else if (strcmp(word, "--tokens") == 0)
                asked.tokens = whole(word, value, 0, INT64_MAX);
            else if (strcmp(word, "--temperature") == 0)
                asked.temperature = real(word, value);
            else if (strcmp(word, "--seed") == 0)
                asked.seed = (uint64_t)whole(word, value, 0, INT64_MAX);
            else if (strcmp(word, "--score") == 0)
                asked.score = value;
            else if (strcmp(word, "--backend") == 0)
                asked.backend = backend_of(value);
            else if (strcmp(word, "--threads") == 0)
                asked.threads = (int32_t)whole(word, value, 0, INT32_MAX);
            else if (strcmp(word, "--block") == 0)
                asked.block = whole(word, value, 1, INT32_MAX);
            else
                fail("%s: no such option\n%s", word, USAGE);
        }
    }
    if (!asked.folder) fail("which model?\n%s", USAGE);
    if (asked.score && asked.texts > 0) fail("--score and --prompt do not go together");
    if (asked.texts == 0) asked.prompts[asked.texts++] = asked.ids ? "0" : "\n";
    return asked;
}

static compute *compute_create(rill_context *context)
{
    if (rill_context_backend(context) != RILL_BACKEND_CUDA) return compute_create_cpu(context);
#ifdef MAMBA_CUDA
    return compute_create_cuda(context);
#else
    fail("this mamba-lm was built without CUDA");
#endif
}

int main(int count, char **words)
{
    const task asked = task_of(count, words);
    rill_context *context;
    const rill_options options = {.backend = asked.backend, .threads = asked.threads};
    if (rill_context_create(&options, &context) != RILL_OK) fail("%s", rill_last_error(NULL));
    checkpoint *opened = checkpoint_open(asked.folder);
    compute *on = compute_create(context);
    if (asked.score)
        task_score(&asked, on, opened);
    else
        task_generate(&asked, on, opened);
    on->does->destroy(on);
    checkpoint_close(opened);
    rill_context_destroy(context);
    free(asked.prompts);
    return 0;
}
