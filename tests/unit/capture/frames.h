// Shadow frames for tests, of Python functions that run.
//
// The frame lives for the length of `body`; GIL held. Example:
//
//   inFrame("f()", [](ShadowFrame& frame) { EXPECT_EQ(localOf(frame, 0), Py_None); });
#pragma once

#include <functional>

#include "capture/shadow.h"
#include "pyapi/code.h"
#include "pyapi/frame.h"
#include "unit/capture/python_objects.h"

namespace kintsugi::capture::test {

// Runs `call`, which has to reach `grab()` in a Python function, and calls `body` there with a shadow of this
// function's frame: locals are the real ones, with null shadows, and the stack is empty.
inline void inFrame(const char* call, const std::function<void(ShadowFrame&)>& body) {
  static const std::function<void(ShadowFrame&)>* now = nullptr;
  static PyMethodDef definition = {
      "grab",
      [](PyObject*, PyObject*) {
        Activation act{};
        act.tstate = PyThreadState_Get();
        act.frame = pyapi::currentFrame(act.tstate);
        act.sp = pyapi::stackBase(act.frame);
        ShadowFrame frame;
        frame.act = &act;
        frame.code = pyapi::codeOf(act.frame);
        frame.function = pyapi::newRef(reinterpret_cast<PyObject*>(pyapi::functionOf(act.frame)));
        frame.functionShadow = Shadow::constant();
        frame.locals.resize(static_cast<size_t>(pyapi::localsPlusCount(frame.code)));
        (*now)(frame);
        return Py_NewRef(Py_None);
      },
      METH_NOARGS, nullptr};
  const pyapi::Ref<> grab = pyapi::steal(PyCFunction_New(&definition, nullptr));
  PyDict_SetItemString(names(), "grab", grab.get());
  now = &body;
  value(call);
}

// The object of a local variable of the frame; borrowed.
inline PyObject* localOf(const ShadowFrame& frame, int index) {
  return pyapi::localAt(frame.act->frame, index);
}

}  // namespace kintsugi::capture::test
