#include "tokens.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"

static void expect_bytes(bool ids, int64_t vocab)
{
    if (!ids && vocab != 256) fail("the model has %lld tokens, which are not bytes: use --ids", (long long)vocab);
}

token_source tokens_of_text(const char *text, bool ids, int64_t vocab)
{
    expect_bytes(ids, vocab);
    const size_t size = strlen(text);
    if (size == 0) fail("a prompt is empty, expected one token at least");
    token_source source = {fmemopen((void *)text, size, "r"), "the prompt", ids, vocab};
    if (!source.file) fail("the prompt: %s", strerror(errno));
    return source;
}

token_source tokens_of_file(const char *path, bool ids, int64_t vocab)
{
    expect_bytes(ids, vocab);
    token_source source = {fopen(path, "rb"), path, ids, vocab};
    if (!source.file) fail("%s: %s", path, strerror(errno));
    return source;
}

void tokens_close(token_source *source)
{
    fclose(source->file);
}

/* What stands up to the next comma or space, as much of it as can be a number; false: the end. */
static bool read_word(FILE *file, char *word, size_t room)
{
    size_t size = 0;
    int next = fgetc(file);
    while (isspace(next)) next = fgetc(file);
    const bool is_there = next != EOF;
    for (; next != EOF && next != ',' && !isspace(next); next = fgetc(file))
        if (size + 1 < room) word[size++] = (char)(isprint(next) ? next : '?');
    word[size] = '\0';
    return is_there;
}

static int64_t read_number(const token_source *source, int64_t *token)
{
    char word[64], *end;
    if (!read_word(source->file, word, sizeof word)) return 0;
    errno = 0;
    const long long value = strtoll(word, &end, 10);
    if (end == word || *end) fail("%s: '%s' is not a token number", source->name, word);
    if (errno || value < 0 || value >= source->vocab)
        fail("%s: token %s, expected 0 to %lld", source->name, word, (long long)source->vocab - 1);
    *token = value;
    return 1;
}

static int64_t read_byte(const token_source *source, int64_t *token)
{
    const int byte = fgetc(source->file);
    *token = byte;
    return byte != EOF;
}

int64_t tokens_read(token_source *source, int64_t *tokens, int64_t most)
{
    int64_t count = 0;
    while (count < most && (source->ids ? read_number : read_byte)(source, tokens + count)) count++;
    if (ferror(source->file)) fail("%s: cannot be read: %s", source->name, strerror(errno));
    return count;
}

void token_print(int64_t token, bool ids, FILE *to)
{
    if (ids)
        fprintf(to, "%lld ", (long long)token);
    else
        fputc((int)token, to);
}
