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

Ref<> newCode(int arguments, std::span<const uint8_t> code) {
  constexpr const char* kVariables[] = {"a", "b"};
  const Ref<> bytes = steal(PyBytes_FromStringAndSize(reinterpret_cast<const char*>(code.data()),
                                                      static_cast<Py_ssize_t>(code.size())));
  const Ref<> constants = steal(PyTuple_Pack(1, Py_None));
  const Ref<> none = steal(PyTuple_New(0)), nowhere = steal(PyBytes_FromStringAndSize(nullptr, 0));
  const Ref<> variables = steal(PyTuple_New(arguments));
  const Ref<> name = steal(PyUnicode_InternFromString("kintsugi"));
  if (!bytes || !constants || !none || !nowhere || !variables || !name) return nullptr;
  for (int k = 0; k < arguments; ++k) {
    PyObject* variable = PyUnicode_InternFromString(kVariables[k]);
    if (variable == nullptr) return nullptr;
    PyTuple_SET_ITEM(variables.get(), k, variable);
  }
  return steal(reinterpret_cast<PyObject*>(
      PyUnstable_Code_New(arguments, 0, arguments, 2, CO_OPTIMIZED | CO_NEWLOCALS, bytes.get(),
                          constants.get(), none.get(), variables.get(), none.get(), none.get(), name.get(),
                          name.get(), name.get(), 1, nowhere.get(), nowhere.get())));
}

}  // namespace

PyObject* makeService(int arguments, std::span<const uint8_t> code) {
  Ref<> own = newCode(arguments, code);
  const Ref<> space = steal(PyDict_New());
  if (!own || !space) return nullptr;
  hideFramesOf(reinterpret_cast<PyCodeObject*>(own.get()));
  PyObject* function = PyFunction_New(own.get(), space.get());
  if (function != nullptr) serviceCodes().push_back(reinterpret_cast<const PyCodeObject*>(own.release()));
  return function;
}

bool isServiceFrame(const Frame* frame) {
  return isHidden(frame->f_code) && std::ranges::find(serviceCodes(), frame->f_code) != serviceCodes().end();
}

}  // namespace kintsugi::pyapi
