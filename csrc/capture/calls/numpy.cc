// Models: numpy's functions, ufuncs and methods. One rule covers all of them; there are no rows.
//
// Arrays are objects of the program, and their contents are never guarded. So a call that reads or writes
// arrays is a step after which everything else is still known. This holds only if no Python code runs inside
// the call: an argument of another library's type may define `__array__` or `__array_function__`, and arrays
// of objects call their elements.
#include "capture/calls/numpy.h"

#include "capture/calls/model.h"

#include <algorithm>
#include <initializer_list>
#include <unordered_set>

#include "pyapi/functions.h"
#include "pyapi/known_objects.h"
#include "pyapi/text.h"
#include "pyapi/types.h"
#include "torchapi/known_torch.h"

namespace kintsugi::capture {

using pyapi::Known;

namespace {

bool isStatic(const PyTypeObject* type) { return !pyapi::isHeapType(type); }

bool isOneOf(PyTypeObject* type, std::initializer_list<Known> classes) {
  return std::any_of(classes.begin(), classes.end(), [type](Known one) { return pyapi::isKnown(type, one); });
}

bool isExactArray(const PyTypeObject* type) { return pyapi::isKnown(type, Known::kNumpyArray); }

template <typename Visit>
void forEach(PyObject* dict, Visit visit) {
  PyObject *key, *value;
  Py_ssize_t at = 0;
  while (PyDict_Next(dict, &at, &key, &value)) visit(value);
}

// numpy's own callables, found once: its classes in C, its functions, and methods that change attributes of
// an array, which guards may have read.
struct Numpy {
  std::unordered_set<const PyTypeObject*> types;
  std::unordered_set<const PyMethodDef*> definitions;
  std::unordered_set<PyObject*> functions;
  std::unordered_set<PyObject*> reshaping;
  std::unordered_set<PyObject*> counting;  // of these, those that count references

  void addModule(PyObject* module) {
    forEach(PyModule_GetDict(module), [this](PyObject* value) {
      auto* type = reinterpret_cast<PyTypeObject*>(value);
      if (PyType_Check(value) && isStatic(type) && isOwn(type)) types.insert(type);
      if (PyCFunction_Check(value)) definitions.insert(pyapi::definitionOf(value));
    });
    for (const PyTypeObject* type : types) {
      for (const char* name : {"resize", "setflags", "__setstate__"}) {
        PyObject* method = PyDict_GetItemString(pyapi::dictOf(type), name);
        if (method != nullptr) reshaping.insert(Py_NewRef(method));
      }
      PyObject* resize = isExactArray(type) ? PyDict_GetItemString(pyapi::dictOf(type), "resize") : nullptr;
      if (resize != nullptr) counting.insert(resize);
    }
  }

  // For numpy.random, whose functions are Cython's.
  void addRandom(PyObject* module) {
    const PyObject* sample = specialMethod(pyapi::knownType(Known::kNumpyRandomState), "normal");
    const auto addFunction = [this, sample](PyObject* value) {
      if (sample != nullptr && Py_TYPE(value) == Py_TYPE(sample)) functions.insert(Py_NewRef(value));
    };
    forEach(PyModule_GetDict(module), [&](PyObject* value) {
      auto* type = reinterpret_cast<PyTypeObject*>(value);
      if (PyType_Check(value) && isStatic(type) && isRandom(type)) {
        types.insert(type);
        forEach(pyapi::dictOf(type), addFunction);
      }
      addFunction(value);
    });
  }

  static bool isOwn(PyTypeObject* type) {
    return isOneOf(type, {Known::kNumpyArray, Known::kNumpyDtype, Known::kNumpyUfunc,
                          Known::kNumpyFlatIterator, Known::kNumpyIterator, Known::kNumpyBroadcast,
                          Known::kNumpyBusdays, Known::kNumpyDispatcher}) ||
           PyType_IsSubtype(type, pyapi::knownType(Known::kNumpyGeneric)) != 0;
  }

