// Raising Python exceptions exactly as CPython's evaluator words them.
//
// Threads: the GIL is needed. All functions but takeRaised() leave an exception pending.
// Example: { const PendingErrorScope kept; if (PyObject_IsTrue(x) < 0) PyErr_Clear(); }
#pragma once

#include "pyapi/internal.h"

namespace kintsugi::pyapi {

// `exception` with `format` % the variable's name (a str); a NameError also gets its `name` attribute.
void raiseForName(PyObject* exception, const char* format, PyObject* name);
inline constexpr const char* kNameErrorMessage = "name '%.200s' is not defined";

// UnboundLocalError or NameError for the unset local, cell or free variable `index`.
void raiseUnbound(PyCodeObject* code, uint32_t index);

// Makes `value` (a borrowed exception instance) the pending exception, with its own traceback.
void restoreRaised(PyObject* value);

// `exception` with `format` % `argument` (a %s), whose cause is the pending exception.
inline void raiseFromPending(PyObject* exception, const char* format, const char* argument) {
  _PyErr_FormatFromCause(exception, format, argument);
}

// Takes the pending exception, normalized and with its traceback set; the caller owns the result.
PyObject* takeRaised();

// Sets the pending exception aside during its lifetime, if there is one, and restores it at the end of the
// scope.
class PendingErrorScope {
 public:
  PendingErrorScope() { PyErr_Fetch(&type_, &value_, &traceback_); }
  PendingErrorScope(const PendingErrorScope&) = delete;
  PendingErrorScope& operator=(const PendingErrorScope&) = delete;
  ~PendingErrorScope() { PyErr_Restore(type_, value_, traceback_); }

 private:
  PyObject *type_ = nullptr, *value_ = nullptr, *traceback_ = nullptr;
};

}  // namespace kintsugi::pyapi
