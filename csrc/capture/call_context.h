// What a model of a C callable is given, and the announcement of a frame that is about to be entered.
//
// Both live on the recorder's stack for the length of one instruction and borrow the arguments from the real
// value stack. Thread: the recording one, with the GIL. Example: Flow len(CallContext& ctx, Shadow& result).
#pragma once

#include <exception>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "capture/shadow.h"
#include "pyapi/text.h"

namespace kintsugi::capture {

struct RecordContext;

// Kinds of steps. Opaque: may change anything. Known: changes nothing that guards read. Pure: changes
// nothing, and its result follows from its arguments.
enum class CallKind : uint8_t { kOpaque, kKnown, kPure };

// Thrown when a model asks for an argument that the call does not have: the program calls a C function with
// too few arguments, or in a form that the model does not know. This is no failed check of ours. dispatch()
// in record/calls.cc catches it and makes the call as written: an opaque step, which raises what the function
// raises. Example: `len()` raises TypeError.
struct MissingArgument : std::exception {
  const char* what() const noexcept override {
    return "a model reads an argument that the call does not have";
  }
};

// The values of a call: the positional ones (self first), then those of the keywords. Borrowed from the
// stack.
template <typename T>
class ArgumentList {
 public:
  ArgumentList() = default;
  ArgumentList(const T* values, size_t positional, size_t total)
      : values_(values), positional_(positional), total_(total) {}

  // A positional argument; throws MissingArgument.
  const T& operator[](size_t i) const { return checked(i, positional_); }
  // Any argument, for loops over positional and keyword ones.
  const T& any(size_t i) const { return checked(i, total_); }
  const T* begin() const { return values_; }
  const T* end() const { return values_ + total_; }
  std::span<const T> slice(size_t first, size_t last) const {
    if (first > last || last > total_) throw MissingArgument();
    return {values_ + first, last - first};
  }
  // Puts as many other values in place of these.
  void replace(const T* values) { values_ = values; }

 private:
  const T& checked(size_t i, size_t end) const {
    if (i >= end) throw MissingArgument();
    return values_[i];
  }

  const T* values_ = nullptr;
  size_t positional_ = 0;
  size_t total_ = 0;
};

// A call that an instruction makes: the callee, its arguments, and where they are.
struct CallValues {
  CallValues(ShadowFrame& shadowFrame, Activation& activation, const Instr& instruction)
      : frame(shadowFrame), act(activation), instr(instruction) {}

  // Sets the callee and its arguments. The arrays are borrowed: positional arguments, then the values of
  // `names` (a tuple of keywords, or null).
  void set(PyObject* function, Shadow shadow, PyObject* const* values, const Shadow* shadowsOfValues,
           size_t count, PyObject* names = nullptr) {
    callable = function;
    callableShadow = shadow;
    positional = count;
    kwnames = names;
    args = {values, count, total()};
    shadows = {shadowsOfValues, count, total()};
  }

  // The name of a keyword argument; `i` counts like `args`.
  PyObject* nameOf(size_t i) const {
    return PyTuple_GET_ITEM(kwnames, static_cast<Py_ssize_t>(i - positional));
  }
  // The index of the argument with this keyword, which is ASCII.
  std::optional<size_t> keyword(std::string_view name) const {
    for (size_t i = positional; i < total(); ++i) {
      if (name == pyapi::ascii(nameOf(i))) return i;
    }
    return std::nullopt;
  }

  // The same for any name.
  std::optional<size_t> keyword(PyObject* name) const {
    for (size_t i = positional; i < total(); ++i) {
      if (PyUnicode_Compare(name, nameOf(i)) == 0) return i;
    }
    return std::nullopt;
  }

  size_t total() const { return positional + (kwnames ? static_cast<size_t>(PyTuple_GET_SIZE(kwnames)) : 0); }

  ShadowFrame& frame;
  Activation& act;
  const Instr& instr;
  PyObject* callable = nullptr;  // the function without a bound self
  Shadow callableShadow;
  ArgumentList<PyObject*> args;
  ArgumentList<Shadow> shadows;  // of args
  size_t positional = 0;
  PyObject* kwnames = nullptr;  // tuple or null
  size_t popped = 0;            // by the call instruction
  bool pushes = true;           // the instruction leaves one result on the stack
  int resultDepth = 1;          // its depth: 1 is the top
};

// A call of torch's code, whose operators are recorded (torch_steps.h).
struct TorchCall : CallValues {
  using CallValues::CallValues;

  // A call that makes no operation and whose result follows from metadata and pinned arguments.
  bool onlyReadsMetadata = false;
  // Computes what the instruction would return for its first argument, through the dispatcher, which the
  // instruction itself bypasses. Returns a new reference. Null: the instruction is executed.
  PyObject* (*dispatchedCall)(PyObject*) = nullptr;
  bool hideSliceBounds = false;  // from a binding that must not see them (torch_steps_symbolic.cc)
  // Pins run-time numbers: the callable is not torch's (see torch_steps_symbolic.cc).
  bool pinNumbers = false;
};

// How a C callable is modelled; see capture/calls/.
struct CallContext : TorchCall {
  CallContext(RecordContext& context, ShadowFrame& shadowFrame, Activation& activation,
              const Instr& instruction)
      : TorchCall(shadowFrame, activation, instruction), rec(context) {}
  CallContext(RecordContext& context, const TorchCall& call) : TorchCall(call), rec(context) {}

  CallContext& of(PyObject* function, Shadow shadow, PyObject* const* values, const Shadow* shadowsOfValues,
                  size_t count, PyObject* names = nullptr) {
    set(function, shadow, values, shadowsOfValues, count, names);
    return *this;
  }

  RecordContext& rec;
};

// The announcement of a frame that is about to be entered.
struct PendingFrame {
  PyObject* code = nullptr;
  pyapi::Ref<> function;
  Shadow functionShadow;
  PooledVector<PyObject*> args;
  Shadows shadows;
  size_t positional = 0;
  PyObject* kwnames = nullptr;
  CallSite site;
  bool rebuildable = true;
  bool selfIsNew = false;        // a constructor's __init__: the first argument becomes known at entry
  Virtual* generator = nullptr;  // a suspended generator is resumed
  bool pinResult = false;        // C code converts the result, so it has to be a constant
  bool active = false;
};

}  // namespace kintsugi::capture