  static bool isRandom(PyTypeObject* type) {
    return isOneOf(type,
                   {Known::kNumpyRandomGenerator, Known::kNumpyRandomState, Known::kNumpySeedSequence}) ||
           PyType_IsSubtype(type, pyapi::knownType(Known::kNumpyBitGenerator)) != 0;
  }
};

bool areKnown(std::initializer_list<Known> objects) {
  return std::all_of(objects.begin(), objects.end(), [](Known one) { return pyapi::known(one) != nullptr; });
}

const Numpy& numpy() {
  static auto* found = new Numpy();
  static bool complete = false, random = false;
  if (!complete && areKnown({Known::kNumpy, Known::kNumpyGeneric, Known::kNumpyDispatcher})) {
    found->addModule(pyapi::known(Known::kNumpy));
    complete = true;
  }
  if (!random && areKnown({Known::kNumpyRandom, Known::kNumpyRandomGenerator, Known::kNumpyRandomState,
                           Known::kNumpySeedSequence, Known::kNumpyBitGenerator})) {
    found->addRandom(pyapi::known(Known::kNumpyRandom));
    random = true;
  }
  return *found;
}

bool isNumpyType(const PyTypeObject* type) { return numpy().types.contains(type); }

bool isMethod(PyObject* callable) {
  const bool descriptor =
      Py_TYPE(callable) == &PyMethodDescr_Type || Py_TYPE(callable) == &PyWrapperDescr_Type;
  return descriptor && isNumpyType(PyDescr_TYPE(callable)) && !numpy().reshaping.contains(callable);
}

// False for ufuncs of numpy.frompyfunc(), which call Python: all their signatures are of objects.
bool isCompiledUfunc(PyObject* ufunc) {
  pyapi::Ref<> types = pyapi::steal(PyObject_GetAttrString(ufunc, "types"));
  PyErr_Clear();
  if (!types || !PyList_Check(types.get())) return false;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(types.get()); ++i) {
    const std::string_view signature = pyapi::ascii(PyList_GET_ITEM(types.get(), i));
    if (!signature.empty() && signature.front() != 'O') return true;
  }
  return false;
}

bool isDtype(PyTypeObject* type) {
  PyTypeObject* base = pyapi::knownType(Known::kNumpyDtype);
  return base != nullptr && PyType_IsSubtype(type, base) != 0;
}

// True if numpy calls no code of the program when it looks at the object.
bool isInert(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (isExactArray(type)) {
    pyapi::Ref<> dtype = pyapi::steal(PyObject_GetAttrString(object, "dtype"));
    pyapi::Ref<> objects = pyapi::steal(dtype ? PyObject_GetAttrString(dtype.get(), "hasobject") : nullptr);
    PyErr_Clear();
    return objects && objects.get() == Py_False;
  }
  const bool sizes = pyapi::isA(object, torchapi::Known::kTorchSize);
  if (PyTuple_CheckExact(object) || PyList_CheckExact(object) || sizes) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i) {
      if (!isInert(PySequence_Fast_GET_ITEM(object, i))) return false;
    }
    return true;
  }
  if (PyType_Check(object)) return isStatic(reinterpret_cast<PyTypeObject*>(object));
  return isPlain(object) || PyRange_Check(object) || PySlice_Check(object) || isNumpyType(type) ||
         isDtype(type);
}

}  // namespace

bool isNumpyCallable(PyObject* callable) {
  if (pyapi::isA(callable, Known::kNumpyUfunc)) return isCompiledUfunc(callable);
  if (pyapi::isA(callable, Known::kNumpyDispatcher)) return true;
  if (isMethod(callable)) return true;
  if (PyType_Check(callable)) return isNumpyType(reinterpret_cast<PyTypeObject*>(callable));
  if (PyCFunction_Check(callable)) return numpy().definitions.contains(pyapi::definitionOf(callable));
  return numpy().functions.contains(callable);
}

void findNumpyCallables() { numpy(); }

bool countsReferences(PyObject* callable) { return numpy().counting.contains(callable); }

bool isArray(PyObject* object) { return isExactArray(Py_TYPE(object)) && isInert(object); }

bool isNumpyScalar(PyObject* object) {
  static constexpr Known kNumbers[] = {Known::kNumpyBool,      Known::kNumpyInt8,      Known::kNumpyInt16,
                                       Known::kNumpyInt32,     Known::kNumpyInt64,     Known::kNumpyUint8,
                                       Known::kNumpyUint16,    Known::kNumpyUint32,    Known::kNumpyUint64,
                                       Known::kNumpyFloat16,   Known::kNumpyFloat32,   Known::kNumpyFloat64,
                                       Known::kNumpyComplex64, Known::kNumpyComplex128};
  return pyapi::known(Known::kNumpyGeneric) != nullptr &&
         std::any_of(std::begin(kNumbers), std::end(kNumbers),
                     [object](Known type) { return pyapi::isA(object, type); });
}

namespace {

// A ufunc of constant numbers gives a constant.
bool isConstant(CallContext& ctx) {
  if (!pyapi::isA(ctx.callable, Known::kNumpyUfunc) || ctx.kwnames != nullptr) return false;
  for (size_t i = 0; i < ctx.total(); ++i) {
    const bool number =
        isPlain(ctx.args.any(i)) || (ctx.shadows.any(i).isConst() && isNumpyScalar(ctx.args.any(i)));
    if (!number || ctx.rec.guards.comesFromStep(ctx.shadows.any(i))) return false;
  }
  return true;
}

}  // namespace

Flow countingModel(CallContext& ctx, Shadow& result) {
  const auto check = ctx.keyword("refcheck");
  if (check && ctx.args.any(*check) == Py_False && ctx.shadows.any(*check).isConst()) {
    return opaqueModel(ctx, result);
  }
  ctx.rec.abort(diag::Code::KTG0303, {"an array is resized, for which references are counted"});
  ctx.rec.lifetimes.releaseObjects();
  return run(ctx);
}

Flow numpyModel(CallContext& ctx, Shadow& result) {
  for (size_t i = 0; i < ctx.total(); ++i) {
    if (!isInert(ctx.args.any(i))) return opaqueModel(ctx, result);
  }
  return isConstant(ctx) ? foldModel(ctx, result) : knownModel(ctx, result);
}

}  // namespace kintsugi::capture
