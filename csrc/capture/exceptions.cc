#include "capture/exceptions.h"

#include <algorithm>

#include "pyapi/drop_reference.h"
#include "pyapi/exception_state.h"
#include "pyapi/lazy.h"
#include "pyapi/types.h"

namespace kintsugi::capture {

using ir::Op;
using ir::Operand;
using ir::Recipe;
using ir::RecipeKind;

namespace {

// Virtual::index of an exception: its context is what is handled outside.
constexpr int64_t kContextOutside = 1;

bool isNothing(PyObject* object) { return object == nullptr || object == Py_None; }

// Is it made again from what the trace knows, wherever it is needed?
bool isOurs(Recorder& rec, Shadow shadow) {
  return shadow.isVirtual() && rec.virtualOf(shadow).value == ir::kNone;
}

Operand call(Recorder& rec, PyObject* callable, std::initializer_list<Operand> args) {
  Recipe recipe;
  recipe.kind = RecipeKind::kCall;
  recipe.parts.push_back(Operand::constant(rec.constId(callable)));
  recipe.parts.insert(recipe.parts.end(), args);
  return Operand::recipe(rec.addRecipe(std::move(recipe)));
}

Operand handledOutside(Recorder& rec) {
  static constinit pyapi::Lazy<PyObject*> functionSlot;
  PyObject* function = functionSlot.get([] { return PySys_GetObject("exception"); });
  return call(rec, function, {});
}

Operand currentTraceback(Recorder& rec, Operand exception) {
  static constinit pyapi::Lazy<PyObject*> getattrSlot;
  PyObject* getattr = getattrSlot.get([] { return PyDict_GetItemString(PyEval_GetBuiltins(), "getattr"); });
  static PyObject* name = PyUnicode_InternFromString("__traceback__");
  return call(rec, getattr, {exception, Operand::constant(rec.constId(name))});
}

// The operand of a cause or a context. False: the trace does not know it.
bool linkedOperand(Recorder& rec, PyObject* object, Operand& out) {
  if (isNothing(object)) {
    out = Operand::null();
    return true;
  }
  if (object == rec.known().handledOutside_.get()) {
    out = handledOutside(rec);
    return true;
  }
  auto known = rec.knownObject(object);
  return known && rec.operandOf(*known, object, out);
}

// One entry of a traceback, before `next`.
Operand entryRecipe(Recorder& rec, const pyapi::TracebackEntry& entry, Operand next) {
  Recipe recipe;
  recipe.kind = RecipeKind::kTraceback;
  recipe.parts = {next, Operand::constant(rec.constId(entry.code)),
                  Operand::constant(rec.constId(entry.globals)), Operand::integer(entry.unit)};
  return Operand::recipe(rec.addRecipe(std::move(recipe)));
}

void emitLink(Recorder& rec, Operand exception, const char* name, Operand value) {
  if (value.kind == ir::OperandKind::kNull) value = Operand::none();
  rec.emit(Op::kSetAttr, {exception, rec.trace().stringOperand(name), value}, {}, rec.stateBefore());
}

// The entries that frames of the trace have put before what the exception had.
bool settleTraceback(Recorder& rec, Operand exception, PyObject* now, PyObject* before) {
  std::vector<pyapi::TracebackEntry> added;
  while (now != before) {
    if (isNothing(now)) return false;
    added.push_back(pyapi::entryOf(now));
    now = added.back().next;
  }
  if (added.empty()) return true;
  Operand traceback = currentTraceback(rec, exception);
  for (size_t i = added.size(); i-- > 0;) traceback = entryRecipe(rec, added[i], traceback);
  emitLink(rec, exception, "__traceback__", traceback);
  return true;
}

// A step's own code may have raised one exception while it handled another: the context of the first of them
// is ours.
bool settleContext(Recorder& rec, Operand exception, const Raised& raised, PyObject* now) {
  if (raised.byStep) {
    while (!isNothing(now) && now != rec.known().handledOutside_.get() && !rec.knownObject(now)) {
      now = pyapi::partsOf(now).context;
      if (!isNothing(now) && rec.knownObject(now)) return false;
    }
    if (isNothing(now) || now == rec.known().handledOutside_.get()) return true;
  } else if (now == raised.context.get()) {
    return true;
  }
  Operand context;
  if (!linkedOperand(rec, now, context)) return false;
  emitLink(rec, exception, "__context__", context);
  return true;
}

bool settleOne(Recorder& rec, const Raised& raised) {
  PyObject* object = raised.exception.get();
  auto known = rec.knownObject(object);
  Operand exception;
  if (!known || !rec.operandOf(*known, object, exception)) return false;
  const pyapi::ExceptionParts parts = pyapi::partsOf(object);
  if (!settleTraceback(rec, exception, parts.traceback, raised.traceback.get())) return false;
  if (!settleContext(rec, exception, raised, parts.context)) return false;
  if (parts.cause != raised.cause.get()) {
    Operand cause;
    if (!linkedOperand(rec, parts.cause, cause)) return false;
    emitLink(rec, exception, "__cause__", cause);
  }
  if (parts.cause != raised.cause.get() || parts.suppress != raised.suppress) {
    emitLink(rec, exception, "__suppress_context__", Operand::boolean(parts.suppress));
  }
  return true;
}

bool sameField(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (a == nullptr || b == nullptr || Py_TYPE(a) != Py_TYPE(b)) return false;
  if (PyTuple_CheckExact(a)) {
    if (PyTuple_GET_SIZE(a) != PyTuple_GET_SIZE(b)) return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(a); ++i) {
      if (PyTuple_GET_ITEM(a, i) != PyTuple_GET_ITEM(b, i)) return false;
    }
    return true;
  }
  return Recorder::isPlain(a) && PyObject_RichCompareBool(a, b, Py_EQ) == 1;
}

// What C code has put beside the arguments (AttributeError.name), where the constructor would not.
bool addFields(Recorder& rec, PyObject* exception, PyObject* args, Recipe& recipe) {
  pyapi::Ref<> made = pyapi::newException(Py_TYPE(exception), args);
  if (!made) {
    PyErr_Clear();
    return false;
  }
  std::vector<PyObject*> theirs;
  pyapi::forEachField(made.get(), [&](PyObject*, PyObject* value) {
    theirs.push_back(value);
    return true;
  });
  size_t at = 0;
  return pyapi::forEachField(exception, [&](PyObject* name, PyObject* value) {
    if (sameField(value, theirs[at++])) return true;
    Operand operand = Operand::null();
    if (value == nullptr) return false;
    if (Recorder::isPlain(value)) {
      operand = Operand::constant(rec.constId(value));
    } else {
      auto known = rec.knownObject(value);
      if (!known || !rec.operandOf(*known, value, operand)) return false;
    }
    recipe.parts.push_back(Operand::constant(rec.constId(name)));
    recipe.parts.push_back(operand);
    return true;
  });
}

bool addAttributes(Recorder& rec, Virtual& v, PyObject* dict, Recipe& recipe) {
  const Py_ssize_t count = dict != nullptr ? PyDict_GET_SIZE(dict) : 0;
  if (count != PyDict_GET_SIZE(v.attrs.get())) return false;
  PyObject *name, *value;
  Py_ssize_t at = 0;
  while (dict != nullptr && PyDict_Next(dict, &at, &name, &value)) {
    PyObject* encoded = PyDict_GetItemWithError(v.attrs.get(), name);
    Operand operand;
    if (encoded == nullptr || !rec.operandOf(Recorder::decode(encoded), value, operand)) {
      PyErr_Clear();
      return false;
    }
    recipe.parts.push_back(Operand::constant(rec.constId(name)));
    recipe.parts.push_back(operand);
  }
  return true;
}

}  // namespace

