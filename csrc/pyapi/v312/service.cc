#include "pyapi/v312/service.h"

#include <algorithm>
#include <vector>

#include "pyapi/frame.h"
#include "pyapi/ref.h"

namespace kintsugi::pyapi {

namespace {

std::vector<const PyCodeObject*>& serviceCodes() {
  static auto* codes = new std::vector<const PyCodeObject*>();
  return *codes;
}

Ref<> withCode(PyObject* code, const uint8_t* bytes, size_t size) {
  Ref<> replace = steal(PyObject_GetAttrString(code, "replace"));
  Ref<> none = steal(PyTuple_New(0));
  Ref<> keywords = steal(
      Py_BuildValue("{sy#}", "co_code", reinterpret_cast<const char*>(bytes), static_cast<Py_ssize_t>(size)));
  return replace && none && keywords ? steal(PyObject_Call(replace.get(), none.get(), keywords.get())) : nullptr;
}

}  // namespace

PyObject* makeService(const char* source, const uint8_t* code, size_t size) {
  Ref<> compiled = steal(Py_CompileString(source, "<kintsugi>", Py_file_input));
  Ref<> space = steal(PyDict_New());
  Ref<> done = compiled && space ? steal(PyEval_EvalCode(compiled.get(), space.get(), space.get())) : nullptr;
  PyObject* function = done ? PyDict_GetItemString(space.get(), "f") : nullptr;
  if (function == nullptr) return nullptr;
  Ref<> own = newRef(PyFunction_GET_CODE(function));
  if (code != nullptr) {
    own = withCode(own.get(), code, size);
    if (!own || PyObject_SetAttrString(function, "__code__", own.get()) < 0) return nullptr;
  }
  hideFramesOf(reinterpret_cast<PyCodeObject*>(own.get()));
  serviceCodes().push_back(reinterpret_cast<const PyCodeObject*>(own.release()));
  return Py_NewRef(function);
}

bool isServiceFrame(const Frame* frame) {
  return isHidden(frame->f_code) && std::ranges::find(serviceCodes(), frame->f_code) != serviceCodes().end();
}

}  // namespace kintsugi::pyapi
