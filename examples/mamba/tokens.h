/* Tokens of words and files: bytes, or numbers. */
#ifndef MAMBA_TOKENS_H
#define MAMBA_TOKENS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Where tokens come from; `name` is for messages. */
typedef struct token_source {
    FILE *file;
    const char *name;
    bool ids;
    int64_t vocab;
} token_source;

token_source tokens_of_text(const char *text, bool ids, int64_t vocab);
token_source tokens_of_file(const char *path, bool ids, int64_t vocab);
void tokens_close(token_source *source);

/* Up to `most` tokens; fewer only at the end. */
int64_t tokens_read(token_source *source, int64_t *tokens, int64_t most);

/* A token as text. */
void token_print(int64_t token, bool ids, FILE *to);

#endif
