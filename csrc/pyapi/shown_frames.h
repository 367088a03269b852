// Frames that are put on a thread's chain for others to see, and that are never evaluated. warnings, logging,
// inspect and sys._getframe() find them there.
//
// Ownership: a frame borrows its function and code, and owns its variables; a frame object that somebody made
// of it and kept gets references and a copy of its own when the frame goes. They count towards the recursion
// limit. Threads: GIL; lives on the stack of the thread that it is for. Invalidation: the frames are gone
// with it. Example:
//   ShownFrames frames; frames.allocate(ShownFrames::sizeOf(code), 1); frames.push(function, code, unit);
#pragma once

#include <memory>
#include <vector>

#include "pyapi/frame.h"

namespace kintsugi::pyapi {

class ShownFrames {
 public:
  ShownFrames();
  ~ShownFrames();
  ShownFrames(const ShownFrames&) = delete;
  ShownFrames& operator=(const ShownFrames&) = delete;

  // The memory that a frame of this code takes.
  static size_t sizeOf(const PyCodeObject* code);
  // Once, before the first push(): for the sum of the sizes, and for so many frames.
  void allocate(size_t size, int count);
  // Puts a frame without variables on top; `unit`: the instruction that it is at.
  Frame* push(PyFunctionObject* function, PyCodeObject* code, int32_t unit);
  // Gives the top frame's free variables that have no cell yet those of its function.
  void fillFreeVariables();

 private:
  PyThreadState* tstate_;
  EvaluationState state_;
  std::unique_ptr<char[]> memory_;
  char* next_ = nullptr;
  std::vector<Frame*> frames_;  // outermost first
  int levels_ = 0;              // that the frames take of the recursion limit
};

}  // namespace kintsugi::pyapi
