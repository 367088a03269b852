// Models: copy.copy and copy.deepcopy.
//
// A copy of builtin containers, of objects that are their own copies and of plain instances runs only code of
// the standard library. It is made for real while recording, and described as a virtual object whose parts
// are those of the original. Later runs call nothing. Any other copy is an opaque step.
#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "capture/calls/model.h"
#include "capture/calls/table.h"
#include "capture/handlers/handlers.h"
#include "capture/tables/pauses.h"
#include "pyapi/code.h"
#include "pyapi/containers.h"
#include "pyapi/imports.h"
#include "pyapi/known_objects.h"
#include "pyapi/lazy.h"
#include "pyapi/object_layout.h"
#include "pyapi/opcodes.h"
#include "pyapi/types.h"
#include "torchapi/known_torch.h"

namespace kintsugi::capture {

using guard::GuardKind;
using guard::SourceKind;

namespace {

PyObject* lookUp(PyTypeObject* type, const char* name) { return specialMethod(type, name); }

bool isObjectsOwn(PyTypeObject* type, const char* name) {
  return lookUp(type, name) == lookUp(&PyBaseObject_Type, name);
}

// Instructions that change nothing. A CALL can only call what the allowed names have loaded.
constexpr uint8_t kLookups[] = {op::NOP,
                                op::RESUME,
                                op::COPY_FREE_VARS,
                                op::MAKE_CELL,
                                op::LOAD_FAST,
                                op::STORE_FAST,
                                op::LOAD_FAST_LOAD_FAST,
                                op::STORE_FAST_LOAD_FAST,
                                op::STORE_FAST_STORE_FAST,
                                op::LOAD_CONST,
                                op::LOAD_SMALL_INT,
                                op::COMPARE_OP,
                                op::COMPARE_AND_TEST,
                                op::TO_BOOL,
                                op::CONTAINS_OP,
                                op::IS_OP,
                                op::BINARY_SUBSCR,
                                op::POP_TOP,
                                op::PUSH_NULL,
                                op::COPY,
                                op::SWAP,
                                op::JUMP_FORWARD,
                                op::POP_JUMP_IF_FALSE,
                                op::POP_JUMP_IF_TRUE,
                                op::JUMP_IF_FALSE_OR_POP,
                                op::JUMP_IF_TRUE_OR_POP,
                                op::PRECALL,
                                op::CALL,
                                op::RETURN_VALUE,
                                op::RETURN_CONST};

// True if the attribute hook only looks things up and calls its super class. Copying asks for a few special
// names, so the hook runs; anything else that it does would be missing in later runs.
bool onlyForwards(PyObject* function) {
  if (!PyFunction_Check(function)) return false;
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
  const CodeInfo* info = CodeInfo::of(code);
  if (info == nullptr) {
    PyErr_Clear();
    return false;
  }
  const auto is = [](PyObject* name, const char* allowed) {
    return PyUnicode_CompareWithASCIIString(name, allowed) == 0;
  };
  const auto named = [&](uint32_t index, const char* allowed) {
    return is(pyapi::nameAt(code, index), allowed);
  };
  for (int32_t at = 0; at < info->size(); at = info->at(at).next) {
    const Instr& in = info->at(at);
    if (in.target >= 0 && in.target <= in.index) return false;  // a loop
    if (in.op == op::LOAD_DEREF && is(pyapi::variableName(code, in.arg), "__class__")) continue;
    if (std::find(std::begin(kLookups), std::end(kLookups), in.op) != std::end(kLookups)) continue;
    const bool super = in.op == op::LOAD_GLOBAL && named(in.arg >> 1, "super");
    const bool forwards =
        ((in.op == op::LOAD_METHOD || in.op == op::LOAD_ATTR) && named(in.arg, "__getattribute__")) ||
        (in.op == op::LOAD_SUPER_ATTR && named(attributeOfSuper(in).arg, "__getattribute__"));
    if (!super && !forwards) return false;
  }
  return true;
}

// True for an instance that `copy` takes apart into class and dict, without calling code of the class.
bool isPlainInstance(RecordContext& rec, PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (!PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) || !pyapi::makesLike(type, &PyBaseObject_Type) ||
      !isObjectsOwn(type, "__new__") || pyapi::hasVariableSize(type)) {
    return false;
  }
  for (const char* name : {"__deepcopy__", "__copy__", "__setstate__", "__getnewargs__", "__getnewargs_ex__",
                           "__getattr__", "__del__"}) {
    if (lookUp(type, name) != nullptr) return false;
  }
  for (const char* name : {"__reduce_ex__", "__reduce__", "__getstate__"}) {
    if (!isObjectsOwn(type, name)) return false;
  }
  if (!isObjectsOwn(type, "__getattribute__") && !onlyForwards(lookUp(type, "__getattribute__")))
    return false;
  static constinit pyapi::Lazy<PyObject*> registrySlot;
  PyObject* registry = registrySlot.get([] { return pyapi::importModule("copyreg"); });
  pyapi::Ref<> table = pyapi::steal(PyObject_GetAttrString(registry, "dispatch_table"));
  if (!table || PyDict_Contains(table.get(), reinterpret_cast<PyObject*>(type)) != 0) return false;
  // The slots of the class. Like copying itself, this call stores them in the class.
  pyapi::Ref<> slots;
  rec.guards.keepTypeVersions(
      [&] { slots = pyapi::steal(PyObject_CallMethod(registry, "_slotnames", "O", type)); });
  PyErr_Clear();
  if (!slots || !PyList_Check(slots.get()) || PyList_GET_SIZE(slots.get()) != 0) return false;
  PyObject** dict = pyapi::materializedDictSlot(object);
  if (dict == nullptr) return false;
  for (const char* name : {"__deepcopy__", "__copy__", "__reduce_ex__", "__reduce__", "__setstate__"}) {
    if (*dict != nullptr && PyDict_GetItemString(*dict, name) != nullptr) return false;
  }
  return true;
}

struct Copier {
  RecordContext& rec;
  bool deep;
  size_t seen = 0;
  std::unordered_map<PyObject*, Shadow> made;                      // key: the copy
  std::vector<std::pair<PyObject*, ir::SourceId>> originals = {};  // older mutable objects

