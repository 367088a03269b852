// What is promised of a modelled C callable beyond the model itself, as data: the tests attack each promise
// (tests/python/test_call_models.py), and a row whose result depends on state of the process that no guard
// covers does not build.
//
// Facts are part of a row of a model table (model.h). What a row leaves out follows from its model, as
// docs/howto/add-a-c-callable-model.md says. Plain data, for any thread.
#pragma once

#include <cstdint>

namespace kintsugi::capture {

// The words of the process's state that a call may depend on. All of them are in torchapi::GlobalState, which
// every trace is guarded by, but for the last two, which can't change.
enum class StateWord : uint8_t {
#define KINTSUGI_STATE_WORD(name, text) name,
#include "capture/calls/state_words.def"
#undef KINTSUGI_STATE_WORD
  kUnnamed,  // the row does not say: it does not build where its result is taken for a constant
};

// What its result depends on beside its arguments and the state word.
enum class Reads : uint8_t {
  kArguments,  // nothing
  kWorld,      // a clock, random bits, the place of an object: no two calls give the same
};

// What it may leave changed.
enum class Writes : uint8_t {
  kArguments,       // nothing else
  kProcess,         // modes and flags, random state, caches, what was printed
  kOtherProcesses,  // the same, and other processes, for which it may wait
};

// Facts of one callable.
struct Facts {
  StateWord state = StateWord::kUnnamed;
  Reads reads = Reads::kArguments;
  Writes writes = Writes::kArguments;
};
inline constexpr Facts kReadsWorld{StateWord::kUnnamed, Reads::kWorld};
inline constexpr Facts kWritesProcess{StateWord::kUnnamed, Reads::kArguments, Writes::kProcess};

inline constexpr Facts kWaitsForProcesses{StateWord::kUnnamed, Reads::kArguments, Writes::kOtherProcesses};

const char* nameOf(StateWord word);

}  // namespace kintsugi::capture
