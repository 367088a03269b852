// What the checks of rows refuse, one line a rule.
#include "capture/calls/table.h"

namespace kintsugi::capture {

#ifndef KINTSUGI_DEBUG  // see firstContradiction()
namespace {

constexpr Facts kFlag = dependsOn(StateWord::kGradMode).gives("bool").runsNoPython();

constexpr bool refused(CallModel model, Facts facts) {
  return contradictionOf({"a.row", model, facts}) != nullptr;
}

static_assert(!refused(constantModel, kFlag));
static_assert(refused(constantModel, gives("bool").runsNoPython()));                   // no state
static_assert(refused(constantModel, dependsOn(StateWord::kGradMode).gives("bool")));  // Python code
static_assert(refused(knownModel, Facts{}));                                           // no results
static_assert(refused(foldModel, kReadsProcess.gives("int")));
static_assert(refused(foldModel, kReadsWorld.gives("float")));
static_assert(refused(foldModel, kWritesProcess.gives("None")));
static_assert(refused(knownModel, gives("None").runsAnyPython()));
static_assert(!refused(outputModel, gives("None").runsAnyPython()));
static_assert(refused(knownModel, waits().gives("bool")));
static_assert(refused(blockingModel, gives("bool")));  // it does not say that it waits
static_assert(!refused(blockingModel, waits().gives("bool")));
static_assert(!refused(knownModel, kWaitsForProcesses.gives("None")));
static_assert(refused(knownModel, Facts{.waits = Waits::kProcesses}.gives("None")));

}  // namespace
#endif

}  // namespace kintsugi::capture
