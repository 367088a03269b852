// Record handlers: loads, stores, cells, globals, and moves on the stack.
#include "capture/callee.h"
#include "capture/calls/model.h"
#include "capture/finalizer_tracker.h"
#include "capture/handlers/handlers.h"
#include "capture/record/table.h"
#include "capture/tables/pauses.h"
#include "pyapi/code.h"
#include "pyapi/containers.h"
#include "pyapi/frame.h"
#include "pyapi/names.h"
#include "pyapi/opcodes.h"
#include "pyapi/types.h"

namespace kintsugi::capture {

using guard::GuardKind;
using guard::SourceKind;

namespace {

Flow plain(RecordContext& rec, ShadowFrame&, Activation& act, const Instr& in) {
  return rec.execute(act, in);
}

Flow popTop(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  Flow flow = rec.execute(act, in);
  f.drop(1);
  return flow;
}

Flow pushNull(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  f.push(Shadow::null());
  return rec.execute(act, in);
}

Flow copy(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  f.push(Shadow(f.top(static_cast<int>(in.arg))));
  return rec.execute(act, in);
}

Flow swap(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  std::swap(f.top(1), f.top(static_cast<int>(in.arg)));
  return rec.execute(act, in);
}

Flow loadConst(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  f.push(Shadow::constant());
  return rec.execute(act, in);
}

void pushLocal(RecordContext& rec, ShadowFrame& f, uint32_t index) {
  f.push(f.locals[index] = rec.objects.current(f.locals[index]));
}

Flow loadFast(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  Flow flow = rec.execute(act, in);
  if (flow == Flow::kNext) pushLocal(rec, f, in.arg);
  return flow;
}

Flow loadFastLoadFast(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  Flow flow = rec.execute(act, in);
  for (const Instr& half : halvesOf(in)) {
    if (flow == Flow::kNext) pushLocal(rec, f, half.arg);
  }
  return flow;
}

Flow loadFastAndClear(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  const bool unset = act.local(in.arg) == nullptr;
  f.push(unset ? Shadow::null() : rec.objects.current(f.locals[in.arg]));
  f.locals[in.arg] = Shadow::null();
  return rec.execute(act, in);
}

Flow storeFast(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  f.locals[in.arg] = f.pop();
  return rec.execute(act, in);
}

Flow storeFastLoadFast(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  const auto [store, load] = halvesOf(in);
  f.locals[store.arg] = f.pop();
  Flow flow = rec.execute(act, in);
  if (flow == Flow::kNext) pushLocal(rec, f, load.arg);
  return flow;
}

// The old values of the two variables are dropped in turn, as if by two instructions.
Flow storeFastStoreFast(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  const auto [first, second] = halvesOf(in);
  pyapi::Ref<> one = pyapi::newRef(act.local(first.arg));
  const pyapi::Ref<> two = pyapi::newRef(first.arg == second.arg ? act.peek(1) : act.local(second.arg));
  f.locals[first.arg] = f.pop();
  f.locals[second.arg] = f.pop();
  Flow flow = rec.execute(act, in);
  one.reset();
  rec.lifetimes.runDroppedFinalizers();
  return flow;
}

Flow deleteFast(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  Flow flow = rec.execute(act, in);
  f.locals[in.arg] = Shadow::null();
  return flow;
}

Flow makeCell(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  Shadow content = f.locals[in.arg];
  Flow flow = rec.execute(act, in);
  f.locals[in.arg] = rec.objects.newCell(act.local(in.arg), content);
  return flow;
}

Flow copyFreeVars(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  Flow flow = rec.execute(act, in);
  int start = pyapi::localsPlusCount(f.code) - static_cast<int>(in.arg);
  for (int i = 0; i < static_cast<int>(in.arg); ++i) {
    PyObject* cell = act.local(static_cast<uint32_t>(start + i));
    auto shadow = rec.objects.closureCell(f, i, cell);
    if (!shadow) {
      rec.abort(diag::Code::KTG0303, {"closure"});
      return flow;
    }
    f.locals[start + i] = *shadow;
  }
  return flow;
}

Flow loadDeref(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  PyObject* cell = act.local(in.arg);
  auto content = cellContent(rec, f.locals[in.arg], cell);
  if (!content) rec.abort(diag::Code::KTG0303, {"cell"});
  Flow flow = rec.execute(act, in);
  if (flow == Flow::kNext && content) f.push(*content);
  return flow;
}

Flow storeDeref(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  PyObject* cell = act.local(in.arg);
  Shadow value = f.top();
  Shadow target = f.locals[in.arg];
  if (!rec.heap.storeCell(target, cell, value, act.peek(1))) return rec.execute(act, in);
  Flow flow = rec.execute(act, in);
  f.drop(1);
  return flow;
}

Flow deleteDeref(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  Shadow target = f.locals[in.arg];
  if (!target.isVirtual()) {
    rec.abort(diag::Code::KTG0303, {"cell"});
    return rec.execute(act, in);
  }
  rec.objects.virtualOf(target).parts[0] = Shadow::null();
  rec.objects.noteChange();
  return rec.execute(act, in);
}

Flow loadGlobal(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  bool withNull = (in.arg & 1) != 0;
  PyObject* name = pyapi::nameAt(f.code, in.arg >> 1);
  auto shadow = rec.heap.readGlobal(pyapi::globalsOf(act.frame), pyapi::builtinsOf(act.frame), name);
  Flow flow = rec.execute(act, in);
  if (flow != Flow::kNext) return flow;
  if (withNull) {
    pushCallable(f, shadow.value_or(Shadow::constant()));
  } else {
    f.push(shadow.value_or(Shadow::constant()));
  }
  return flow;
}

// What a class statement calls is an entry of the builtins like any other.
Flow loadBuildClass(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  PyObject* builtins = pyapi::builtinsOf(act.frame);
  PyObject* name = pyapi::names::buildClass();
  PyObject* entry = PyDict_CheckExact(builtins) ? PyDict_GetItemWithError(builtins, name) : nullptr;
  if (entry == nullptr) {
    rec.abort(diag::Code::KTG0101, {"__build_class__"});
    return rec.execute(act, in);
  }
  const Shadow found = rec.objects.dictEntry(rec.guards.pinnedRoot(builtins), builtins, name, entry);
  const Flow flow = rec.execute(act, in);
  if (flow == Flow::kNext) f.push(found);
  return flow;
}

Flow storeGlobal(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  PyObject* name = pyapi::nameAt(f.code, in.arg);
  PyObject* globals = pyapi::globalsOf(act.frame);
  if (rec.transforms.countsTransforms()) {
    rec.transient.store(globals, name, f.top(), act.peek(1));
    Flow flow = rec.execute(act, in);
    f.drop(1);
    return flow;
  }
  if (rec.heap.storeItem(rec.guards.pinnedRoot(globals), globals, name, f.top(), act.peek(1))) {
    Flow flow = rec.execute(act, in);
    f.drop(1);
    return flow;
  }
  return rec.execute(act, in);
}

// Whether the name is there is guarded. Where it is not, the instruction raises NameError.
Flow deleteGlobal(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  PyObject* globals = pyapi::globalsOf(act.frame);
  PyObject* name = pyapi::nameAt(f.code, in.arg);
  if (!PyDict_CheckExact(globals)) {
    rec.abort(diag::Code::KTG0303, {"globals"});
    return rec.execute(act, in);
  }
  const bool isThere = PyDict_Contains(globals, name) == 1;
  rec.heap.deleteItem(rec.guards.pinnedRoot(globals), globals, name, false);
  const Flow flow = rec.execute(act, in);
  if (isThere != (flow == Flow::kNext)) rec.abort(diag::Code::KTG0303, {"globals"});  // by another thread
  return flow;
}

Flow loadClosure(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  f.push(f.locals[in.arg]);
  return rec.execute(act, in);
}

Flow resume(RecordContext& rec, ShadowFrame&, Activation& act, const Instr& in) {
  return rec.execute(act, in);
}

Flow returnValue(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  rec.callees.recordReturn(f, f.top(), act.peek(1));
  return rec.execute(act, in);
}

Flow returnConst(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  rec.callees.recordReturn(f, Shadow::constant(), pyapi::constantAt(f.code, in.arg));
  return rec.execute(act, in);
}

// Pins that imports are CPython's own. False: a function of the program's is called for them.
bool pinImportFunction(RecordContext& rec, const Activation& act) {
  static PyObject* const name = PyUnicode_InternFromString("__import__");
  PyObject* builtins = pyapi::builtinsOf(act.frame);
  PyObject* entry = nullptr;
  if (!PyDict_CheckExact(builtins) || pyapi::importEntry(builtins, &entry) <= 0) {
    PyErr_Clear();
    return false;
  }
  const pyapi::Ref<> function = pyapi::steal(entry);
  if (!pyapi::isBuiltinImport(act.tstate, entry)) return false;
  Shadow found = rec.objects.dictEntry(rec.guards.pinnedRoot(builtins), builtins, name, entry);
  return rec.guards.pin(found, entry);
}

Flow importName(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  if (!pinImportFunction(rec, act)) {
    if (rec.live()) rec.abort(diag::Code::KTG0101, {"__import__"});
    return rec.execute(act, in);
  }
  // An import inside a function. After its first run it is a look-up in sys.modules.
  {
    const Paused paused(rec.pauses);
    Flow flow = rec.execute(act, in);
    if (flow != Flow::kNext) {
      rec.abort(diag::Code::KTG0101, {"import"});
      return flow;
    }
  }
  f.drop(2);
  rec.guards.pinImport(act.peek(1), pyapi::nameAt(f.code, in.arg));
  f.push(Shadow::constant());
  return Flow::kNext;
}

// For a module of a subclass of ModuleType: its `__getattr__` in Python, if the module has no such name.
PyObject* lazyGetter(PyObject* module, PyObject* name) {
  if (!PyModule_Check(module) || PyModule_CheckExact(module)) return nullptr;
  if (pyapi::lookUpInType(Py_TYPE(module), name) != nullptr ||
      PyDict_Contains(PyModule_GetDict(module), name) != 0) {
    return nullptr;
  }
  return pythonMethod(module, "__getattr__");
}

Flow importLazily(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in, PyObject* getter) {
  PyObject* module = act.peek(1);
  PyObject* name = pyapi::nameAt(f.code, in.arg);
  const ir::SourceId source = rec.guards.sourceOf(f.top(), module);
  PyObject* dict = PyModule_GetDict(module);
  const Shadow entries = rec.guards.readSource(guard::SourceKind::kDict, source, nullptr, 0, dict);
  if (!rec.heap.lacksKey(entries, dict, name)) return rec.execute(act, in);
  rec.guards.guardTypeVersion(Py_TYPE(module));
  PendingFrame pending = rec.callees.methodFrame(getter, f.top(), module);
  pending.args.push_back(name);
  pending.shadows.push_back(Shadow::constant());
  pending.positional = 2;
  pending.site = rec.snapshots.callSite(in, 0);
  rec.callees.expectFrame(std::move(pending));
  Flow flow = rec.execute(act, in);
  if (flow == Flow::kNext && rec.live()) f.push(rec.callees.frameResult(act.peek(1)));
  return flow;
}

Flow importFrom(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  PyObject* name = pyapi::nameAt(f.code, in.arg);
  if (PyObject* getter = lazyGetter(act.peek(1), name)) return importLazily(rec, f, act, in, getter);
  auto shadow = rec.heap.moduleAttribute(f.top(), act.peek(1), name);
  Flow flow;
  {
    const Paused paused(rec.pauses);
    flow = rec.execute(act, in);
  }
  if (flow == Flow::kNext) f.push(shadow ? *shadow : Shadow::constant());
  if (!shadow) rec.abort(diag::Code::KTG0101, {"import"});
  return flow;
}

}  // namespace

std::optional<Shadow> cellContent(RecordContext& rec, Shadow cell, PyObject* object) {
  cell = rec.objects.current(cell);
  if (cell.isVirtual()) {
    Virtual& v = rec.objects.virtualOf(cell);
    if (v.kind != VirtualKind::kCell) return std::nullopt;
    return rec.objects.current(v.parts[0]);
  }
  PyObject* content = PyCell_GET(object);
  if (Overlay* overlay = rec.objects.overlayOf(object)) {
    if (const auto written = rec.objects.readBack(overlay->entries, Py_None, object, content))
      return *written;
  }
  ir::SourceId source = rec.guards.sourceOf(cell, object);
  if (content == nullptr) {
    rec.guards.guard(GuardKind::kEmptyCell, source);
    return Shadow::null();
  }
  return rec.guards.readSource(SourceKind::kCell, source, nullptr, 0, content);
}

void registerStackRecords(RecordTable& t) {
  t[op::NOP] = t[op::PRECALL] = t[op::KW_NAMES] = plain;
  t[op::RESUME] = resume;
  t[op::POP_TOP] = popTop;
  t[op::PUSH_NULL] = pushNull;
  t[op::COPY] = copy;
  t[op::SWAP] = swap;
  t[op::LOAD_CONST] = t[op::LOAD_ASSERTION_ERROR] = loadConst;
  t[op::LOAD_BUILD_CLASS] = loadBuildClass;
  t[op::LOAD_SMALL_INT] = t[op::LOAD_COMMON_CONSTANT] = loadConst;
  t[op::LOAD_FAST] = loadFast;
  t[op::STORE_FAST] = storeFast;
  t[op::LOAD_FAST_LOAD_FAST] = loadFastLoadFast;
  t[op::STORE_FAST_LOAD_FAST] = storeFastLoadFast;
  t[op::STORE_FAST_STORE_FAST] = storeFastStoreFast;
  t[op::DELETE_FAST] = deleteFast;
  t[op::MAKE_CELL] = makeCell;
  t[op::COPY_FREE_VARS] = copyFreeVars;
  t[op::LOAD_CLOSURE] = loadClosure;
  t[op::LOAD_DEREF] = loadDeref;
  t[op::STORE_DEREF] = storeDeref;
  t[op::DELETE_DEREF] = deleteDeref;
  t[op::LOAD_GLOBAL] = loadGlobal;
  t[op::STORE_GLOBAL] = storeGlobal;
  t[op::DELETE_GLOBAL] = deleteGlobal;
  t[op::RETURN_VALUE] = returnValue;
  t[op::RETURN_CONST] = returnConst;
  t[op::LOAD_FAST_AND_CLEAR] = loadFastAndClear;
  t[op::IMPORT_NAME] = importName;
  t[op::IMPORT_FROM] = importFrom;
}

}  // namespace kintsugi::capture
