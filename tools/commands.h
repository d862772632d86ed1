/* The commands: each takes its own arguments (argv[0] is its name) and answers an exit status. */
#ifndef TOOLS_COMMANDS_H
#define TOOLS_COMMANDS_H

#include <stdbool.h>

#include "failure.h"

int command_info(int argc, char **argv);
int command_run(int argc, char **argv);
int command_check(int argc, char **argv);
int command_bench(int argc, char **argv);

/* Prints "rill: WHERE: what" and answers the exit status of every failure, 1. */
int command_fail(const char *where, const failure *why);

/* Says what is wrong with the word that getopt_long has just answered with '?' or ':' (its options begin with ':').
 */
bool command_bad_option(int answer, char **argv, failure *why);

/* Takes the value of an option that may be given once. */
bool command_take(const char **value, const char *name, failure *why);

/* Prints a usage text and answers 0 on request (stdout) or 1 after a slip (stderr). */
int command_usage(const char *text, int requested);

#endif
