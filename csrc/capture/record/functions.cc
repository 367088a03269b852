// Record handlers: functions that are made in the trace.
#include <optional>

#include "capture/handlers/handlers.h"
#include "capture/record/table.h"
#include "pyapi/frame.h"
#include "pyapi/opcodes.h"

namespace kintsugi::capture {

namespace {

// Annotations of a function that the trace has made, as a virtual dict. `values` has names and values in
// turn.
void addAnnotations(RecordContext& rec, Shadow function, PyObject* object, const Shadows& values) {
  static PyObject* name = PyUnicode_InternFromString("__annotations__");
  PyObject* dict = PyFunction_GetAnnotations(object);  // makes the dict from the tuple
  if (dict == nullptr || !PyDict_CheckExact(dict)) return PyErr_Clear();
  Shadow annotations = rec.objects.newVirtual(VirtualKind::kDict, dict);
  PyObject *key, *value;
  Py_ssize_t at = 0;
  for (size_t k = 1; PyDict_Next(dict, &at, &key, &value) && k < values.size(); k += 2) {
    rec.objects.setEntry(rec.objects.virtualOf(annotations), key, values[k]);
  }
  rec.objects.setEntry(rec.objects.virtualOf(function), name, annotations);
}

// A new function keeps the builtins that its globals name when it is made.
bool pinBuiltins(RecordContext& rec, PyObject* globals) {
  static PyObject* const name = PyUnicode_InternFromString("__builtins__");
  if (!PyDict_CheckExact(globals)) return true;  // reading a global of such a dict ends the recording
  const Shadow root = rec.guards.pinnedRoot(globals);
  PyObject* entry = PyDict_GetItemWithError(globals, name);
  if (entry == nullptr) return rec.heap.lacksKey(root, globals, name);
  Shadow found = rec.objects.dictEntry(root, globals, name, entry);
  return rec.guards.pin(found, entry);
}

// MAKE_FUNCTION. Stack: defaults, kwdefaults, annotations and closure (each if given), then the code.
Flow makeFunction(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  int at = 2;
  Shadows parts(2, Shadow::constant());
  Refs objects(2);
  Shadows cells;
  std::optional<Shadows> annotations;
  if (in.arg & 8) {
    PyObject* closure = act.peek(at);
    if (auto known = rec.objects.elementsOf(f.top(at), closure)) cells = std::move(*known);
    ++at;
  }
  if (in.arg & 4) {
    annotations = rec.objects.elementsOf(f.top(at), act.peek(at));
    ++at;
  }
  if (in.arg & 2) {
    parts[1] = f.top(at);
    objects[1] = pyapi::newRef(act.peek(at));
    ++at;
  }
  if (in.arg & 1) {
    parts[0] = f.top(at);
    objects[0] = pyapi::newRef(act.peek(at));
    ++at;
  }
  if (!pinBuiltins(rec, pyapi::globalsOf(act.frame))) return rec.execute(act, in);
  Flow flow = rec.execute(act, in);
  if (flow != Flow::kNext || !rec.live()) return flow;
  f.drop(static_cast<size_t>(at) - 1);
  Shadow function = rec.objects.newVirtual(VirtualKind::kFunction, act.peek(1));
  Virtual& v = rec.objects.virtualOf(function);
  v.parts = std::move(parts);
  v.partObjects = std::move(objects);
  v.parts.insert(v.parts.end(), cells.begin(), cells.end());
  if (annotations) addAnnotations(rec, function, act.peek(1), *annotations);
  v.exposed = (in.arg & 4) != 0 && !annotations;
  f.push(function);
  return flow;
}

// SET_FUNCTION_ATTRIBUTE. Stack: a value, and the function that was just made and gets it. The argument is
// the bit that MAKE_FUNCTION uses for the same part.
Flow setFunctionAttribute(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  const Shadow function = f.top(1), value = f.top(2);
  if (!function.isVirtual() || rec.objects.virtualOf(function).kind != VirtualKind::kFunction) {
    rec.abort(diag::Code::KTG0106, {opcodeName(in.op)});
    return rec.execute(act, in);
  }
  pyapi::Ref<> object = pyapi::newRef(act.peek(2));
  const auto elements = (in.arg & 12) != 0 ? rec.objects.elementsOf(value, object.get()) : std::nullopt;
  Flow flow = rec.execute(act, in);
  if (flow != Flow::kNext || !rec.live()) return flow;
  f.drop(2);
  f.push(function);
  Virtual& v = rec.objects.virtualOf(function);
  switch (in.arg) {
    case 8:
      if (elements) v.parts.insert(v.parts.end(), elements->begin(), elements->end());
      break;
    case 16: {  // the function that makes the annotations (PEP 649)
      static PyObject* annotate = PyUnicode_InternFromString("__annotate__");
      rec.objects.setEntry(v, annotate, value);
      break;
    }
    case 4:
      if (elements) addAnnotations(rec, function, act.peek(1), *elements);
      rec.objects.virtualOf(function).exposed = !elements;
      break;
    default:  // 2: kwdefaults, 1: defaults
      v.parts[in.arg - 1] = value;
      v.partObjects[in.arg - 1] = std::move(object);
  }
  return flow;
}

}  // namespace

void registerFunctionRecords(RecordTable& t) {
  t[op::MAKE_FUNCTION] = makeFunction;
  t[op::SET_FUNCTION_ATTRIBUTE] = setFunctionAttribute;
}

}  // namespace kintsugi::capture
