/* What must hold of a case file beyond its format, before any of it is computed. */
#ifndef TOOLS_CASEFILE_CHECK_H
#define TOOLS_CASEFILE_CHECK_H

#include "casefile.h"

/* Required inputs are there, outputs have a size in proportion to the file, expected values have the outputs' shapes.
 */
bool casefile_check(const casefile *read, failure *why);

#endif
