// What the models of C callables are given, and what a frame that is about to be entered was announced as.
//
// Both live on the recorder's stack for the length of one instruction and borrow the arguments from the real
// value stack. Thread: the recording one, with the GIL. Example: Flow len(CallContext& ctx, Shadow& result).
#pragma once

#include <vector>

#include "capture/shadow.h"

namespace kintsugi::capture {

class Recorder;

// How a C callable is modelled; see capture/calls/.
struct CallContext {
  Recorder& rec;
  ShadowFrame& frame;
  Activation& act;
  const Instr& instr;
  PyObject* callable;  // the function without a bound self
  Shadow callableShadow;
  PyObject* const* args;  // positional (self first), then keyword values; borrowed from the real stack
  const Shadow* shadows;  // of args
  size_t positional;
  PyObject* kwnames;   // tuple or null
  size_t popped = 0;   // by the call instruction
  bool pushes = true;  // the instruction leaves one result on the stack
  bool metaPure =
      false;  // a call that makes no operation and whose result follows from metadata and pinned arguments
  bool veilSlices = false;  // see sizes.h
  bool pinNumbers = false;  // numbers of the run are pinned: the callable is not torch's (see symbolic.cc)
  size_t total() const { return positional + (kwnames ? static_cast<size_t>(PyTuple_GET_SIZE(kwnames)) : 0); }
};

// What a frame that is about to be entered was announced as.
struct PendingFrame {
  PyObject* code = nullptr;
  pyapi::Ref<> function;
  Shadow functionShadow;
  std::vector<PyObject*> args;
  std::vector<Shadow> shadows;
  size_t positional = 0;
  PyObject* kwnames = nullptr;
  CallSite site;
  bool rebuildable = true;
  bool selfIsNew = false;        // a constructor's __init__: the first argument becomes known at entry
  Virtual* generator = nullptr;  // a suspended generator is resumed
  bool pinResult = false;        // C code converts the result: it has to be a constant
  bool active = false;
};

}  // namespace kintsugi::capture
