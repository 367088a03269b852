// Functions of the recorder's parts that only call models need.
#include <algorithm>
#include <cstring>
#include <string_view>

#include "capture/calls/inner_code.h"
#include "capture/calls/model.h"
#include "capture/calls/numpy.h"
#include "capture/foreign.h"
#include "capture/tables/pauses.h"
#include "pyapi/code.h"
#include "pyapi/frame.h"
#include "pyapi/functions.h"
#include "pyapi/known_objects.h"
#include "pyapi/plain.h"
#include "support/check.h"

namespace kintsugi::capture {

bool Objects::exhausted(Shadow iterator) {
  if (!iterator.isVirtual()) return false;
  Virtual& v = virtualOf(iterator);
  if (v.kind == VirtualKind::kEnumerate) return exhausted(v.parts[0]);
  if (v.kind == VirtualKind::kZip) {
    for (Shadow part : std::vector<Shadow>(v.parts)) {
      if (exhausted(part)) return true;
    }
    return v.parts.empty();
  }
  if (v.kind != VirtualKind::kIterator) return false;
  auto left = iterated(iterator, v.object.get());
  return left && left->empty();
}

// super() without arguments: the class is in the free variable `__class__`, the object is the first local.
void Callees::superArguments(ShadowFrame& frame, PyObject*& type, PyObject*& self, Shadow& selfShadow) {
  PyCodeObject* code = frame.code;
  pyapi::Frame* running = frame.act->frame;
  if (pyapi::argumentCount(code) == 0 || pyapi::localAt(running, 0) == nullptr) return;
  self = pyapi::localAt(running, 0);
  selfShadow = frame.locals[0];
  if (PyCell_Check(self) && selfShadow.isVirtual() &&
      rec_.objects.virtualOf(selfShadow).kind == VirtualKind::kCell) {
    self = PyCell_GET(self);
    selfShadow = rec_.objects.virtualOf(selfShadow).parts[0];
  }
  for (int i = pyapi::firstFreeVariable(code); i < pyapi::localsPlusCount(code); ++i) {
    PyObject* name = pyapi::variableName(code, i);
    PyObject* cell = pyapi::localAt(running, i);
    if (PyUnicode_CompareWithASCIIString(name, "__class__") != 0 || cell == nullptr) continue;
    type = PyCell_GET(cell);
    // The cell belongs to the function, which is pinned. Its content, the class, is pinned here.
    if (frame.locals[i].isSource() && type != nullptr) {
      Shadow content =
          rec_.guards.readSource(guard::SourceKind::kCell, frame.locals[i].sourceId(), nullptr, 0, type);
      rec_.guards.pin(content, type);
    }
  }
}

bool Objects::isItemsView(Shadow shadow) {
  Virtual& v = virtualOf(shadow);
  if (v.kind == VirtualKind::kDictView) return v.index == 2;
  return v.kind == VirtualKind::kIterator && v.parts[0].isVirtual() && isItemsView(v.parts[0]);
}

// True if the object may be an argument of a torch function that is recorded through the dispatcher.
bool TorchSteps::acceptsTorch(Shadow shadow, PyObject* object) {
  if (torchapi::isTensor(object))
    return torchapi::isExactTensorType(Py_TYPE(object)) && !isForeign(shadow, object);
  if (isPlain(object) || (shadow.isConst() && isNumpyScalar(object))) return true;
  if (shadow.isSource() && pyapi::isNumpyNumber(object)) return true;  // its value is guarded
  if (shadow.isVirtual()) {
    Virtual& v = rec_.objects.virtualOf(shadow);
    switch (v.kind) {
      case VirtualKind::kRange:
      case VirtualKind::kSlice:
        return true;
      case VirtualKind::kTuple:
      case VirtualKind::kList:
        for (size_t i = 0; i < v.parts.size(); ++i) {
          PyObject* item = PyTuple_Check(object) ? PyTuple_GET_ITEM(object, i) : PyList_GET_ITEM(object, i);
          if (!acceptsTorch(v.parts[i], item)) return false;
        }
        return true;
      default:
        return false;
    }
  }
  if (PyTuple_Check(object) || PyList_CheckExact(object)) {
    for (Py_ssize_t i = 0; i < Py_SIZE(object); ++i) {
      PyObject* item = PyTuple_Check(object) ? PyTuple_GET_ITEM(object, i) : PyList_GET_ITEM(object, i);
      if (!acceptsTorch(Shadow::constant(), item)) return false;
    }
    return true;
  }
  if (PySlice_Check(object) || PyRange_Check(object)) return true;
  if (PyFunction_Check(object) || PyModule_Check(object) || PyCFunction_Check(object)) return false;
  return isIdentityValue(object) || pyapi::isA(object, pyapi::Known::kTorchGenerator);
}

bool Callees::answersCompiling(PyObject* function) {
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
  return pyapi::isKnownCode(code, pyapi::CodeFamily::kAnswersCompiling) ||
         pyapi::isKnownCode(code, pyapi::CodeFamily::kSaysRecording);
}

Flow Callees::answerCompiling(CallContext& ctx, Shadow& result) {
  Flow flow;
  {
    const Paused paused(pauses_);
    flow = rec_.execute(ctx.act, ctx.instr);
  }
  // torch's own code leaves things out for a compiler, and torch's own compiler makes up for them later:
  // torch.optim the grouping of parameters by dtype, higher-order operators the call of their function. So
  // torch's code gets the answer of eager mode.
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(ctx.callable));
  const bool own = pyapi::isKnownCode(code, pyapi::CodeFamily::kSaysRecording);
  const bool torch = pyapi::isTorchCode(ctx.frame.code, pyapi::globalsOf(ctx.act.frame));
  const bool report = own || (options_.reportCompiling && !torch);
  if (flow == Flow::kNext && report) {
    PyObject*& slot = ctx.act.peek(1);
    PyObject* old = slot;
    slot = Py_NewRef(Py_True);
    Py_DECREF(old);
  }
  result = Shadow::constant();
  return flow;
}

