// Fakes of what reads: elements of sequences, and what is read again behind a step.
#pragma once

#include <string>

#include "capture/roles.h"

namespace kintsugi::capture::test {

struct FakeSequences final : SequenceReads {
  Shadows elements;
  bool fits = true;
  std::optional<Shadows> elementsOf(Shadow, PyObject*) override { return elements; }
  bool fitsList(const Overlay&) override { return fits; }
};

// Writes down what it is asked for.
struct FakeReads final : StaleReads {
  std::string calls;
  void invalidateReads() override { calls += "invalidate "; }
  void forgetEscapedObjects() override { calls += "forget "; }
  void flushBlock() override { calls += "flush "; }
  void flushBlockAt(ir::StateId) override { calls += "flush "; }
  void readAgain() override { calls += "again "; }
};

}  // namespace kintsugi::capture::test
