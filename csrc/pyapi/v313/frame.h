// CPython 3.13's frames. What each function means is the same in each version; pyapi/frame.h is what others
// include.
//
// Ownership, threads and invalidation: see there.
#pragma once

#include "pyapi/until313/references.h"

#include "pyapi/since313/frame.h"
#include "pyapi/until313/slots.h"
