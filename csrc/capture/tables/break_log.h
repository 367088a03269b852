// Whether the recording still goes on, why it ended, and the graph breaks in it.
//
// The end of a recording is not an error in the program: the call goes on unrecorded. If the user has
// declared breaks to be errors (`fullgraph=True`), the first break is *refused*: an exception is raised
// before the next instruction runs.
//
// Plain data; owned by the Recorder. The recording thread. Borrows failedIn(): whoever sets it keeps the code
// object alive. Example: breaks.end(diagnostic); if (!breaks.isLive()) ...
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "diag/diagnostic.h"
#include "pyapi/ref.h"

namespace kintsugi::capture {

class BreakLog {
 public:
  bool isLive() const { return live_; }
  void end(diag::Diagnostic why) {
    live_ = false;
    failure_ = std::move(why);
  }
  void complete() { live_ = false; }  // the trace has its last instruction
  const std::optional<diag::Diagnostic>& failure() const { return failure_; }
  std::optional<diag::Diagnostic> takeFailure() { return std::move(failure_); }

  // The code object that the next recording treats as an opaque step; null: the entry function itself.
  PyObject* failedIn() const { return failedIn_; }
  void setFailedIn(PyObject* code) { failedIn_ = code; }

  void add(diag::Diagnostic diagnostic) { breaks_.push_back(std::move(diagnostic)); }
  diag::Diagnostic* last() { return breaks_.empty() ? nullptr : &breaks_.back(); }
  std::vector<diag::Diagnostic> takeBreaks() { return std::move(breaks_); }

  // The first break, where breaks are errors. `raise`: its exception is raised before the next instruction.
  bool isRefused() const { return refused_.has_value(); }
  void refuse(diag::Diagnostic diagnostic, bool raise) {
    refused_ = std::move(diagnostic);
    raises_ = raises_ || raise;
  }
  bool isToBeRaised() const { return raises_; }
  const diag::Diagnostic& noteRaised() {
    raises_ = false;
    return *refused_;
  }
  std::optional<diag::Diagnostic> takeRefused() { return std::move(refused_); }

 private:
  bool live_ = true;
  std::optional<diag::Diagnostic> failure_;
  PyObject* failedIn_ = nullptr;
  std::vector<diag::Diagnostic> breaks_;
  std::optional<diag::Diagnostic> refused_;
  bool raises_ = false;
};

}  // namespace kintsugi::capture
