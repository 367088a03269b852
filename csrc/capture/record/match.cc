// Record handlers: structural pattern matching.
#include <optional>
#include <vector>

#include "capture/attributes.h"
#include "capture/classes.h"
#include "capture/record/fallback.h"
#include "capture/record/table.h"
#include "capture/tables/pauses.h"
#include "pyapi/code.h"
#include "pyapi/opcodes.h"
#include "pyapi/types.h"

namespace kintsugi::capture {

namespace {

// Whether the subject is a mapping or a sequence depends on its type alone.
Flow matchKind(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  rec.guards.guardType(f.top(), act.peek(1));
  Flow flow = rec.execute(act, in);
  if (flow == Flow::kNext) f.push(Shadow::constant());
  return flow;
}

Flow getLen(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  PyObject* object = act.peek(1);
  const bool known =
      PyTuple_Check(object) || PyList_Check(object) || PyDict_Check(object) || PyUnicode_Check(object);
  if (!known || pythonMethod(object, "__len__") != nullptr || !rec.guards.pinLength(f.top(), object))
    rec.abort(diag::Code::KTG0101, {"len"});
  Flow flow = rec.execute(act, in);
  if (flow == Flow::kNext) f.push(Shadow::constant());
  return flow;
}

Flow matchKeys(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  PyObject *keys = act.peek(1), *subject = act.peek(2);
  Shadows values;
  bool all = true;
  if (!PyDict_CheckExact(subject) || f.top(2).isValue()) {
    rec.abort(diag::Code::KTG0101, {"match"});
    return rec.execute(act, in);
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys); ++i) {
    PyObject* key = PyTuple_GET_ITEM(keys, i);
    PyObject* value = PyDict_GetItemWithError(subject, key);
    if (value != nullptr) {
      values.push_back(rec.objects.dictEntry(f.top(2), subject, key, value));
    } else {
      rec.heap.lacksKey(f.top(2), subject, key);
      all = false;
    }
  }
  Flow flow = rec.execute(act, in);
  if (flow == Flow::kNext && rec.live())
    f.push(all ? rec.objects.tupleOf(act.peek(1), std::move(values)) : Shadow::constant());
  return flow;
}

// The names that positional patterns stand for, as read by a plan: `__match_args__` of the class. Null: there
// are none (`int(x)`). Nothing: reading them runs code of the program.
std::optional<pyapi::Ref<>> positionalNames(RecordContext& rec, Shadow shadow, PyObject* cls) {
  static PyObject* name = PyUnicode_InternFromString("__match_args__");
  AttributePlan plan = planAttribute(rec, shadow, cls, name);
  if (plan.how == AttributePlan::kRaises) return pyapi::Ref<>{};
  if (plan.how != AttributePlan::kKnown) return std::nullopt;
  const Paused paused(rec.pauses);
  pyapi::Ref<> names = pyapi::steal(PyObject_GetAttr(cls, name));
  PyErr_Clear();
  if (!names || !rec.guards.pinDeep(plan.shadow, names.get())) return std::nullopt;
  return names;
}

// The attributes that a class pattern reads, in their order. Ends early where the pattern does not match or
// is an error.
std::vector<PyObject*> namesOfPattern(PyObject* positional, Py_ssize_t count, PyObject* keywords) {
  std::vector<PyObject*> names;
  for (Py_ssize_t i = 0; i < count; ++i) {
    const bool has =
        positional != nullptr && PyTuple_CheckExact(positional) && i < PyTuple_GET_SIZE(positional);
    PyObject* name = has ? PyTuple_GET_ITEM(positional, i) : nullptr;
    if (name == nullptr || !PyUnicode_CheckExact(name)) return {};  // an error before the others are read
    names.push_back(name);
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keywords); ++i) names.push_back(PyTuple_GET_ITEM(keywords, i));
  return names;
}

// Describes what `case Class(a, b=c)` takes of an object. False: what decides about it, or an attribute, runs
// code of the program.
bool describeMatch(RecordContext& rec, ShadowFrame& f, Activation& act, Py_ssize_t count, Shadows& values) {
  PyObject *keywords = act.peek(1), *cls = act.peek(2), *subject = act.peek(3);
  const Shadow shadow = f.top(3);
  if (!PyType_Check(cls)) return true;  // an error
  if (!guardInstanceCheck(rec, shadow, subject, cls)) return false;
  {
    const Paused paused(rec.pauses);
    const int matches = PyObject_IsInstance(subject, cls);
    PyErr_Clear();
    if (matches != 1) return true;
  }
  std::vector<PyObject*> names;
  if (count == 0) {
    names = namesOfPattern(nullptr, 0, keywords);
  } else {
    auto positional = positionalNames(rec, f.top(2), cls);
    if (!positional) return false;
    const bool itself =
        !*positional && count == 1 && pyapi::matchesSelf(reinterpret_cast<PyTypeObject*>(cls));
    if (!*positional && !itself) return true;  // an error
    if (itself) values.push_back(shadow);
    names = namesOfPattern(positional->get(), itself ? 0 : count, keywords);
  }
  for (PyObject* name : names) {
    AttributePlan plan = planAttribute(rec, shadow, subject, name);
    if (plan.how == AttributePlan::kRaises) return true;  // no match
    if (plan.how != AttributePlan::kKnown) return false;
    const Paused paused(rec.pauses);
    pyapi::Ref<> value = pyapi::steal(PyObject_GetAttr(subject, name));
    PyErr_Clear();
    values.push_back(virtualShadowOf(rec, plan.shadow, value.get()));
  }
  return true;
}

// `case Class(a, b=c)`. Stack: subject, class, names. Attributes are read as plans say; anything but plain
// reads ends the recording.
Flow matchClass(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  if (!pinClasses(rec, f.top(2), act.peek(2))) return rec.execute(act, in);
  Shadows values;
  if (!describeMatch(rec, f, act, static_cast<Py_ssize_t>(in.arg), values)) {
    rec.abort(diag::Code::KTG0106, {"MATCH_CLASS"});
    return rec.execute(act, in);
  }
  Flow flow;
  {
    const Paused paused(rec.pauses);
    flow = rec.execute(act, in);
  }
  if (flow != Flow::kNext || !rec.live()) return flow;
  f.drop(3);
  PyObject* result = act.peek(1);
  f.push(PyTuple_Check(result) ? rec.objects.tupleOf(result, std::move(values)) : Shadow::constant());
  return flow;
}

}  // namespace

void registerMatchRecords(RecordTable& t) {
  t[op::MATCH_MAPPING] = t[op::MATCH_SEQUENCE] = matchKind;
  t[op::GET_LEN] = getLen;
  t[op::MATCH_KEYS] = matchKeys;
  t[op::MATCH_CLASS] = matchClass;
}

}  // namespace kintsugi::capture