bool isRebuiltException(PyTypeObject* type) {
  PyTypeObject* base = pyapi::exceptionBase(type);
  PyObject* make = Recorder::specialMethod(type, "__new__");
  const bool plainNew = make == nullptr || Py_TYPE(make) != &PyStaticMethod_Type;
  return plainNew && (pyapi::initializesLike(type, base) ||
                      pyapi::hasSameSize(base, reinterpret_cast<PyTypeObject*>(PyExc_BaseException)));
}

ShadowFrame* handlingFrame(Recorder& rec) {
  ShadowFrame* frame = rec.known().current_;
  while (frame != nullptr && frame->handled.isNull()) frame = frame->caller;
  return frame;
}

void noteRaised(Recorder& rec, PyObject* exception, bool byStep) {
  auto known = PyExceptionInstance_Check(exception) ? rec.knownObject(exception) : std::nullopt;
  if (!known || isOurs(rec, *known)) return;
  std::vector<Raised>& all = rec.known().raised_;
  std::erase_if(all, [&](const Raised& r) { return r.exception.get() == exception; });
  const pyapi::ExceptionParts parts = pyapi::partsOf(exception);
  all.push_back({pyapi::newRef(exception), pyapi::newRef(parts.traceback), pyapi::newRef(parts.context),
                 pyapi::newRef(parts.cause), parts.suppress, byStep, false});
}

