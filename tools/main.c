/* The rill command: computes, checks and times the operators on case files and named shapes. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include <rill/rill.h>

#include "commands.h"

typedef struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} command;

static const command commands[] = {
    {"info", command_info, "what this build and this machine have"},
    {"run", command_run, "compute a case file's operator and write its outputs"},
    {"check", command_check, "compute case files on every backend and compare with the right values"},
#ifdef RILL_BENCH
    {"bench", command_bench, "time shapes beside the machine's own ceilings"},
#endif
};

enum { COMMANDS = sizeof commands / sizeof commands[0] };

int command_fail(const char *where, const failure *why)
{
    fflush(stdout);
    fprintf(stderr, "rill: %s: %s\n", where, why->text);
    return 1;
}

bool command_bad_option(int answer, char **argv, failure *why)
{
    const char *word = argv[optind - 1];
    bool known = optopt != 0 && strncmp(word, "--", 2) == 0; /* a long option that takes no value, with one */
    if (answer == ':') return failure_set(why, "'%s' needs a value (--help tells more)", word);
    if (known) return failure_set(why, "'%s': this option takes no value", word);
    if (optopt) return failure_set(why, "'-%c' is not an option (--help tells more)", optopt);
    return failure_set(why, "'%s' is not an option (--help tells more)", word);
}

bool command_take(const char **value, const char *name, failure *why)
{
    if (*value) return failure_set(why, "'%s' is given twice", name);
    *value = optarg;
    return true;
}

int command_usage(const char *text, int requested)
{
    fputs(text, requested ? stdout : stderr);
    return requested ? 0 : 1;
}

static int help(int requested)
{
    FILE *stream = requested ? stdout : stderr;
    fputs("usage: rill COMMAND [ARGUMENTS]   (rill COMMAND --help tells more)\n"
          "       rill --help | --version\n\n",
          stream);
    for (int i = 0; i < COMMANDS; i++) fprintf(stream, "  %-6s %s\n", commands[i].name, commands[i].summary);
    return requested ? 0 : 1;
}

static int version(void)
{
    printf("rill %d.%d.%d\n", RILL_VERSION_MAJOR, RILL_VERSION_MINOR, RILL_VERSION_PATCH);
    return 0;
}

static int run(int argc, char **argv)
{
    if (argc < 2) return help(0);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) return help(1);
    if (strcmp(argv[1], "--version") == 0) return version();
    for (int i = 0; i < COMMANDS; i++)
        if (strcmp(argv[1], commands[i].name) == 0) return commands[i].run(argc - 1, argv + 1);
    fprintf(stderr, "rill: '%s' is not a command\n", argv[1]);
    return help(0);
}

/* What was printed counts only when it has arrived: a full disk may tell at the very end. */
int main(int argc, char **argv)
{
    int status = run(argc, argv);
    if (fflush(stdout) == 0 && !ferror(stdout)) return status;
    fprintf(stderr, "rill: standard output cannot be written\n");
    return 1;
}
