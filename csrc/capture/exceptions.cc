#include "capture/exceptions.h"

#include "capture/recorder_tables.h"

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

// A value of Virtual::index for exceptions: the `__context__` is what the caller of the compiled function
// handles.
constexpr int64_t kContextOutside = 1;

bool isNothing(PyObject* object) { return object == nullptr || object == Py_None; }

// True if the exception can be rebuilt from what the trace knows, wherever it is needed.
bool isUnbuilt(RecordContext& rec, Shadow shadow) {
  return shadow.isVirtual() && rec.objects.virtualOf(shadow).value == ir::kNone;
}

Operand call(RecordContext& rec, PyObject* callable, std::initializer_list<Operand> args) {
  Recipe recipe;
  recipe.kind = RecipeKind::kCall;
  recipe.parts.push_back(Operand::constant(rec.guards.constId(callable)));
  recipe.parts.insert(recipe.parts.end(), args);
  return Operand::recipe(rec.snapshots.addRecipe(std::move(recipe)));
}

Operand handledOutside(RecordContext& rec) {
  static constinit pyapi::Lazy<PyObject*> functionSlot;
  PyObject* function = functionSlot.get([] { return PySys_GetObject("exception"); });
  return call(rec, function, {});
}

Operand currentTraceback(RecordContext& rec, Operand exception) {
  static constinit pyapi::Lazy<PyObject*> getattrSlot;
  PyObject* getattr = getattrSlot.get([] { return PyDict_GetItemString(PyEval_GetBuiltins(), "getattr"); });
  static PyObject* name = PyUnicode_InternFromString("__traceback__");
  return call(rec, getattr, {exception, Operand::constant(rec.guards.constId(name))});
}

// The operand of a `__cause__` or `__context__`. False if the trace does not know the object.
bool linkedOperand(RecordContext& rec, PyObject* object, Operand& out) {
  if (isNothing(object)) {
    out = Operand::null();
    return true;
  }
  if (object == rec.tables.exceptions.handledOutside()) {
    out = handledOutside(rec);
    return true;
  }
  auto known = rec.objects.knownObject(object);
  return known && rec.snapshots.operandOf(*known, object, out);
}

// Makes a traceback entry whose `tb_next` is `next`.
Operand entryRecipe(RecordContext& rec, const pyapi::TracebackEntry& entry, Operand next) {
  Recipe recipe;
  recipe.kind = RecipeKind::kTraceback;
  recipe.parts = {next, Operand::constant(rec.guards.constId(entry.code)),
                  Operand::constant(rec.guards.constId(entry.globals)), Operand::integer(entry.unit)};
  return Operand::recipe(rec.snapshots.addRecipe(std::move(recipe)));
}

void emitLink(RecordContext& rec, Operand exception, const char* name, Operand value) {
  if (value.kind == ir::OperandKind::kNull) value = Operand::none();
  rec.steps.emit(Op::kSetAttr, {exception, rec.trace().stringOperand(name), value}, {},
                 rec.snapshots.stateBefore());
}

// Emits the traceback entries that frames of the trace have put in front of the exception's old traceback.
bool emitTraceback(RecordContext& rec, Operand exception, PyObject* now, PyObject* before) {
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

// Code inside a step may have raised one exception while it handled another. Only the first of them has a
// context that the trace knows.
bool emitContext(RecordContext& rec, Operand exception, const Raised& raised, PyObject* now) {
  if (raised.byStep) {
    while (!isNothing(now) && now != rec.tables.exceptions.handledOutside() &&
           !rec.objects.knownObject(now)) {
      now = pyapi::partsOf(now).context;
      if (!isNothing(now) && rec.objects.knownObject(now)) return false;
    }
    if (isNothing(now) || now == rec.tables.exceptions.handledOutside()) return true;
  } else if (now == raised.context.get()) {
    return true;
  }
  Operand context;
  if (!linkedOperand(rec, now, context)) return false;
  emitLink(rec, exception, "__context__", context);
  return true;
}

bool emitChanges(RecordContext& rec, const Raised& raised) {
  PyObject* object = raised.exception.get();
  auto known = rec.objects.knownObject(object);
  Operand exception;
  if (!known || !rec.snapshots.operandOf(*known, object, exception)) return false;
  const pyapi::ExceptionParts parts = pyapi::partsOf(object);
  if (!emitTraceback(rec, exception, parts.traceback, raised.traceback.get())) return false;
  if (!emitContext(rec, exception, raised, parts.context)) return false;
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
  return isPlain(a) && PyObject_RichCompareBool(a, b, Py_EQ) == 1;
}

// Fields that C code sets beside the arguments (such as AttributeError.name) and that the constructor does
// not.
bool addFields(RecordContext& rec, PyObject* exception, PyObject* args, Recipe& recipe) {
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
    if (isPlain(value)) {
      operand = Operand::constant(rec.guards.constId(value));
    } else {
      auto known = rec.objects.knownObject(value);
      if (!known || !rec.snapshots.operandOf(*known, value, operand)) return false;
    }
    recipe.parts.push_back(Operand::constant(rec.guards.constId(name)));
    recipe.parts.push_back(operand);
    return true;
  });
}

