// Detection: what the machine has that the process runs on.
//
// Vector instructions come from the processor (cpuid). Cache sizes come from /sys, which is right in virtual
// machines too, then from sysconf(). What neither reports keeps Machine's default. Ownership: none. Threads:
// any.
#pragma once

#include <string>

#include "support/target.h"

namespace kintsugi {

// Looked up once.
const Machine& hostMachine();
// Reads the caches that a folder like /sys/devices/system/cpu/cpu0/cache describes into `machine`. A field
// that is missing or makes no sense there keeps its value.
void readCaches(const std::string& folder, Machine& machine);

}  // namespace kintsugi
