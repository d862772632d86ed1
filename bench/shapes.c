/* Problems by name (from the text built into the command), by file, or by their own text. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

static const char default_shapes[] =
#include "default_shapes.inc"
    ;

static bool append(bench_problem **list, int *count, const bench_problem *problem, failure *why)
{
    bench_problem *grown = realloc(*list, ((size_t)*count + 1) * sizeof **list);
    if (!grown) return failure_set(why, "out of memory");
    *list = grown;
    grown[(*count)++] = *problem;
    return true;
}

/* A line is blank, a comment, or a name and a problem. */
static bool parse_line(const char *line, size_t length, bench_problem *problem, bool *empty, failure *why)
{
    char copy[2 * BENCH_TEXT];
    *empty = true;
    if (length >= sizeof copy) return failure_set(why, "a line is too long");
    memcpy(copy, line, length);
    copy[length] = '\0';
    char *start = copy + strspn(copy, " \t\r");
    if (!*start || *start == '#') return true;
    *empty = false;
    size_t name = strcspn(start, " \t");
    if (name >= BENCH_NAME) return failure_set(why, "the name '%.*s' is too long", 64, start);
    if (!bench_parse(start + name, problem, why)) return false;
    memcpy(problem->name, start, name);
    problem->name[name] = '\0';
    return true;
}

static bool parse_all(const char *text, bench_problem **list, int *count, failure *why)
{
    int number = 1;
    for (const char *line = text; *line; number++) {
        size_t length = strcspn(line, "\n");
        bench_problem problem;
        bool empty;
        failure inner;
        if (!parse_line(line, length, &problem, &empty, &inner))
            return failure_set(why, "line %d: %.400s", number, inner.text);
        if (!empty && !append(list, count, &problem, why)) return false;
        line += length + (line[length] == '\n');
    }
    return true;
}

bool bench_known_shapes(bench_problem **list, int *count, failure *why)
{
    return parse_all(default_shapes, list, count, why);
}

static bool read_file(const char *path, bench_problem **list, int *count, failure *why)
{
    enum { LIMIT = 1 << 20 };
    const int before = *count;
    FILE *file = fopen(path, "re");
    if (!file) return failure_set(why, "'%s' is no known shape, no problem and no file (%s)", path, strerror(errno));
    char *text = malloc(LIMIT + 1);
    size_t size = text ? fread(text, 1, LIMIT, file) : 0;
    bool good = text && !ferror(file) && feof(file);
    fclose(file);
    if (!good) failure_set(why, "%s cannot be read whole", path);
    if (good) {
        text[size] = '\0';
        good = parse_all(text, list, count, why);
    }
    free(text);
    if (good && *count == before) good = failure_set(why, "%s names no shape", path);
    return good;
}

bool bench_find_shapes(const char *what, bench_problem **list, int *count, failure *why)
{
    bench_problem *known = NULL, one;
    int all = 0, before = *count;
    bool good = bench_known_shapes(&known, &all, why);
    for (int i = 0; good && i < all; i++)
        if (strcmp(known[i].name, what) == 0) good = append(list, count, &known[i], why);
    free(known);
    if (!good || *count > before) return good;
    if (strchr(what, ':')) return bench_parse(what, &one, why) && append(list, count, &one, why);
    return read_file(what, list, count, why);
}
