// Record handlers: names in a class body, whose locals are a dict of the trace (calls/classes.cc).
#include "capture/record/table.h"
#include "pyapi/code.h"
#include "pyapi/frame.h"
#include "pyapi/opcodes.h"

namespace kintsugi::capture {

namespace {

// The dict with the frame's names. Null: the trace has not made it, and the recording has ended.
PyObject* namespaceOf(RecordContext& rec, Activation& act, Shadow& shadow) {
  PyObject* names = pyapi::localsDictOf(act.frame);
  auto known = names != nullptr && PyDict_CheckExact(names) ? rec.objects.knownObject(names) : std::nullopt;
  const bool ours = known && known->isVirtual() && rec.objects.virtualOf(*known).kind == VirtualKind::kDict;
  if (!ours) {
    rec.abort(diag::Code::KTG0303, {"locals()"});
    return nullptr;
  }
  shadow = *known;
  return names;
}

std::optional<Shadow> nameIn(RecordContext& rec, Shadow space, PyObject* names, PyObject* name) {
  PyObject* value = PyDict_GetItemWithError(names, name);
  return value != nullptr ? std::optional(rec.objects.dictEntry(space, names, name, value)) : std::nullopt;
}

Flow loadName(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  Shadow space;
  PyObject* names = namespaceOf(rec, act, space);
  PyObject* name = pyapi::nameAt(f.code, in.arg);
  std::optional<Shadow> found;
  if (names != nullptr) found = nameIn(rec, space, names, name);
  if (names != nullptr && !found)
    found = rec.heap.readGlobal(pyapi::globalsOf(act.frame), pyapi::builtinsOf(act.frame), name);
  Flow flow = rec.execute(act, in);
  if (flow == Flow::kNext) f.push(found.value_or(Shadow::constant()));
  return flow;
}

// The class's namespace is asked before the function around it.
Flow loadClassDeref(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  Shadow space;
  PyObject* names = namespaceOf(rec, act, space);
  if (names == nullptr) return rec.execute(act, in);
  auto found = nameIn(rec, space, names, pyapi::variableName(f.code, in.arg));
  if (!found) return recordHandler(op::LOAD_DEREF)(rec, f, act, in);
  Flow flow = rec.execute(act, in);
  if (flow == Flow::kNext) f.push(*found);
  return flow;
}

// Pushes the namespace itself.
Flow loadLocals(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  Shadow space;
  if (namespaceOf(rec, act, space) != nullptr) f.push(space);
  return rec.execute(act, in);
}

// Like LOAD_CLASSDEREF, with the frame's namespace on the stack.
Flow loadFromDictOrDeref(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  Shadow space;
  PyObject* names = namespaceOf(rec, act, space);
  if (names != nullptr && names != act.peek(1)) rec.abort(diag::Code::KTG0303, {"locals()"});
  if (names == nullptr || !rec.live()) return rec.execute(act, in);
  auto found = nameIn(rec, space, names, pyapi::variableName(f.code, in.arg));
  if (!found) found = cellContent(rec, f.locals[in.arg], act.local(in.arg));
  if (!found) rec.abort(diag::Code::KTG0303, {"cell"});
  Flow flow = rec.execute(act, in);
  f.drop(1);
  if (flow == Flow::kNext) f.push(found.value_or(Shadow::constant()));
  return flow;
}

Flow storeName(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  Shadow space;
  PyObject* names = namespaceOf(rec, act, space);
  PyObject* name = pyapi::nameAt(f.code, in.arg);
  if (names == nullptr || !rec.heap.storeItem(space, names, name, f.top(), act.peek(1)))
    return rec.execute(act, in);
  Flow flow = rec.execute(act, in);
  f.drop(1);
  return flow;
}

Flow deleteName(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  Shadow space;
  PyObject* names = namespaceOf(rec, act, space);
  if (names != nullptr) rec.heap.deleteItem(space, names, pyapi::nameAt(f.code, in.arg));
  return rec.execute(act, in);
}

Flow setupAnnotations(RecordContext& rec, ShadowFrame&, Activation& act, const Instr& in) {
  static PyObject* name = PyUnicode_InternFromString("__annotations__");
  Shadow space;
  PyObject* names = namespaceOf(rec, act, space);
  const bool fresh = names != nullptr && PyDict_Contains(names, name) == 0;
  Flow flow = rec.execute(act, in);
  if (flow != Flow::kNext || !fresh) return flow;
  const Shadow made = rec.objects.newVirtual(VirtualKind::kDict, PyDict_GetItemWithError(names, name));
  rec.objects.setEntry(rec.objects.virtualOf(space), name, made);
  return flow;
}

}  // namespace

void registerNameRecords(RecordTable& t) {
  t[op::LOAD_NAME] = loadName;
  t[op::LOAD_CLASSDEREF] = loadClassDeref;
  t[op::LOAD_LOCALS] = loadLocals;
  t[op::LOAD_FROM_DICT_OR_DEREF] = loadFromDictOrDeref;
  t[op::STORE_NAME] = storeName;
  t[op::DELETE_NAME] = deleteName;
  t[op::SETUP_ANNOTATIONS] = setupAnnotations;
}

}  // namespace kintsugi::capture
