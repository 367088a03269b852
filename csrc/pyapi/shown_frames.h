// Frames that are put on a thread's chain for others to see, and that are never evaluated. warnings, logging,
// inspect and sys._getframe() find them there.
//
// Ownership: a frame borrows its function and code, and owns its variables. If somebody keeps its frame
// object, the object gets a copy of the frame, with references, when the frame is removed. The frames count
// towards the recursion limit. Threads: GIL; lives on the C stack of the thread whose frames it adds.
// Invalidation: its destructor removes the frames. Example:
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

  // The size of a frame of this code.
  static size_t sizeOf(const PyCodeObject* code);
  // Call once, before the first push(), with the sum of the sizes and the number of frames.
  void allocate(size_t size, int count);
  // Puts a frame without variables on top; `unit`: the instruction that it is at.
  Frame* push(PyFunctionObject* function, PyCodeObject* code, int32_t unit);
  // Free variables of the top frame that have no cell yet get the cells of its function.
  void fillFreeVariables();

 private:
  PyThreadState* tstate_;
  EvaluationState state_;
  std::unique_ptr<char[]> memory_;
  char* next_ = nullptr;
  char* end_ = nullptr;
  std::vector<Frame*> frames_;  // outermost first
  int levels_ = 0;              // how much of the recursion limit the frames take
};

}  // namespace kintsugi::pyapi
