/* Marks what the shared library exports. */
#ifndef RILL_EXPORT_H
#define RILL_EXPORT_H

#if defined(__GNUC__)
#define RILL_API __attribute__((visibility("default")))
#else
#define RILL_API
#endif

#endif
