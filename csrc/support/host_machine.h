// Detection: what the machine has that the process runs on.
//
// Instructions are asked of the processor, caches of /sys (which is right in virtual machines, too), then of
// sysconf(); what neither tells is what Machine has for a default. Ownership: none. Threads: any.
#pragma once

#include <string>

#include "support/target.h"

namespace kintsugi {

// Looked up once.
const Machine& hostMachine();
// The caches that a folder like /sys/devices/system/cpu/cpu0/cache tells of, into `machine`. What it does not
// tell, or tells wrongly, stays.
void readCaches(const std::string& folder, Machine& machine);

}  // namespace kintsugi