Flow unknownSequence(CallContext& ctx, Shadow& result) { return opaqueModel(ctx, result); }

const ModelEntry* entryBehind(PyObject* callable) {
  const ModelEntry* entry = entryOf(callable);
  if (entry != nullptr || !PyFunction_Check(callable) || !isTorchWrapper(callable)) return entry;
  static PyObject* name = PyUnicode_InternFromString("__wrapped__");
  PyObject* dict = pyapi::attributesOf(pyapi::asFunction(callable));
  PyObject* wrapped = dict == nullptr ? nullptr : PyDict_GetItemWithError(dict, name);
  return wrapped == nullptr ? nullptr : entryOf(wrapped);
}

CallModel modelOfFunction(PyObject* function) {
  const ModelEntry* entry = entryBehind(function);
  return entry != nullptr ? entry->model : modelOfCode(PyFunction_GET_CODE(function));
}

bool acceptsArguments(PyObject* called, const CallContext& ctx) {
  const bool made = PyType_Check(called);
  PyObject* function = made ? specialMethod(reinterpret_cast<PyTypeObject*>(called), "__init__") : called;
  KINTSUGI_CHECK(function != nullptr && PyFunction_Check(function), "a polyfill that is no Python code");
  const size_t self = made ? 1 : 0;
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
  const auto count = static_cast<size_t>(pyapi::argumentCount(code));
  const size_t named = count + static_cast<size_t>(pyapi::keywordOnlyCount(code));
  if (self + ctx.positional > count && (pyapi::flagsOf(code) & CO_VARARGS) == 0) return false;
  std::vector<bool> given(named);
  for (size_t i = 0; i < std::min(self + ctx.positional, count); ++i) given[i] = true;
  pyapi::Ref<> names = pyapi::steal(PyCode_GetVarnames(code));
  for (size_t i = ctx.positional; i < ctx.total(); ++i) {
    auto at = static_cast<size_t>(pyapi::positionalOnlyCount(code));
    while (at < named && PyUnicode_Compare(PyTuple_GET_ITEM(names.get(), at), ctx.nameOf(i)) != 0) ++at;
    if (at == named && (pyapi::flagsOf(code) & CO_VARKEYWORDS) == 0) return false;
    if (at < named && given[at]) return false;
    if (at < named) given[at] = true;
  }
  PyObject* defaults = PyFunction_GET_DEFAULTS(function);
  PyObject* keywordDefaults = PyFunction_GET_KW_DEFAULTS(function);
  const size_t optional = defaults != nullptr ? static_cast<size_t>(PyTuple_GET_SIZE(defaults)) : 0;
  for (size_t i = 0; i < named; ++i) {
    const bool defaulted = i < count ? i + optional >= count
                                     : keywordDefaults != nullptr &&
                                           PyDict_Contains(keywordDefaults, PyTuple_GET_ITEM(names.get(), i));
    if (!given[i] && !defaulted) return false;
  }
  return true;
}

}  // namespace kintsugi::capture
