// What is promised of a modelled C callable beyond the model itself, as data. The tests attack each promise
// (tests/python/test_call_models.py). A row does not compile if its result is a constant and it does not say
// which state of the process the result depends on.
//
// Facts are part of a row of a model table (model.h). What a row leaves out follows from its model, as
// docs/howto/add-a-c-callable-model.md says. Plain data, for any thread.
#pragma once

#include <cstdint>

namespace kintsugi::capture {

// The state of the process that a call may depend on. All of it is in torchapi::GlobalState, which every
// trace guards, except the last two, which can't change.
enum class StateWord : uint8_t {
#define KINTSUGI_STATE_WORD(name, text) name,
#include "capture/calls/state_words.def"
#undef KINTSUGI_STATE_WORD
  kUnnamed,  // the row does not say; it does not compile if its result is a constant
};

// What the result depends on beside the arguments and the state.
enum class Reads : uint8_t {
  kArguments,  // nothing
  kWorld,      // a clock, random bits, an address: no two calls return the same
};

// What the call may change.
enum class Writes : uint8_t {
  kArguments,       // nothing else
  kProcess,         // modes and flags, random state, caches, what was printed
  kOtherProcesses,  // the same, and other processes, for which the call may wait
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
