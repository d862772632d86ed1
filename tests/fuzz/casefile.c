/*
 * Case files that are cut short, flipped, spliced or hostile: each must be refused with a message or be read and
 * computed.  Run under AddressSanitizer this finds what reads or writes astray.
 *
 *     fuzz_casefile CASE... [SEED]     prints the seed; the same seed makes the same files
 */
#define _GNU_SOURCE /* memfd_create */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rill/rill.h>

#include "casefile.h"
#include "solution.h"
#include "verify.h"

typedef struct buffer {
    unsigned char *bytes;
    size_t size;
} buffer;

typedef struct driver {
    int descriptor; /* of a file in memory that every trial rewrites */
    char path[64];
    rill_context *context;
    uint64_t random;
    int64_t trials, accepted;
} driver;

static _Noreturn void die(const char *what, const char *detail)
{
    printf("FAILED: %s: %s\n", what, detail);
    exit(1);
}

static uint64_t draw(driver *run, uint64_t below)
{
    run->random ^= run->random << 13;
    run->random ^= run->random >> 7;
    run->random ^= run->random << 17;
    return (run->random >> 11) % below;
}

static buffer load(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0) die("cannot read", path);
    long size = ftell(file);
    buffer read = {malloc((size_t)size + 1), (size_t)size};
    rewind(file);
    if (!read.bytes || fread(read.bytes, 1, read.size, file) != read.size) die("cannot read", path);
    fclose(file);
    return read;
}

static void put(driver *run, const unsigned char *bytes, size_t size)
{
    if (ftruncate(run->descriptor, 0) != 0 || pwrite(run->descriptor, bytes, size, 0) != (ssize_t)size)
        die("cannot write", run->path);
}

/*
 * What can still be read is computed, forward and backward, and judged as rill check does: a call may refuse it, with
 * a message.  Whether it passes is not asked: the file may expect anything.
 */
static void compute(driver *run, const casefile *from)
{
    failure why = {""};
    solution made;
    judge right;
    outcome list[SOLUTION_MAX_OUTCOMES];
    bool good = solution_open(&made, from, run->context, false, &why);
    if (good && solution_add_gradients(&made, run->context, &why) && judge_open(&right, from, &why)) {
        int count = solution_list(&made, list);
        for (int i = 0; i < count; i++) {
            measure found = judge_outcome(&right, &list[i]);
            if (found.failed == 0 && found.worst > 1.0 && found.slices > 0)
                die("a miss is not counted", list[i].tensor->name);
        }
        judge_close(&right);
    } else if (!why.text[0]) {
        die("a call failed without a message", "");
    }
    if (good) solution_close(&made);
}

static bool try_file(driver *run, const unsigned char *bytes, size_t size, failure *why)
{
    casefile from;
    why->text[0] = '\0';
    put(run, bytes, size);
    run->trials++;
    if (!casefile_read(run->path, &from, why)) {
        if (!why->text[0]) die("a file was refused without a message", "");
        return false;
    }
    run->accepted++;
    compute(run, &from);
    casefile_close(&from);
    return true;
}

static void truncations(driver *run, const buffer *good)
{
    failure why;
    if (!try_file(run, good->bytes, good->size, &why)) die("a good file was refused", why.text);
    for (size_t size = 0; size < good->size; size += size < 4096 ? 1 : 61)
        if (try_file(run, good->bytes, size, &why)) die("a truncated file was accepted", run->path);
}

static size_t header_size(const buffer *good)
{
    uint64_t size;
    memcpy(&size, good->bytes, sizeof size);
    return 8 + (size_t)size;
}

static void flips(driver *run, const buffer *good)
{
    failure why;
    size_t header = header_size(good);
    for (size_t at = 0; at < header; at++) {
        unsigned char kept = good->bytes[at];
        for (int bit = 0; bit < 8; bit++) {
            good->bytes[at] = (unsigned char)(kept ^ 1u << bit);
            try_file(run, good->bytes, good->size, &why);
        }
        good->bytes[at] = kept;
    }
}

/* Turns bits of the data: other numbers, NaN among them, and offsets out of order. */
static void scatter(driver *run, const buffer *good, int count)
{
    failure why;
    size_t header = header_size(good);
    unsigned char *made = malloc(good->size);
    if (!made) die("no memory", "");
    for (int i = 0; i < count; i++) {
        memcpy(made, good->bytes, good->size);
        for (uint64_t turned = 1 + draw(run, 8); turned > 0; turned--)
            made[header + draw(run, good->size - header)] ^= (unsigned char)(1 + draw(run, 255));
        if (!try_file(run, made, good->size, &why)) die("a file was refused for its numbers", why.text);
    }
    free(made);
}

