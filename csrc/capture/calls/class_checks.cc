// Models: isinstance() and issubclass(). Guards cover what the answer depends on. A check that calls code of
// the program is a step.
#include <algorithm>
#include <vector>

#include "capture/calls/model.h"
#include "capture/calls/table.h"
#include "capture/classes.h"
#include "capture/tables/pauses.h"
#include "pyapi/abc_registry.h"
#include "pyapi/known_objects.h"
#include "pyapi/types.h"
#include "torchapi/known_torch.h"
#include "torchapi/tensor_access.h"

namespace kintsugi::capture {

namespace {

using pyapi::Known;

// Who decides about a class.
enum class Decider : uint8_t {
  kMro,       // the MRO of the class that is asked about
  kAbc,       // ABCMeta, which caches its answers
  kAlias,     // an alias of typing, which asks the class behind it
  kProtocol,  // typing.Protocol, which asks the class, and the object if the class does not match
  kTorch,     // a hook of torch, which looks at types and flags of tensors
  kAnyone,    // code that may look at anything
};

Decider deciderOf(PyObject* cls, bool instances) {
  PyObject* hook = pythonMethod(cls, instances ? "__instancecheck__" : "__subclasscheck__");
  if (hook == nullptr) return PyType_Check(cls) ? Decider::kMro : Decider::kAnyone;
  const auto isOneOf = [hook](std::initializer_list<Known> rows) {
    return std::ranges::any_of(rows, [hook](Known row) { return pyapi::isKnown(hook, row); });
  };
  if (isOneOf({Known::kAbcInstanceCheck, Known::kAbcSubclassCheck})) return Decider::kAbc;
  if (isOneOf({Known::kAliasInstanceCheck, Known::kAliasSubclassCheck, Known::kSpecialAliasSubclassCheck,
               Known::kUnionAliasInstanceCheck, Known::kUnionAliasSubclassCheck}))
    return Decider::kAlias;
  if (pyapi::isKnown(hook, Known::kProtocolInstanceCheck)) return Decider::kProtocol;
  const bool torch = PyFunction_Check(hook) &&
                     torchapi::isTorchCode(reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(hook)),
                                           PyFunction_GET_GLOBALS(hook));
  return torch ? Decider::kTorch : Decider::kAnyone;
}

// Collects the classes of a check. Tuples and unions may hold other ones.
void addClasses(PyObject* classes, std::vector<PyObject*>& all) {
  pyapi::Ref<> parts = pyapi::newRef(classes);
  if (pyapi::isA(classes, Known::kUnionType))
    parts = pyapi::steal(PyObject_GetAttrString(classes, "__args__"));
  PyErr_Clear();
  if (!parts || !PyTuple_Check(parts.get())) {
    all.push_back(classes);
    return;
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(parts.get()); ++i)  // kept alive by the union
    addClasses(PyTuple_GET_ITEM(parts.get(), i), all);
}

// True if the object may answer `__class__` with another class than its type.
bool mayOverrideClass(PyObject* object) {
  static PyObject* name = PyUnicode_InternFromString("__class__");
  return pythonMethod(object, "__getattribute__") != nullptr ||
         pyapi::lookUpInType(Py_TYPE(object), name) != pyapi::lookUpInType(&PyBaseObject_Type, name);
}

// Built-in types whose objects have all attributes of their type, none of which is None.
bool hasAttributesOfType(PyTypeObject* type) {
  static constexpr PyTypeObject* kTypes[] = {&PyLong_Type,    &PyFloat_Type, &PyBool_Type,  &PyComplex_Type,
                                             &PyUnicode_Type, &PyBytes_Type, &PyTuple_Type, &PyList_Type,
                                             &PyDict_Type,    &PySet_Type};
  return type == Py_TYPE(Py_None) || std::ranges::find(kTypes, type) != std::end(kTypes);
}

// True if a check of a protocol asks the class only. A class with the protocol's methods matches at once. For
// others the protocol looks at the object's attributes.
bool asksClassOnly(RecordContext& rec, PyTypeObject* type, PyObject* protocol) {
  const Paused paused(rec.pauses);
  const bool yes = PyObject_IsSubclass(reinterpret_cast<PyObject*>(type), protocol) == 1;
  PyErr_Clear();
  return yes || hasAttributesOfType(type);
}

// True if guards can cover the answer; writes them. `type` is the class that is checked.
bool guardAnswer(RecordContext& rec, PyTypeObject* type, PyObject* classes, bool instances) {
  std::vector<PyObject*> all;
  addClasses(classes, all);
  bool mro = false, abc = false;
  for (PyObject* cls : all) {
    if (instances && reinterpret_cast<PyObject*>(type) == cls) break;  // no class is asked
    const Decider answer = deciderOf(cls, instances);
    if (answer == Decider::kAnyone || (answer == Decider::kProtocol && !asksClassOnly(rec, type, cls)))
      return false;
    if (answer == Decider::kProtocol) rec.guards.guardTypeVersion(reinterpret_cast<PyTypeObject*>(cls));
    mro = mro || answer == Decider::kMro || answer == Decider::kAlias || answer == Decider::kProtocol;
    abc = abc || answer == Decider::kAbc || answer == Decider::kAlias || answer == Decider::kProtocol;
  }
  if (mro) rec.guards.guardTypeVersion(type);
  if (abc) pyapi::watchAbcs();
  return true;
}

Flow constantAnswer(CallContext& ctx, Shadow& result) {
  const Paused paused(ctx.rec.pauses);
  result = Shadow::constant();
  return run(ctx);
}

Flow isinstanceModel(CallContext& ctx, Shadow& result) {
  PyObject* object = ctx.args[0];
  Shadow classes = ctx.shadows[1];
  if (!pinClasses(ctx.rec, classes, ctx.args[1])) return run(ctx);
  if (!guardInstanceCheck(ctx.rec, ctx.shadows[0], object, ctx.args[1])) return opaqueModel(ctx, result);
  return constantAnswer(ctx, result);
}

Flow issubclassModel(CallContext& ctx, Shadow& result) {
  for (size_t i = 0; i < ctx.total(); ++i) {
    Shadow shadow = ctx.shadows.any(i);
    if (!pinClasses(ctx.rec, shadow, ctx.args.any(i))) return run(ctx);
  }
  auto* type = reinterpret_cast<PyTypeObject*>(ctx.args[0]);
  if (!PyType_Check(ctx.args[0]) || !guardAnswer(ctx.rec, type, ctx.args[1], false))
    return opaqueModel(ctx, result);
  return constantAnswer(ctx, result);
}

constexpr ModelRow kRows[] = {
    {"builtins.isinstance", isinstanceModel, gives("bool")},
    {"builtins.issubclass", issubclassModel, gives("bool")},
};

}  // namespace

bool guardInstanceCheck(RecordContext& rec, Shadow shadow, PyObject* object, PyObject* classes) {
  if (shadow.isSource()) rec.guards.guardType(shadow, object);
  const bool same = reinterpret_cast<PyObject*>(Py_TYPE(object)) == classes;
  return same || (!mayOverrideClass(object) && guardAnswer(rec, Py_TYPE(object), classes, true));
}

void registerClassCheckModels() { addTable<kRows>(); }

}  // namespace kintsugi::capture
