// Models: numpy's functions, ufuncs and methods, by rule.
//
// Arrays are objects of the program: nothing of their contents is ever guarded, so a call that reads or
// writes them is a step that leaves everything else as it was. That holds as long as no Python code runs
// inside: an argument of another library's type may define __array__ or __array_function__, and arrays of
// objects call their elements.
#include "capture/calls/numpy.h"

#include <algorithm>
#include <string_view>

namespace kintsugi::capture {

namespace {

bool startsWith(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

bool isStatic(const PyTypeObject* type) { return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0; }

bool isNumpyType(const PyTypeObject* type) { return isStatic(type) && startsWith(type->tp_name, "numpy."); }

std::string moduleOf(PyObject* callable) {
  pyapi::Ref<> name = pyapi::steal(PyObject_GetAttrString(callable, "__module__"));
  PyErr_Clear();
  return name && PyUnicode_Check(name.get()) ? PyUnicode_AsUTF8(name.get()) : "";
}

// They change what attributes of an array say, which guards may have read.
constexpr std::string_view kReshaping[] = {"resize", "setflags", "__setstate__"};

bool isMethod(PyObject* callable) {
  const bool descriptor =
      Py_TYPE(callable) == &PyMethodDescr_Type || Py_TYPE(callable) == &PyWrapperDescr_Type;
  if (!descriptor || !isNumpyType(PyDescr_TYPE(callable))) return false;
  const std::string_view name = PyUnicode_AsUTF8(PyDescr_NAME(callable));
  return std::find(std::begin(kReshaping), std::end(kReshaping), name) == std::end(kReshaping);
}

// numpy.frompyfunc() makes ufuncs that call Python: they know objects only.
bool isCompiledUfunc(PyObject* ufunc) {
  pyapi::Ref<> types = pyapi::steal(PyObject_GetAttrString(ufunc, "types"));
  PyErr_Clear();
  if (!types || !PyList_Check(types.get())) return false;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(types.get()); ++i) {
    const char* signature = PyUnicode_AsUTF8(PyList_GET_ITEM(types.get(), i));
    if (signature != nullptr && *signature != 'O') return true;
  }
  PyErr_Clear();
  return false;
}

bool isExactArray(const PyTypeObject* type) {
  return std::string_view(type->tp_name) == "numpy.ndarray" && isStatic(type);
}

// Calls nothing of the program when numpy looks at it.
bool isInert(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (isExactArray(type)) {
    pyapi::Ref<> dtype = pyapi::steal(PyObject_GetAttrString(object, "dtype"));
    pyapi::Ref<> objects = pyapi::steal(dtype ? PyObject_GetAttrString(dtype.get(), "hasobject") : nullptr);
    PyErr_Clear();
    return objects && objects.get() == Py_False;
  }
  const bool sizes = PyTuple_Check(object) && std::string_view(type->tp_name) == "torch.Size";
  if (PyTuple_CheckExact(object) || PyList_CheckExact(object) || sizes) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i) {
      if (!isInert(PySequence_Fast_GET_ITEM(object, i))) return false;
    }
    return true;
  }
  if (PyType_Check(object)) return isStatic(reinterpret_cast<PyTypeObject*>(object));
  return Recorder::isPlain(object) || PyRange_Check(object) || PySlice_Check(object) || isNumpyType(type) ||
         startsWith(type->tp_name, "numpy.dtype");
}

}  // namespace

bool isNumpyCallable(PyObject* callable) {
  const std::string_view type = Py_TYPE(callable)->tp_name;
  if (type == "numpy.ufunc") return isCompiledUfunc(callable);
  if (type == "numpy._ArrayFunctionDispatcher") return true;
  if (isMethod(callable)) return true;
  if (PyType_Check(callable)) return isNumpyType(reinterpret_cast<PyTypeObject*>(callable));
  if (PyCFunction_Check(callable)) return moduleOf(callable) == "numpy";
  const std::string_view suffix = "cython_function_or_method";
  return type.size() >= suffix.size() && type.substr(type.size() - suffix.size()) == suffix &&
         startsWith(moduleOf(callable), "numpy.random");
}

bool isArray(PyObject* object) { return isExactArray(Py_TYPE(object)) && isInert(object); }

bool isNumpyScalar(PyObject* object) {
  constexpr std::string_view kNumbers[] = {"numpy.float", "numpy.int", "numpy.uint", "numpy.bool",
                                           "numpy.complex"};
  const PyTypeObject* type = Py_TYPE(object);
  return isStatic(type) &&
         std::any_of(std::begin(kNumbers), std::end(kNumbers),
                     [type](std::string_view prefix) { return startsWith(type->tp_name, prefix); });
}

namespace {

// A function of numbers that are known gives a number that is known.
bool isConstant(CallContext& ctx) {
  if (std::string_view(Py_TYPE(ctx.callable)->tp_name) != "numpy.ufunc" || ctx.kwnames != nullptr)
    return false;
  for (size_t i = 0; i < ctx.total(); ++i) {
    const bool number =
        Recorder::isPlain(ctx.args[i]) || (ctx.shadows[i].isConst() && isNumpyScalar(ctx.args[i]));
    if (!number || ctx.rec.comesFromStep(ctx.shadows[i])) return false;
  }
  return true;
}

}  // namespace

Flow numpyModel(CallContext& ctx, Shadow& result) {
  for (size_t i = 0; i < ctx.total(); ++i) {
    if (!isInert(ctx.args[i])) return opaqueModel(ctx, result);
  }
  return isConstant(ctx) ? foldModel(ctx, result) : knownModel(ctx, result);
}

}  // namespace kintsugi::capture