/* Replaces a stretch of the header by a word that means something to a parser, and mends the header's length. */
static void splices(driver *run, const buffer *good, int count)
{
    static const char *const words[] = {
        "0",
        "1",
        "2",
        "-1",
        "9223372036854775807",
        "-9223372036854775808",
        "4611686018427387904",
        "1e308",
        "null",
        "true",
        "[]",
        "{}",
        "\"\"",
        "\"F64\"",
        "\"I64\"",
        "\"BF16\"",
        "\"BOOL\"",
        "[[",
        "}}",
        ",",
        ":",
        "\\u0000",
        "\"x\"",
        "\"offsets\"",
        "\"__metadata__\"",
        "65536",
        "\"h_init\"",
        "\"expect.da\"",
        "\"dh\"",
        "\"complex\"",
        "\"a,b,a\"",
        "\"c64\"",
        "\xff",
    };
    size_t header = header_size(good), words_count = sizeof words / sizeof words[0];
    unsigned char *made = malloc(good->size + 64);
    failure why;
    if (!made) die("no memory", "");
    for (int i = 0; i < count; i++) {
        const char *word = words[draw(run, words_count)];
        size_t at = 8 + draw(run, header - 8), gone = draw(run, 12), length = strlen(word);
        if (at + gone > header) gone = header - at;
        uint64_t text = header - 8 - gone + length;
        memcpy(made, &text, sizeof text);
        memcpy(made + 8, good->bytes + 8, at - 8);
        memcpy(made + at, word, length);
        memcpy(made + at + length, good->bytes + at + gone, good->size - at - gone);
        try_file(run, made, good->size - gone + length, &why);
    }
    free(made);
}

typedef struct hostile {
    const char *header, *phrase; /* the refusal holds the phrase */
    size_t data;
} hostile;

#define META "\"__metadata__\":{\"op\":\"selective_scan\",\"dtype\":\"f32\"}"
#define SCAN(options) "{\"__metadata__\":{\"op\":\"selective_scan\",\"dtype\":\"f32\",\"options\":" options "}}"

/* clang-format off */
#define TENSOR(name, type, shape, range) \
    ",\"" name "\":{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":" range "}"
#define LINEAR(meta, tensors) "{\"__metadata__\":{\"op\":\"scan\"," meta "}" tensors "}"
#define F32 "\"dtype\":\"f32\""
#define C64(names) "\"dtype\":\"c64\",\"complex\":\"" names "\""
#define A(shape) TENSOR("a", "F32", shape, "[0,8]")
#define AB TENSOR("a", "F32", "[1,2,1]", "[0,8]") TENSOR("b", "F32", "[1,2,1]", "[8,16]")
/* clang-format on */