  static bool isOwnCopy(PyObject* x) {
    if (isPlain(x) || PyRange_Check(x)) return true;
    return isIdentityValue(x) && !PyModule_Check(x) && !pyapi::isA(x, torchapi::Known::kTorchDevice);
  }

  bool copyable(PyObject* x, int depth) {
    if (isOwnCopy(x)) return true;
    if (depth > 24 || ++seen > 4000) return false;
    if (PyAnySet_CheckExact(x)) {
      PyObject* key;
      Py_ssize_t at = 0;
      while (pyapi::nextSetItem(x, &at, &key)) {
        if (!isPlainDeep(key)) return false;
      }
      return true;
    }
    if (PyTuple_CheckExact(x) || PyList_CheckExact(x)) {
      for (Py_ssize_t i = 0; deep && i < Py_SIZE(x); ++i) {
        if (!copyable(PyTuple_Check(x) ? PyTuple_GET_ITEM(x, i) : PyList_GET_ITEM(x, i), depth + 1))
          return false;
      }
      return true;
    }
    if (PyDict_CheckExact(x)) return copyableEntries(x, depth);
    if (!isPlainInstance(rec, x)) return false;
    PyObject** dict = pyapi::materializedDictSlot(x);
    return *dict == nullptr || copyableEntries(*dict, depth);
  }

  bool copyableEntries(PyObject* dict, int depth) {
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(dict, &at, &key, &value)) {
      if (!isPlainDeep(key) || (deep && !copyable(value, depth + 1))) return false;
    }
    return true;
  }

  // Guards that older objects that are different now stay different. Otherwise they would have a common copy.
  void original(Shadow shadow, PyObject* x) {
    if (!shadow.isSource() || !deep) return;
    for (auto [other, id] : originals) {
      if (Py_TYPE(other) == Py_TYPE(x) && id != shadow.sourceId())
        rec.guards.guard(GuardKind::kNotSame, shadow.sourceId(), ir::kNone, 0, id);
    }
    originals.emplace_back(x, shadow.sourceId());
  }