bool addAttributes(RecordContext& rec, Virtual& v, PyObject* dict, Recipe& recipe) {
  const Py_ssize_t count = dict != nullptr ? PyDict_GET_SIZE(dict) : 0;
  if (count != PyDict_GET_SIZE(v.attrs.get())) return false;
  PyObject *name, *value;
  Py_ssize_t at = 0;
  while (dict != nullptr && PyDict_Next(dict, &at, &name, &value)) {
    PyObject* encoded = PyDict_GetItemWithError(v.attrs.get(), name);
    Operand operand;
    if (encoded == nullptr || !rec.snapshots.operandOf(decodeShadow(encoded), value, operand)) {
      PyErr_Clear();
      return false;
    }
    recipe.parts.push_back(Operand::constant(rec.guards.constId(name)));
    recipe.parts.push_back(operand);
  }
  return true;
}

}  // namespace

bool isRebuiltException(PyTypeObject* type) {
  PyTypeObject* base = pyapi::exceptionBase(type);
  PyObject* make = specialMethod(type, "__new__");
  const bool plainNew = make == nullptr || Py_TYPE(make) != &PyStaticMethod_Type;
  return plainNew && (pyapi::initializesLike(type, base) ||
                      pyapi::hasSameSize(base, reinterpret_cast<PyTypeObject*>(PyExc_BaseException)));
}

ShadowFrame* handlingFrame(RecordContext& rec) {
  ShadowFrame* frame = rec.tables.frames.current();
  while (frame != nullptr && frame->handled.isNull()) frame = frame->caller;
  return frame;
}

void noteRaised(RecordContext& rec, PyObject* exception, bool byStep) {
  auto known = PyExceptionInstance_Check(exception) ? rec.objects.knownObject(exception) : std::nullopt;
  if (!known || isUnbuilt(rec, *known)) return;
  std::vector<Raised>& all = rec.tables.exceptions.raised();
  std::erase_if(all, [&](const Raised& r) { return r.exception.get() == exception; });
  const pyapi::ExceptionParts parts = pyapi::partsOf(exception);
  all.push_back({pyapi::newRef(exception), pyapi::newRef(parts.traceback), pyapi::newRef(parts.context),
                 pyapi::newRef(parts.cause), parts.suppress, byStep, false});
}

void noteCaught(RecordContext& rec, Shadow shadow, PyObject* exception) {
  if (isUnbuilt(rec, shadow)) {
    const bool outside = pyapi::partsOf(exception).context == nullptr &&
                         rec.tables.exceptions.handledOutside() == nullptr && handlingFrame(rec) == nullptr;
    if (outside) rec.objects.virtualOf(shadow).index = kContextOutside;
    rec.objects.noteChange();
    return;
  }
  for (Raised& raised : rec.tables.exceptions.raised()) {
    if (raised.exception.get() != exception) continue;
    raised.caught = true;
    return;
  }
  rec.abort(diag::Code::KTG0303, {pyapi::typeNameOf(exception)});
}

void setOutsideContext(RecordContext& rec, Shadow exception) {
  rec.objects.virtualOf(exception).index = kContextOutside;
}

void emitRaised(RecordContext& rec) {
  std::vector<Raised> all = rec.tables.exceptions.takeRaised();
  for (Raised& raised : all) {
    if (!raised.caught) {
      rec.tables.exceptions.raised().push_back(std::move(raised));
    } else if (rec.live() && !emitChanges(rec, raised)) {
      rec.abort(diag::Code::KTG0303, {pyapi::typeNameOf(raised.exception.get())});
    }
  }
}

void holdPassedFrames(RecordContext& rec, ShadowFrame& frame, PyObject* exception) {
  std::vector<ir::SourceId>& held = frame.heldByHandled;
  pyapi::forEachLeftVariable(pyapi::partsOf(exception).traceback, [&](PyObject* object) {
    if (!rec.tables.finalized.contains(object)) return;
    const auto found = rec.tables.sources.of(object);
    if (found && std::ranges::find(held, *found) == held.end()) held.push_back(*found);
  });
}

void releasePassedFrames(RecordContext& rec, ShadowFrame& frame) {
  for (const ir::SourceId source : std::exchange(frame.heldByHandled, {})) {
    const Operand dropFunction = Operand::constant(rec.guards.constId(pyapi::dropReferenceFunction()));
    rec.steps.emit(Op::kCallKnown, {dropFunction, Operand::source(source)},
                   {{ir::TypeKind::kObject, ir::kNone}}, rec.snapshots.stateBefore());
  }
}

