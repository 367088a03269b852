#include "capture/breaks.h"

#include <algorithm>
#include <string_view>

#include "capture/record_breaks.h"
#include "pyapi/code.h"
#include "pyapi/errors.h"
#include "pyapi/frame.h"
#include "pyapi/imports.h"
#include "pyapi/lazy.h"
#include "pyapi/opcodes.h"
#include "pyapi/text.h"

namespace kintsugi::capture {

namespace {

diag::SourceLoc placeOf(const ShadowFrame& frame) {
  diag::SourceLoc place;
  place.file = pyapi::utf8(pyapi::fileOf(frame.code));
  place.function = pyapi::utf8(pyapi::nameOf(frame.code));
  // The frame of a suspended generator is not on the stack, so it has no activation.
  const int32_t unit =
      frame.act != nullptr && frame.act->frame != nullptr ? pyapi::runningUnit(frame.act->frame) : 0;
  place.line = pyapi::lineAt(frame.code, std::max(unit, 0));
  return place;
}

// The folder of an imported module's file, with a trailing slash; empty if there is no file.
std::string folderOf(const char* name) {
  pyapi::Ref<> module = pyapi::steal(pyapi::importModule(name));
  pyapi::Ref<> file =
      module ? pyapi::steal(PyObject_GetAttrString(module.get(), "__file__")) : pyapi::Ref<>();
  const std::string path = file && PyUnicode_Check(file.get()) ? pyapi::utf8(file.get()) : "";
  PyErr_Clear();
  return path.substr(0, path.rfind('/') + 1);
}

// Folders of libraries whose frames are of no interest to the user. Used for messages alone.
struct Folders {
  std::string standard, torch, own;
};
const Folders& folders() {
  static constinit pyapi::Lazy<const Folders*> foundSlot;
  const Folders* found = foundSlot.get([] {
    // A break may be noted while an exception of the program is pending.
    const pyapi::PendingErrorScope kept;
    return new Folders{folderOf("os"), folderOf("torch"), folderOf("kintsugi")};
  });
  return *found;
}

bool isIn(const std::string& file, const std::string& folder) {
  return !folder.empty() && file.starts_with(folder);
}

bool appendPlace(PyObject* list, const diag::SourceLoc& place) {
  pyapi::Ref<> item =
      pyapi::steal(Py_BuildValue("(sis)", place.file.c_str(), place.line, place.function.c_str()));
  return item && PyList_Append(list, item.get()) == 0;
}

}  // namespace

bool isLibrary(const std::string& file) {
  const Folders& known = folders();
  const bool standard = isIn(file, known.standard) &&
                        file.find("/site-packages/", known.standard.size() - 1) == std::string::npos;
  // Programs inside this package (kb/reproducers) count as a user's.
  return standard || isIn(file, known.torch) || isIn(file, known.own + "_") || file.starts_with('<');
}

diag::Diagnostic diagnosticAt(const ShadowFrame* frame, diag::Code code, std::vector<std::string> args) {
  diag::Diagnostic diagnostic(code, std::move(args));
  for (; frame != nullptr; frame = frame->caller) {
    diagnostic.stack.push_back(placeOf(*frame));
  }
  const auto user = std::find_if(diagnostic.stack.begin(), diagnostic.stack.end(),
                                 [](const diag::SourceLoc& place) { return !isLibrary(place.file); });
  if (!diagnostic.stack.empty()) {
    diagnostic.location = user != diagnostic.stack.end() ? *user : diagnostic.stack.front();
  }
  std::reverse(diagnostic.stack.begin(), diagnostic.stack.end());
  return diagnostic;
}

std::vector<diag::SourceLoc> runningFrames() {
  std::vector<diag::SourceLoc> frames;
  pyapi::Frame* frame = pyapi::currentFrame(PyThreadState_Get());
  for (; frame != nullptr; frame = pyapi::previousOf(frame)) {
    PyCodeObject* code = pyapi::codeOf(frame);
    frames.push_back({pyapi::utf8(pyapi::fileOf(code)),
                      pyapi::lineAt(code, std::max(pyapi::runningUnit(frame), 0)),
                      pyapi::utf8(pyapi::nameOf(code))});
  }
  std::reverse(frames.begin(), frames.end());
  return frames;
}

void raiseGraphBreak(const diag::Diagnostic& diagnostic, const char* why) {
  PyErr_Clear();
  pyapi::Ref<> module = pyapi::steal(pyapi::importModule("kintsugi._errors"));
  pyapi::Ref<> stack = pyapi::steal(PyList_New(0));
  bool ok = module && stack;
  for (size_t i = 0; ok && i < diagnostic.stack.size(); ++i)
    ok = appendPlace(stack.get(), diagnostic.stack[i]);
  if (!ok) return;
  const std::string id(diagnostic.id()), name(diagnostic.codeInfo().name);
  pyapi::Ref<> error = pyapi::steal(PyObject_CallMethod(
      module.get(), "graph_break_error", "ssssssisO", why, id.c_str(), name.c_str(),
      diagnostic.message().c_str(), diagnostic.cure().c_str(), diagnostic.location.file.c_str(),
      diagnostic.location.line, diagnostic.location.function.c_str(), stack.get()));
  if (error) PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.get())), error.get());
}