  Shadow part(Shadow shadow, PyObject* x, PyObject* y) {
    return deep && rec.live() ? mirror(rec.objects.current(shadow), x, y) : shadow;
  }

  Shadow failed(PyObject* x) {
    rec.abort(diag::Code::KTG0302, {pyapi::typeNameOf(x)});
    return Shadow::constant();
  }

  // The shadow of `y`, the copy of `x`.
  Shadow mirror(Shadow shadow, PyObject* x, PyObject* y) {
    if (x == y || isOwnCopy(x)) return itself(shadow, x);
    auto [it, fresh] = made.try_emplace(y, Shadow::null());
    if (!fresh) return it->second;
    original(shadow, x);
    Shadow result = PyTuple_Check(x) || PyList_Check(x) ? sequence(shadow, x, y)
                    : PyDict_Check(x)                   ? dict(shadow, x, y)
                    : PyAnySet_Check(x)                 ? set(shadow, x, y)
                                                        : instance(shadow, x, y);
    made[y] = result;
    return result;
  }

  // Whether an object is its own copy follows from its type. For deepcopy() of a tuple it also follows from
  // its items' types.
  Shadow itself(Shadow shadow, PyObject* x) {
    rec.guards.guardType(shadow, x);
    if (!deep || !PyTuple_CheckExact(x) || !rec.live()) return shadow;
    const auto parts = rec.objects.elementsOf(shadow, x);
    if (!parts) return failed(x);
    for (size_t i = 0; i < parts->size() && rec.live(); ++i) {
      PyObject* item = PyTuple_GET_ITEM(x, static_cast<Py_ssize_t>(i));
      part((*parts)[i], item, item);
    }
    return shadow;
  }

  Shadow sequence(Shadow shadow, PyObject* x, PyObject* y) {
    auto parts = rec.objects.elementsOf(shadow, x);
    if (!parts || Py_TYPE(x) != Py_TYPE(y) || Py_SIZE(x) != Py_SIZE(y)) return failed(x);
    bool tuple = PyTuple_Check(x);
    for (Py_ssize_t i = 0; i < Py_SIZE(x); ++i) {
      (*parts)[i] = part((*parts)[i], tuple ? PyTuple_GET_ITEM(x, i) : PyList_GET_ITEM(x, i),
                         tuple ? PyTuple_GET_ITEM(y, i) : PyList_GET_ITEM(y, i));
    }
    if (tuple) return rec.objects.tupleOf(y, std::move(*parts));
    Shadow list = rec.objects.newVirtual(VirtualKind::kList, y);
    rec.objects.virtualOf(list).parts = std::move(*parts);
    return list;
  }

  bool entries(Shadow shadow, PyObject* x, PyObject* y, bool attributes, Shadow target) {
    auto values = rec.objects.dictParts(shadow, x, 1);
    pyapi::Ref<> keys = pyapi::steal(PySequence_List(x));
    if (!values || !keys || PyDict_GET_SIZE(x) != PyDict_GET_SIZE(y)) return false;
    for (size_t i = 0; i < values->size(); ++i) {
      PyObject* key = PyList_GET_ITEM(keys.get(), static_cast<Py_ssize_t>(i));
      PyObject* copied = PyDict_GetItemWithError(y, key);
      if (copied == nullptr) return false;
      Shadow value = part((*values)[i], PyDict_GetItemWithError(x, key), copied);
      if (!rec.live()) return false;
      if (attributes) {
        rec.objects.setAttrShadow(rec.objects.virtualOf(target), key, value);
      } else {
        rec.objects.setEntry(rec.objects.virtualOf(target), key, value);
      }
    }
    return true;
  }

  Shadow dict(Shadow shadow, PyObject* x, PyObject* y) {
    Shadow result = rec.objects.newVirtual(VirtualKind::kDict, y);
    return PyDict_CheckExact(y) && entries(shadow, x, y, false, result) ? result : failed(x);
  }

