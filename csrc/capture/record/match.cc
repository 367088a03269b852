// Record handlers: structural pattern matching.
#include "capture/attributes.h"
#include "capture/classes.h"
#include "capture/record/fallback.h"
#include "capture/record/table.h"
#include "capture/tables/pauses.h"
#include "pyapi/code.h"
#include "pyapi/opcodes.h"

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
  bool known =
      PyTuple_Check(object) || PyList_Check(object) || PyDict_Check(object) || PyUnicode_Check(object);
  if (!known || !rec.guards.pinLength(f.top(), object)) rec.abort(diag::Code::KTG0101, {"len"});
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

// `case Class(a, b=c)`. Stack: subject, class, names. Attributes are read as plans say; anything but plain
// reads ends the recording.
Flow matchClass(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  PyObject *names = act.peek(1), *cls = act.peek(2), *subject = act.peek(3);
  Shadow shadow = f.top(3);
  auto count = static_cast<Py_ssize_t>(in.arg);
  if (!pinClasses(rec, f.top(2), cls)) return rec.execute(act, in);
  rec.guards.guardType(shadow, subject);
  rec.guards.guardTypeVersion(Py_TYPE(subject));
  Shadows values;
  bool matches = PyObject_IsInstance(subject, cls) == 1;
  pyapi::Ref<> arguments =
      pyapi::steal(count > 0 && matches ? PyObject_GetAttrString(cls, "__match_args__") : nullptr);
  PyErr_Clear();
  bool itself = count == 1 && matches && !arguments;  // for `int(x)`, `str(x)` and the like: the subject
  Py_ssize_t total = matches ? count + PyTuple_GET_SIZE(names) : 0;
  if (itself) values.push_back(shadow);
  for (Py_ssize_t i = itself ? 1 : 0; i < total; ++i) {
    PyObject* name =
        i < count
            ? (arguments && PyTuple_Check(arguments.get()) ? PyTuple_GET_ITEM(arguments.get(), i) : nullptr)
            : PyTuple_GET_ITEM(names, i - count);
    if (name == nullptr) break;
    AttributePlan plan = planAttribute(rec, shadow, subject, name);
    if (plan.how != AttributePlan::kKnown) {
      rec.abort(diag::Code::KTG0106, {"MATCH_CLASS"});
      break;
    }
    pyapi::Ref<> value = pyapi::steal(PyObject_GenericGetAttr(subject, name));
    PyErr_Clear();
    values.push_back(virtualShadowOf(rec, plan.shadow, value.get()));
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
