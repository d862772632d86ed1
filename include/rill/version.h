/* The version of rill: three numbers, the only source of the version and the soname. */
#ifndef RILL_VERSION_H
#define RILL_VERSION_H

#define RILL_VERSION_MAJOR 0
#define RILL_VERSION_MINOR 1
#define RILL_VERSION_PATCH 0

#endif
