// The stack of torch's function modes in this thread.
//
// GIL held; no Python code runs. Example: const FunctionModesOff off; runs what a graph is made of, which no
// mode of the program's is to see a second time.
#pragma once

#include "pyapi/ref.h"

namespace kintsugi::torchapi {

// The mode that torch asks first; borrowed. Null: there is none.
PyObject* innermostFunctionMode();

bool hasDispatchModes();
// True if operators call Python code that is not known by its frames: a dispatch mode, also one of torch's
// own, which keeps what it sees in objects of the program; or a hook for what autograd saves that is no
// function.
bool operatorsCallUnseen();
// True if operators call more Python code than kernels: a dispatch mode, or a hook for what autograd saves.
bool operatorsCallModesOrHooks();

// No mode of the program's is asked, nor is a class of tensors with a __torch_function__. Where no mode is
// active but that of torch.set_default_device(), nothing is changed.
class FunctionModesOff {
 public:
  FunctionModesOff();
  ~FunctionModesOff();
  FunctionModesOff(const FunctionModesOff&) = delete;
  FunctionModesOff& operator=(const FunctionModesOff&) = delete;

 private:
  friend class FunctionModesBack;
  int before_ = -1;  // the state to go back to; -1: it was left alone
  FunctionModesOff* outer_;
};

// In the middle of such a stretch: the state before it, for a step of the program.
class FunctionModesBack {
 public:
  FunctionModesBack();
  ~FunctionModesBack();
  FunctionModesBack(const FunctionModesBack&) = delete;
  FunctionModesBack& operator=(const FunctionModesBack&) = delete;

 private:
  int before_ = -1;
};

}  // namespace kintsugi::torchapi