void noteCaught(Recorder& rec, Shadow shadow, PyObject* exception) {
  if (isOurs(rec, shadow)) {
    const bool outside = pyapi::partsOf(exception).context == nullptr && !rec.known().handledOutside_ &&
                         handlingFrame(rec) == nullptr;
    if (outside) rec.virtualOf(shadow).index = kContextOutside;
    rec.touched();
    return;
  }
  for (Raised& raised : rec.known().raised_) {
    if (raised.exception.get() != exception) continue;
    raised.caught = true;
    return;
  }
  rec.abort(diag::Code::KTG0303, {pyapi::typeNameOf(exception)});
}

void contextIsOutside(Recorder& rec, Shadow exception) { rec.virtualOf(exception).index = kContextOutside; }

void settleRaised(Recorder& rec) {
  std::vector<Raised> all = std::move(rec.known().raised_);
  rec.known().raised_.clear();
  for (Raised& raised : all) {
    if (!raised.caught) {
      rec.known().raised_.push_back(std::move(raised));
    } else if (rec.live() && !settleOne(rec, raised)) {
      rec.abort(diag::Code::KTG0303, {pyapi::typeNameOf(raised.exception.get())});
    }
  }
}

void holdPassedFrames(Recorder& rec, ShadowFrame& frame, PyObject* exception) {
  const RecorderState& known = rec.known();
  std::vector<ir::SourceId>& held = frame.heldByHandled;
  pyapi::forEachLeftVariable(pyapi::partsOf(exception).traceback, [&](PyObject* object) {
    if (!known.finalized_.contains(object)) return;
    const auto found = known.sourceIds_.find(object);
    if (found != known.sourceIds_.end() && std::ranges::find(held, found->second) == held.end())
      held.push_back(found->second);
  });
}

void letPassedFramesGo(Recorder& rec, ShadowFrame& frame) {
  for (const ir::SourceId source : std::exchange(frame.heldByHandled, {})) {
    const Operand letGo = Operand::constant(rec.constId(pyapi::dropReferenceFunction()));
    rec.emit(Op::kCallKnown, {letGo, Operand::source(source)}, {{ir::TypeKind::kObject, ir::kNone}},
             rec.stateBefore());
  }
}

bool escapeHandled(Recorder& rec) {
  for (ShadowFrame* frame = rec.known().current_; frame != nullptr; frame = frame->caller) {
    if (frame->handled.isNull()) continue;
    Shadow shadow = frame->handled;
    if (!rec.escape(shadow, frame->handledObject.get())) return false;
  }
  return true;
}

std::vector<PyObject*> linkedObjects(PyObject* exception) {
  const pyapi::ExceptionParts parts = pyapi::partsOf(exception);
  std::vector<PyObject*> linked;
  for (PyObject* object : {parts.cause, parts.context, parts.traceback}) {
    if (!isNothing(object)) linked.push_back(object);
  }
  return linked;
}

Shadow tracebackShadow(Recorder& rec, PyObject* traceback) {
  if (isNothing(traceback)) return Shadow::constant();
  auto known = rec.knownObject(traceback);
  return known ? *known : rec.newVirtual(VirtualKind::kTraceback, traceback);
}

