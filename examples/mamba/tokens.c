#include "tokens.h"

#include <ctype.h>
#include <errno.h>
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

static int64_t read_number(const token_source *source, int64_t *token)
{
    long long value;
    const int found = fscanf(source->file, " %lld", &value);
    if (found == EOF && !ferror(source->file)) return 0;
    if (found != 1) fail("%s: not all token numbers", source->name);
    const int next = fgetc(source->file);
    if (next != EOF && next != ',' && !isspace(next))
        fail("%s: %lld is not the end of a token number", source->name, value);
    if (value < 0 || value >= source->vocab)
        fail("%s: token %lld, expected 0 to %lld", source->name, value, (long long)source->vocab - 1);
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
