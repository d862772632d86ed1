#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool output_open(output *made, const char *path, failure *why)
{
    *made = (output){.path = path};
    int descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    made->discard = descriptor >= 0;
    if (descriptor < 0 && errno == EEXIST) descriptor = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor >= 0) made->file = fdopen(descriptor, "wb");
    if (made->file) return true;
    failure_set(why, "cannot write: %s", strerror(errno));
    if (descriptor >= 0) close(descriptor);
    return false;
}

bool output_is(const output *made, const char *path)
{
    struct stat mine, other;
    if (fstat(fileno(made->file), &mine) != 0 || stat(path, &other) != 0) return false;
    return S_ISREG(mine.st_mode) && mine.st_dev == other.st_dev && mine.st_ino == other.st_ino;
}

bool output_begin(output *made, failure *why)
{
    struct stat status;
    if (fstat(fileno(made->file), &status) != 0 || !S_ISREG(status.st_mode)) return true; /* a pipe, a terminal */
    made->discard = true;
    return ftruncate(fileno(made->file), 0) == 0 ? true : failure_set(why, "cannot write: %s", strerror(errno));
}

bool output_close(output *made, bool good, failure *why)
{
    if (!made->file) return good;
    struct stat status;
    if (fclose(made->file) != 0 && good) good = failure_set(why, "cannot write: %s", strerror(errno));
    made->file = NULL;
    if (!good && made->discard && lstat(made->path, &status) == 0 && S_ISREG(status.st_mode)) unlink(made->path);
    return good;
}