// Of one that others hold, which only the run knows: asked for in a step.
Shadow tracebackOf(Recorder& rec, Shadow shadow, PyObject* exception, PyObject* traceback) {
  if (isNothing(traceback)) return Shadow::constant();
  if (auto known = rec.knownObject(traceback)) return *known;
  if (isOurs(rec, shadow)) return tracebackShadow(rec, traceback);
  static constinit pyapi::Lazy<PyObject*> getattrSlot;
  PyObject* getattr = getattrSlot.get([] { return PyDict_GetItemString(PyEval_GetBuiltins(), "getattr"); });
  static PyObject* name = PyUnicode_InternFromString("__traceback__");
  Operand operand;
  if (!rec.operandOf(shadow, exception, operand)) return rec.newVirtual(VirtualKind::kOpaque, traceback);
  const size_t at =
      rec.emit(Op::kCallKnown,
               {Operand::constant(rec.constId(getattr)), operand, Operand::constant(rec.constId(name))},
               {{ir::TypeKind::kObject, ir::kNone}}, rec.stateBefore());
  ++rec.known().block_;
  const Shadow result = rec.readSource(guard::SourceKind::kValue, ir::kNone, nullptr,
                                       rec.trace().code[at].firstResult, traceback);
  rec.known().finalized_.add(traceback);
  rec.flushBlock();  // another step of the same instruction may follow
  return result;
}

// Where the class is C's, the constructor is called again, perhaps with more than it keeps in `args`.
bool exceptionParts(Recorder& rec, Virtual& v, Recipe& recipe) {
  PyObject* object = v.object.get();
  const pyapi::ExceptionParts parts = pyapi::partsOf(object);
  const bool called = !PyType_HasFeature(Py_TYPE(object), Py_TPFLAGS_HEAPTYPE);
  const size_t count = v.parts.size();
  if (!called && static_cast<size_t>(PyTuple_GET_SIZE(parts.args)) != count) return false;
  recipe.kind = RecipeKind::kException;
  recipe.type = rec.constId(reinterpret_cast<PyObject*>(Py_TYPE(object)));
  recipe.parts.push_back(Operand::integer(static_cast<int64_t>(count)));
  pyapi::Ref<> args = pyapi::steal(PyTuple_New(static_cast<Py_ssize_t>(count)));
  if (!args) return false;
  for (size_t i = 0; i < count; ++i) {
    PyObject* real = v.partObjects[i].get();
    if (!called && PyTuple_GET_ITEM(parts.args, static_cast<Py_ssize_t>(i)) != real) return false;
    Operand operand;
    if (!rec.operandOf(v.parts[i], real, operand)) return false;
    recipe.parts.push_back(operand);
    PyTuple_SET_ITEM(args.get(), static_cast<Py_ssize_t>(i), Py_NewRef(real));
  }
  Operand cause, context, traceback = Operand::null();
  if (!linkedOperand(rec, parts.cause, cause) || !linkedOperand(rec, parts.context, context)) return false;
  if (isNothing(parts.context) && v.index == kContextOutside) context = handledOutside(rec);
  if (!isNothing(parts.traceback) &&
      !rec.operandOf(tracebackShadow(rec, parts.traceback), parts.traceback, traceback)) {
    return false;
  }
  recipe.parts.insert(recipe.parts.end(), {cause, context, Operand::boolean(parts.suppress), traceback});
  return addFields(rec, object, args.get(), recipe) && addAttributes(rec, v, parts.dict, recipe);
}

bool tracebackParts(Recorder& rec, Virtual& v, Recipe& recipe) {
  const pyapi::TracebackEntry entry = pyapi::entryOf(v.object.get());
  Operand next = Operand::null();
  if (entry.next != nullptr && !rec.operandOf(tracebackShadow(rec, entry.next), entry.next, next))
    return false;
  recipe.kind = RecipeKind::kTraceback;
  recipe.parts = {next, Operand::constant(rec.constId(entry.code)),
                  Operand::constant(rec.constId(entry.globals)), Operand::integer(entry.unit)};
  return true;
}

}  // namespace kintsugi::capture
