// What is promised of a modelled C callable beyond the model itself, as data. The tests attack each promise
// (tests/python/test_call_facts.py, test_call_models.py, test_call_rows.py), and a row that contradicts its
// model does not compile (table.h).
//
// Facts are part of a row of a model table (model.h). docs/howto/add-a-c-callable-model.md says how a row is
// written. Plain data without an owner, for any thread; no GIL needed. Examples:
//
//   {"builtins.len", lenModel, gives("int").raises("ValueError")},
//   {"torch.is_grad_enabled", constantModel, dependsOn(StateWord::kGradMode).gives("bool")},
//   {"_thread.LockType.acquire", blockingModel, waits().runsNoPython().gives("bool")},
#pragma once

#include <cstdint>

namespace kintsugi::capture {

// The state of the process that a call may depend on. All of it is in torchapi::GlobalState, which every
// trace guards, except the last two, which can't change.
enum class StateWord : uint8_t {
#define KINTSUGI_STATE_WORD(name, text) name,
#include "capture/calls/state_words.def"
#undef KINTSUGI_STATE_WORD
  kUnnamed,  // none
};

// What the result depends on beside the arguments and the named state.
enum class Reads : uint8_t {
  kArguments,  // nothing
  kProcess,    // state of the process that no guard has. Each run asks again.
  kWorld,      // a clock, random bits, an address: no two calls return the same
};

// What the call may change.
enum class Writes : uint8_t {
  kArguments,       // nothing else
  kProcess,         // modes and flags, random state, caches, what was printed
  kOtherProcesses,  // the same, and other processes
};

// For whom the call may wait. Other threads run while any call lasts; here something has to happen before it
// returns.
enum class Waits : uint8_t {
  kNever,
  // For other processes that take part in a collective. What other threads of this process do meanwhile is
  // seen as what they do beside an operator is (docs/adr/0025-what-rows-of-models-promise.md).
  kProcesses,
  // For another thread, a file or a clock. Whoever it waits for may have changed anything, so everything is
  // read again behind it.
  kThreads,
};

// Which Python code of the program's may run in the call.
enum class Python : uint8_t {
  kNone,  // none, whatever the call is given
  // Special methods of its arguments and of what is in them, and functions among them. The model refuses
  // such arguments, records the code as frames, or what runs is noticed and everything is read again.
  kOfArguments,
  kAny,  // hooks, handlers, streams: the arguments don't show it. Everything is read again.
};

// Facts of one callable.
struct Facts {
  StateWord state = StateWord::kUnnamed;
  Reads reads = Reads::kArguments;
  Writes writes = Writes::kArguments;
  Waits waits = Waits::kNever;
  Python python = Python::kOfArguments;
  // The exact types of results, as names: "int", "torch.Tensor", "None"; "argument" is one of the call's
  // arguments. "any: why" where no list can be given.
  const char* results = nullptr;
  // The classes of exceptions, those of the program's code apart. TypeError, for arguments that it does not
  // take, need not be named. "any: why" as above.
  const char* errors = "";

  constexpr Facts gives(const char* types) const {
    Facts facts = *this;
    facts.results = types;
    return facts;
  }
  constexpr Facts raises(const char* classes) const {
    Facts facts = *this;
    facts.errors = classes;
    return facts;
  }
  constexpr Facts runsNoPython() const {
    Facts facts = *this;
    facts.python = Python::kNone;
    return facts;
  }
  constexpr Facts runsAnyPython() const {
    Facts facts = *this;
    facts.python = Python::kAny;
    return facts;
  }
  constexpr Facts alsoWaits() const {
    Facts facts = *this;
    facts.waits = Waits::kThreads;
    return facts;
  }
};

// Facts to begin with.
constexpr Facts gives(const char* types) { return Facts{}.gives(types); }
constexpr Facts dependsOn(StateWord state) { return Facts{.state = state}; }
constexpr Facts waits() { return Facts{.waits = Waits::kThreads}; }
inline constexpr Facts kReadsProcess{.reads = Reads::kProcess};
inline constexpr Facts kReadsWorld{.reads = Reads::kWorld};
inline constexpr Facts kWritesProcess{.writes = Writes::kProcess};
inline constexpr Facts kWaitsForProcesses{.writes = Writes::kOtherProcesses, .waits = Waits::kProcesses};

// Results that no list of types describes.
inline constexpr const char* kAnItem = "any: an item of an argument, or what is stored with it";
inline constexpr const char* kOfOperands = "any: what the operands make of the operation";
inline constexpr const char* kOfFunction = "any: what the function gives that it calls";
inline constexpr const char* kOfItsKind = "any: an object of the class of an argument";
inline constexpr const char* kItsObject = "any: an object of the class that is called";
// Exceptions likewise.
inline constexpr const char* kFromOperands = "any: what the operands say of the operation";
inline constexpr const char* kFromFunction = "any: what the function raises that it calls";

const char* nameOf(StateWord word);
const char* nameOf(Reads reads);
const char* nameOf(Writes writes);
const char* nameOf(Waits waits);
const char* nameOf(Python python);

}  // namespace kintsugi::capture