  Shadow set(Shadow shadow, PyObject* x, PyObject* y) {
    const bool members = shadow.isVirtual() && !rec.objects.virtualOf(shadow).parts.empty();
    if (members || !rec.guards.pinContainer(shadow, x)) return failed(x);
    return rec.objects.newVirtual(VirtualKind::kSet, y);
  }

  Shadow instance(Shadow shadow, PyObject* x, PyObject* y) {
    if (Py_TYPE(x) != Py_TYPE(y)) return failed(x);
    rec.guards.guardType(shadow, x);
    rec.guards.guardTypeVersion(Py_TYPE(x));
    Shadow result = rec.objects.newVirtual(VirtualKind::kInstance, y);
    PyObject **from = pyapi::materializedDictSlot(x), **to = pyapi::materializedDictSlot(y);
    if (shadow.isVirtual()) {
      Virtual& v = rec.objects.virtualOf(shadow);
      if (v.kind != VirtualKind::kInstance || from == nullptr || to == nullptr) return failed(x);
      return virtualAttributes(v, *from, *to, result) ? result : failed(x);
    }
    ir::SourceId source = rec.guards.sourceOf(shadow, x);
    if (*from == nullptr) {
      rec.guards.guard(GuardKind::kNoDict, source);
      return result;
    }
    Shadow dict = rec.guards.readSource(SourceKind::kDict, source, nullptr, 0, *from);
    return *to != nullptr && entries(dict, *from, *to, true, result) ? result : failed(x);
  }

  bool virtualAttributes(Virtual& v, PyObject* from, PyObject* to, Shadow target) {
    if (from == nullptr) return PyDict_GET_SIZE(v.attrs.get()) == 0;
    pyapi::Ref<> names = pyapi::steal(PyDict_Keys(from));
    if (!names || to == nullptr || PyDict_GET_SIZE(v.attrs.get()) != PyDict_GET_SIZE(from)) return false;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(names.get()); ++i) {
      PyObject* name = PyList_GET_ITEM(names.get(), i);
      PyObject* encoded = PyDict_GetItemWithError(v.attrs.get(), name);
      PyObject* copied = PyDict_GetItemWithError(to, name);
      if (encoded == nullptr || copied == nullptr) return false;
      Shadow value = part(decodeShadow(encoded), PyDict_GetItemWithError(from, name), copied);
      rec.objects.setAttrShadow(rec.objects.virtualOf(target), name, value);
    }
    return rec.live();
  }
};

Flow copyModel(CallContext& ctx, bool deep, Shadow& result) {
  RecordContext& rec = ctx.rec;
  if (ctx.total() != 1 || ctx.kwnames != nullptr) return opaqueModel(ctx, result);
  pyapi::Ref<> original = pyapi::newRef(ctx.args[0]);
  Shadow shadow = rec.objects.current(ctx.shadows[0]);
  Copier copier{rec, deep};
  bool known = false;
  {
    const Paused paused(rec.pauses);
    known = !shadow.isValue() && copier.copyable(original.get(), 0);
  }
  if (!known) return opaqueModel(ctx, result);
  Flow flow;
  {
    const Paused paused(rec.pauses);
    flow = run(ctx);
  }
  if (flow != Flow::kNext) {
    rec.abort(diag::Code::KTG0302, {pyapi::typeNameOf(original.get())});
    return flow;
  }
  result = copier.mirror(shadow, original.get(), ctx.act.peek(1));
  return flow;
}

Flow deepcopyModel(CallContext& ctx, Shadow& result) { return copyModel(ctx, true, result); }
Flow shallowCopyModel(CallContext& ctx, Shadow& result) { return copyModel(ctx, false, result); }

constexpr ModelRow kRows[] = {
    {"copy.deepcopy", deepcopyModel, gives(kOfItsKind).raises(kFromFunction)},
    {"copy.copy", shallowCopyModel, gives(kOfItsKind).raises(kFromFunction)},
};

}  // namespace

void registerCopyModels() { addTable<kRows>(); }

}  // namespace kintsugi::capture
