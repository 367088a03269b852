// CPython 3.14's frames. What each function means is the same in each version; pyapi/frame.h is what others
// include.
//
// Ownership, threads and invalidation: see there.
#pragma once

#include "pyapi/v314/references.h"

#include "pyapi/since313/frame.h"
#include "pyapi/v314/slots.h"
