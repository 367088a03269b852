// What the fake torch of these tests (fake_torch.cc) does.
//
// A test sets it and resets it. Example: fakeTorch().modes = true;
#pragma once

#include "torchapi/sym_number.h"

namespace kintsugi::capture::test {

struct FakeTorch {
  bool modes = false;
  bool functionModes = false;
  bool unseenCode = false;  // operators call Python code that is not known by its frames
  // Whom the last symbolic number asks for a pin. Symbolic numbers are instances of a class `Symbolic` that a
  // test has defined, made of the value and the number.
  torchapi::NumberSink* sink = nullptr;
};
FakeTorch& fakeTorch();

}  // namespace kintsugi::capture::test
