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

bool isNothing(PyObject* object) { return object == nullptr || object == Py_None; }

// True if the exception can be rebuilt from what the trace knows, wherever it is needed.
bool isVirtualOnly(RecordContext& rec, Shadow shadow) {
  return shadow.isVirtual() && rec.objects.virtualOf(shadow).value == ir::kNone;
}

// `getattr(exception, "__traceback__")`, as operands.
struct TracebackRead {
  PyObject* getattr;
  Operand name;
};
TracebackRead tracebackRead(RecordContext& rec) {
  static constinit pyapi::Lazy<PyObject*> getattrSlot;
  PyObject* getattr = getattrSlot.get([] { return PyDict_GetItemString(PyEval_GetBuiltins(), "getattr"); });
  static PyObject* name = PyUnicode_InternFromString("__traceback__");
  return {getattr, Operand::constant(rec.guards.constId(name))};
}

Operand currentTraceback(RecordContext& rec, Operand exception) {
  const TracebackRead read = tracebackRead(rec);
  return rec.snapshots.recipes().call(read.getattr, {exception, read.name});
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
  for (size_t i = added.size(); i-- > 0;)
    traceback = rec.snapshots.recipes().tracebackEntry(added[i], traceback);
  emitLink(rec, exception, "__traceback__", traceback);
  return true;
}

// Code inside a step may have raised one exception while it handled another. The trace knows the context of
// the one that was raised first; those that were raised on top of it come from the step.
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
  if (!rec.snapshots.recipes().linkedOperand(now, context)) return false;
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
    if (!rec.snapshots.recipes().linkedOperand(parts.cause, cause)) return false;
    emitLink(rec, exception, "__cause__", cause);
  }
  if (parts.cause != raised.cause.get() || parts.suppress != raised.suppress) {
    emitLink(rec, exception, "__suppress_context__", Operand::boolean(parts.suppress));
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
  if (!known || isVirtualOnly(rec, *known)) return;
  std::vector<Raised>& all = rec.tables.exceptions.raised();
  std::erase_if(all, [&](const Raised& r) { return r.exception.get() == exception; });
  const pyapi::ExceptionParts parts = pyapi::partsOf(exception);
  all.push_back({pyapi::newRef(exception), pyapi::newRef(parts.traceback), pyapi::newRef(parts.context),
                 pyapi::newRef(parts.cause), parts.suppress, byStep, false});
}

void noteCaught(RecordContext& rec, Shadow shadow, PyObject* exception) {
  if (isVirtualOnly(rec, shadow)) {
    const bool outside = pyapi::partsOf(exception).context == nullptr &&
                         rec.tables.exceptions.handledOutside() == nullptr && handlingFrame(rec) == nullptr;
    if (outside) rec.objects.virtualOf(shadow).index = Recipes::kContextOutside;
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
  rec.objects.virtualOf(exception).index = Recipes::kContextOutside;
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
  pyapi::forEachVariableOfFinishedFrames(pyapi::partsOf(exception).traceback, [&](PyObject* object) {
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

Shadow tracebackShadow(RecordContext& rec, PyObject* traceback) {
  return rec.snapshots.recipes().tracebackShadow(traceback);
}

// The traceback of an exception that was not made by the trace. Only the run knows it, so a step asks for it.
Shadow tracebackOf(RecordContext& rec, Shadow shadow, PyObject* exception, PyObject* traceback) {
  if (isNothing(traceback)) return Shadow::constant();
  if (auto known = rec.objects.knownObject(traceback)) return *known;
  if (isVirtualOnly(rec, shadow)) return tracebackShadow(rec, traceback);
  Operand operand;
  if (!rec.snapshots.operandOf(shadow, exception, operand))
    return rec.objects.newVirtual(VirtualKind::kOpaque, traceback);
  const TracebackRead read = tracebackRead(rec);
  const size_t at = rec.steps.emit(Op::kCallKnown,
                                   {Operand::constant(rec.guards.constId(read.getattr)), operand, read.name},
                                   {{ir::TypeKind::kObject, ir::kNone}}, rec.snapshots.stateBefore());
  rec.tables.blocks.next();
  const Shadow result = rec.guards.readSource(guard::SourceKind::kValue, ir::kNone, nullptr,
                                              rec.trace().code[at].firstResult, traceback);
  rec.tables.finalized.add(traceback);
  rec.steps.flushBlock();  // the same instruction may need another step
  return result;
}

}  // namespace kintsugi::capture