bool escapeHandled(RecordContext& rec) {
  for (ShadowFrame* frame = rec.tables.frames.current(); frame != nullptr; frame = frame->caller) {
    if (frame->handled.isNull()) continue;
    Shadow shadow = frame->handled;
    if (!rec.snapshots.escape(shadow, frame->handledObject.get())) return false;
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

Shadow tracebackShadow(RecordContext& rec, PyObject* traceback) {
  if (isNothing(traceback)) return Shadow::constant();
  auto known = rec.objects.knownObject(traceback);
  return known ? *known : rec.objects.newVirtual(VirtualKind::kTraceback, traceback);
}

// The traceback of an exception that was not made by the trace. Only the run knows it, so a step asks for it.
Shadow tracebackOf(RecordContext& rec, Shadow shadow, PyObject* exception, PyObject* traceback) {
  if (isNothing(traceback)) return Shadow::constant();
  if (auto known = rec.objects.knownObject(traceback)) return *known;
  if (isUnbuilt(rec, shadow)) return tracebackShadow(rec, traceback);
  static constinit pyapi::Lazy<PyObject*> getattrSlot;
  PyObject* getattr = getattrSlot.get([] { return PyDict_GetItemString(PyEval_GetBuiltins(), "getattr"); });
  static PyObject* name = PyUnicode_InternFromString("__traceback__");
  Operand operand;
  if (!rec.snapshots.operandOf(shadow, exception, operand))
    return rec.objects.newVirtual(VirtualKind::kOpaque, traceback);
  const size_t at = rec.steps.emit(
      Op::kCallKnown,
      {Operand::constant(rec.guards.constId(getattr)), operand, Operand::constant(rec.guards.constId(name))},
      {{ir::TypeKind::kObject, ir::kNone}}, rec.snapshots.stateBefore());
  rec.tables.blocks.next();
  const Shadow result = rec.guards.readSource(guard::SourceKind::kValue, ir::kNone, nullptr,
                                              rec.trace().code[at].firstResult, traceback);
  rec.tables.finalized.add(traceback);
  rec.steps.flushBlock();  // the same instruction may need another step
  return result;
}

// An exception of a built-in class is rebuilt by a call of its constructor, perhaps with more arguments than
// `args` keeps.
bool exceptionParts(RecordContext& rec, Virtual& v, Recipe& recipe) {
  PyObject* object = v.object.get();
  const pyapi::ExceptionParts parts = pyapi::partsOf(object);
  const bool called = !PyType_HasFeature(Py_TYPE(object), Py_TPFLAGS_HEAPTYPE);
  const size_t count = v.parts.size();
  if (!called && static_cast<size_t>(PyTuple_GET_SIZE(parts.args)) != count) return false;
  recipe.kind = RecipeKind::kException;
  recipe.type = rec.guards.constId(reinterpret_cast<PyObject*>(Py_TYPE(object)));
  recipe.parts.push_back(Operand::integer(static_cast<int64_t>(count)));
  pyapi::Ref<> args = pyapi::steal(PyTuple_New(static_cast<Py_ssize_t>(count)));
  if (!args) return false;
  for (size_t i = 0; i < count; ++i) {
    PyObject* real = v.partObjects[i].get();
    if (!called && PyTuple_GET_ITEM(parts.args, static_cast<Py_ssize_t>(i)) != real) return false;
    Operand operand;
    if (!rec.snapshots.operandOf(v.parts[i], real, operand)) return false;
    recipe.parts.push_back(operand);
    PyTuple_SET_ITEM(args.get(), static_cast<Py_ssize_t>(i), Py_NewRef(real));
  }
  Operand cause, context, traceback = Operand::null();
  if (!linkedOperand(rec, parts.cause, cause) || !linkedOperand(rec, parts.context, context)) return false;
  if (isNothing(parts.context) && v.index == kContextOutside) context = handledOutside(rec);
  if (!isNothing(parts.traceback) &&
      !rec.snapshots.operandOf(tracebackShadow(rec, parts.traceback), parts.traceback, traceback)) {
    return false;
  }
  recipe.parts.insert(recipe.parts.end(), {cause, context, Operand::boolean(parts.suppress), traceback});
  return addFields(rec, object, args.get(), recipe) && addAttributes(rec, v, parts.dict, recipe);
}

bool tracebackParts(RecordContext& rec, Virtual& v, Recipe& recipe) {
  const pyapi::TracebackEntry entry = pyapi::entryOf(v.object.get());
  Operand next = Operand::null();
  if (entry.next != nullptr && !rec.snapshots.operandOf(tracebackShadow(rec, entry.next), entry.next, next))
    return false;
  recipe.kind = RecipeKind::kTraceback;
  recipe.parts = {next, Operand::constant(rec.guards.constId(entry.code)),
                  Operand::constant(rec.guards.constId(entry.globals)), Operand::integer(entry.unit)};
  return true;
}

}  // namespace kintsugi::capture