static const hostile table[] = {
    {"", "not a JSON object", 0},
    {"[]", "not a JSON object", 0},
    {"{", "bad JSON", 0},
    {"{\"x\":1,\"x\":2}", "duplicate", 0},
    {"{\"x\":3}", "dtype is not a string", 0},
    {"{\"__metadata__\":[]}", "__metadata__", 0},
    {"{\"__metadata__\":{\"op\":1}}", "not a string", 0},
    {"{}", "'op' is missing", 0},
    {"{\"__metadata__\":{\"op\":\"nothing\"}}", "not known", 0},
    {"{\"__metadata__\":{\"op\":\"selective_scan\"}}", "'dtype' is missing", 0},
    {"{\"__metadata__\":{\"op\":\"selective_scan\",\"dtype\":\"i7\"}}", "none of", 0},
    {"{" META "}", "'x' of selective_scan is missing", 0},
    {SCAN("\"[1]\""), "not a JSON object", 0},
    {SCAN("\"{\""), "bad JSON", 0},
    {SCAN("\"{\\\"reverse\\\":1}\""), "not true or false", 0},
    {SCAN("\"{\\\"delta_min\\\":true}\""), "not a number", 0},
    {SCAN("\"{\\\"scale\\\":2}\""), "not an option", 0},
    {"{" META ",\"q\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", "belongs to nothing", 4},
    {"{\"x\":{\"dtype\":\"BOOL\",\"shape\":[1],\"data_offsets\":[0,1]}}", "tensor 'x': type BOOL", 1},
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", "negative", 4},
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,4]}}", "not an integer", 4},
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":4,\"data_offsets\":[0,4]}}", "not an array", 4},
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":[99999999999999999999],\"data_offsets\":[0,4]}}", "bad JSON", 4},
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}}", "too large", 0},
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296,0],\"data_offsets\":[0,0]}}", "too large", 0},
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", "axes", 4},
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", "two integers", 4},
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,8]}}", "not within", 4},
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", "not within", 4},
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", "not within", 4},
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", "expected 8", 4},
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
     "\"y\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[2,6]}}",
     "overlaps", 6},
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", "hole", 8},
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", "end at byte 4", 8},
    {LINEAR(C64("a"), A("[1,1,1,2]")), "'b' of scan is missing", 8},
    {LINEAR(C64("a,b"), A("[1,1,1,2]")), "no tensor 'b'", 8},
    {LINEAR(C64("a,a"), A("[1,1,1,2]")), "complex needs F32", 8},
    {LINEAR(C64("a"), A("[1,2,1]")), "complex needs F32", 8},
    {LINEAR(C64("a"), TENSOR("a", "F32", "[]", "[0,4]")), "complex needs F32", 4},
    {LINEAR(C64("a"), TENSOR("a", "I64", "[2]", "[0,16]")), "complex needs F32", 16},
    {LINEAR(C64(""), AB), "but metadata 'dtype' is c64", 16},
    {LINEAR(F32, AB TENSOR("da", "F32", "[1,2,1]", "[16,24]")), "belongs to nothing", 24},
    {LINEAR(F32, AB TENSOR("expect.dq", "F32", "[1]", "[16,20]")), "belongs to nothing", 20},
    {LINEAR(F32, AB TENSOR("expect.dh", "F32", "[1,2,1]", "[16,24]")), "belongs to nothing", 24},
    {LINEAR(F32, AB TENSOR("expect.da", "F32", "[1,1,1]", "[16,20]")), "axis 1 is 1, expected 2", 20},
    {LINEAR(F32, AB TENSOR("expect.da", "I64", "[1,2,1]", "[16,32]")), "is not real", 32},
    {LINEAR(F32, AB TENSOR("expect.db", "F32", "[2]", "[16,24]")), "rank 1, expected 3", 24},
    {LINEAR(F32, AB TENSOR("expect.dh_init", "F32", "[1,1]", "[16,20]")), "the file has no 'h_init'", 20},
};

static void refuse(driver *run, const char *header, size_t length, size_t data, const char *phrase)
{
    size_t size = 8 + length + data;
    unsigned char *made = calloc(1, size);
    uint64_t text = length;
    failure why;
    if (!made) die("no memory", "");
    memcpy(made, &text, sizeof text);
    memcpy(made + 8, header, length);
    if (try_file(run, made, size, &why)) die("a hostile header was accepted", header);
    if (!strstr(why.text, phrase)) die(phrase, why.text);
    free(made);
}

static void hostile_headers(driver *run)
{
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        refuse(run, table[i].header, strlen(table[i].header), table[i].data, table[i].phrase);
    size_t deep = 1 << 19;
    char *nested = malloc(deep);
    if (!nested) die("no memory", "");
    memset(nested, '[', deep);
    memcpy(nested, "{\"x\":", 5);
    refuse(run, nested, deep, 0, "bad JSON");
    free(nested);
    unsigned char huge[16] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f};
    failure why;
    if (try_file(run, huge, sizeof huge, &why) || !strstr(why.text, "beyond")) die("huge header", why.text);
}

int main(int argc, char **argv)
{
    driver run = {.descriptor = memfd_create("case", 0), .random = 61031};
    int cases = argc;
    if (argc > 2 && strspn(argv[argc - 1], "0123456789") == strlen(argv[argc - 1])) {
        run.random = strtoull(argv[argc - 1], NULL, 10) | 1;
        cases--;
    }
    printf("seed %" PRIu64 "\n", run.random);
    snprintf(run.path, sizeof run.path, "/proc/self/fd/%d", run.descriptor);
    if (run.descriptor < 0) die("no file in memory", "");
    if (rill_context_create(&(rill_options){.backend = RILL_BACKEND_LOOP}, &run.context) != RILL_OK)
        die("no context", rill_last_error(NULL));
    hostile_headers(&run);
    for (int i = 1; i < cases; i++) {
        buffer good = load(argv[i]);
        truncations(&run, &good);
        flips(&run, &good);
        splices(&run, &good, 10000);
        scatter(&run, &good, 500);
        free(good.bytes);
    }
    rill_context_destroy(run.context);
    close(run.descriptor);
    printf("%" PRId64 " files, %" PRId64 " of them accepted\n", run.trials, run.accepted);
    return 0;
}
