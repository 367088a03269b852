#include "capture/calls/targets.h"

namespace kintsugi::capture {

namespace {

CompiledTarget target = nullptr;

}  // namespace

void setCompiledTarget(CompiledTarget function) { target = function; }

PyObject* compiledTargetOf(PyObject* object) { return target != nullptr ? target(object) : nullptr; }

}  // namespace kintsugi::capture
