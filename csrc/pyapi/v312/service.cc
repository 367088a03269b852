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
  return replace && none && keywords ? steal(PyObject_Call(replace.get(), none.get(), keywords.get()))
                                     : nullptr;
}

}  // namespace

PyObject* makeService(const char* source, const uint8_t* code, size_t size) {
  // Nothing is run: the code of `f` is the first constant of the module's.
  Ref<> module = steal(Py_CompileString(source, "<kintsugi>", Py_file_input));
  Ref<> space = steal(PyDict_New());
  if (!module || !space) return nullptr;
  Ref<> own = newRef(PyTuple_GET_ITEM(reinterpret_cast<PyCodeObject*>(module.get())->co_consts, 0));
  if (code != nullptr) own = withCode(own.get(), code, size);
  if (!own || !PyCode_Check(own.get())) return nullptr;
  hideFramesOf(reinterpret_cast<PyCodeObject*>(own.get()));
  PyObject* function = PyFunction_New(own.get(), space.get());
  if (function != nullptr) serviceCodes().push_back(reinterpret_cast<const PyCodeObject*>(own.release()));
  return function;
}

bool isServiceFrame(const Frame* frame) {
  return isHidden(frame->f_code) && std::ranges::find(serviceCodes(), frame->f_code) != serviceCodes().end();
}

}  // namespace kintsugi::pyapi
