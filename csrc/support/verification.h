// The process's verification mode: are the data structures that layers pass to each other verified (traces,
// segments, tensor graphs, plans, shadows), and does a failed check abort?
//
// Verifiers are always on in debug builds; in release builds when asked for (`KINTSUGI_VERIFY`). Their
// findings are failed checks (support/check.h). All failed checks are counted, so that a test can't pass
// because a call that we got wrong ran in eager mode.
//
// State of the process; any thread, no GIL.
#pragma once

#include <cstdint>
#include <string>

namespace kintsugi {

enum class Verification : uint8_t {
  kOff,
  kOn,
  kAbort,  // and failed checks abort, as in debug builds
};

void setVerification(Verification verification);
bool verifying();
bool abortsOnFailedCheck();

// Since the process began.
uint64_t failedCheckCount();
// What the newest one said; empty: none has failed.
std::string lastFailedCheck();
// Called by checkFailed() alone.
void noteFailedCheck(const std::string& text);

}  // namespace kintsugi
