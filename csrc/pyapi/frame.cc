#include "pyapi/frame.h"

#include <cstring>

#include "pyapi/code.h"
#include "pyapi/errors.h"
#include "pyapi/ref.h"

namespace kintsugi::pyapi {

PyFrameObject* currentFrameObject(PyThreadState* tstate, Frame* frame) {
  if (frame->frame_obj != nullptr) {
    return frame->frame_obj;
  }
  // CPython does not export the function that makes frame objects. PyEval_GetFrame() makes one for the
  // current frame.
  return currentFrame(tstate) == frame ? PyEval_GetFrame() : nullptr;
}

void keepFrameObject(PyFrameObject* object, Frame* frame) {
  Py_INCREF(codeOf(frame));
  auto* copy = reinterpret_cast<Frame*>(object->_f_frame_data);
  std::memcpy(static_cast<void*>(copy), frame, usedSize(frame));
  moveSlots(copy, frame);
  copy->owner = FRAME_OWNED_BY_FRAME_OBJECT;
  copy->previous = nullptr;
  copy->frame_obj = nullptr;
  if (_PyFrame_IsIncomplete(copy)) {
    setResumeUnit(copy, codeOf(copy)->_co_firsttraceable + 1);
  }
  object->f_frame = copy;
  // The caller is the current frame now, so PyEval_GetFrame() returns its frame object.
  const PendingErrorScope kept;
  if (PyFrameObject* back = PyEval_GetFrame()) {
    object->f_back = reinterpret_cast<PyFrameObject*>(Py_NewRef(reinterpret_cast<PyObject*>(back)));
  } else {
    PyErr_Clear();
  }
  if (PyObject_GC_IsTracked(reinterpret_cast<PyObject*>(object)) == 0) {
    PyObject_GC_Track(object);
  }
}

int lineAt(PyCodeObject* code, int32_t unit) {
  return PyCode_Addr2Line(code, unit * static_cast<int>(sizeof(_Py_CODEUNIT)));
}

int opcodeNumberAt(PyCodeObject* code, int32_t unit) {
  Ref<> bytes = steal(PyCode_GetCode(code));
  PyErr_Clear();
  return bytes ? static_cast<uint8_t>(PyBytes_AS_STRING(bytes.get())[2 * unit]) : -1;
}

void raiseForName(PyObject* exception, const char* format, PyObject* name) {
  const char* text = name == nullptr ? nullptr : PyUnicode_AsUTF8(name);
  if (text == nullptr) {
    return;
  }
  PyErr_Format(exception, format, text);
  if (exception != PyExc_NameError) {
    return;
  }
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (PyErr_GivenExceptionMatches(value, PyExc_NameError) != 0 &&
      reinterpret_cast<PyNameErrorObject*>(value)->name == nullptr &&
      PyObject_SetAttr(value, &_Py_ID(name), name) < 0) {
    PyErr_Clear();  // the name is only used for suggestions
  }
  PyErr_Restore(type, value, traceback);
}

void raiseUnbound(PyCodeObject* code, uint32_t index) {
  if (PyErr_Occurred() != nullptr) {
    return;
  }
  PyObject* name = variableName(code, index);
  if (isFreeVariable(code, index)) {
    raiseForName(
        PyExc_NameError,
        "cannot access free variable '%s' where it is not associated with a value in enclosing scope", name);
  } else {
    raiseForName(PyExc_UnboundLocalError,
                 "cannot access local variable '%s' where it is not associated with a value", name);
  }
}

void restoreRaised(PyObject* value) {
  PyErr_Restore(Py_NewRef(PyExceptionInstance_Class(value)), Py_NewRef(value),
                PyException_GetTraceback(value));
}

PyObject* takeRaised() {
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  PyException_SetTraceback(value, traceback != nullptr ? traceback : Py_None);
  Py_XDECREF(traceback);
  Py_XDECREF(type);
  return value;
}

}  // namespace kintsugi::pyapi