bool Breaks::isStrict() const {
  return options_.fullgraph || (options_.errorOnBreak != nullptr && options_.errorOnBreak());
}

// True if the next instruction drops the result.
bool Breaks::resultUnused() const {
  return frames_.current() != nullptr && frames_.current()->act != nullptr &&
         instruction_.instr() != nullptr &&
         frames_.current()->act->code->at(instruction_.instr()->next).op == op::POP_TOP;
}

void Breaks::noteBreak(diag::Code code, std::vector<std::string> args) {
  if (isStrict()) {
    // A step that is called for its effects alone decides neither values nor branches, so it does not split
    // the graph: it is no break. Writes to its arguments are checked after it has run.
    const bool step =
        code == diag::Code::KTG0101 || code == diag::Code::KTG0102 || code == diag::Code::KTG0107;
    if (!step || !resultUnused()) refuse(diagnosticAt(frames_.current(), code, std::move(args)));
    return;
  }
  breakLog_.add(diagnosticAt(frames_.current(), code, std::move(args)));
}

void Breaks::refuse(const diag::Diagnostic& diagnostic) {
  if (!breakLog_.isRefused() && isStrict()) breakLog_.refuse(diagnostic, true);
}

// For `forbid_in_graph` and the like: raises an AssertionError, even where breaks are no errors. A program
// that swallows the error gets it again at the end of the call (CompiledFunction::insist()).
Flow Breaks::raiseAssertion(const std::string& message) {
  abort(diag::Code::KTG0111, {"AssertionError"});
  breakLog_.refuse(diagnosticAt(frames_.current(), diag::Code::KTG0111, {message}), false);
  instruction_.setExecuted(true);
  PyErr_SetString(PyExc_AssertionError, message.c_str());
  return Flow::kRaise;
}

// Raises the refused break as an exception, in place of the next instruction.
Flow Breaks::raiseRefused() {
  instruction_.setExecuted(true);
  const diag::Diagnostic refused = breakLog_.noteRaised();
  if (breakLog_.isLive()) {
    breakLog_.end(refused);
    operators_.discardOperators();
  }
  raiseGraphBreak(refused, options_.fullgraph ? "fullgraph=True" : "error_on_graph_break");
  return Flow::kRaise;
}

void Breaks::abort(diag::Code code, std::vector<std::string> args) {
  if (!breakLog_.isLive()) return;
  ShadowFrame* current = frames_.current();
  breakLog_.end(diagnosticAt(current, code, std::move(args)));
  PyObject* failedIn = current && current->caller ? reinterpret_cast<PyObject*>(current->code) : nullptr;
  for (ShadowFrame* frame = current; frame != nullptr && frame->caller != nullptr; frame = frame->caller) {
    // A transform is captured as a whole or not at all.
    if (frame->transform) failedIn = reinterpret_cast<PyObject*>(frame->code);
  }
  if (failedIn == nullptr && code != diag::Code::KTG0111) failedIn = virtuals_.newestClassBody();
  breakLog_.setFailedIn(failedIn);
  operators_.discardOperators();
  if (code != diag::Code::KTG0111) refuse(*breakLog_.failure());
}

}  // namespace kintsugi::capture
