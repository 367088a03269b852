#include "bindings/compiled_type.h"

#include <structmember.h>

#include <new>
#include <unordered_set>

#include "bindings/boundary.h"
#include "bindings/call_holder.h"
#include "bindings/text.h"
#include "diag/log.h"
#include "driver/compiled_function.h"
#include "driver/package_data.h"
#include "driver/trace_data.h"
#include "guard/document.h"
#include "pyapi/imports.h"
#include "pyapi/lru_cache.h"
#include "pyapi/text.h"
#include "pyapi/types.h"
#include "runtime/run_events.h"
#include "support/check.h"

namespace nb = nanobind;

namespace kintsugi::bindings {

namespace {

using driver::CompiledFunction;

struct CompiledObject {
  PyObject ob_base;
  vectorcallfunc vectorcall;
  PyObject* weakrefs;
  CompiledFunction* impl;
};

PyTypeObject* compiledType = nullptr;
std::unordered_set<PyObject*>& allFunctions() {
  static auto* set = new std::unordered_set<PyObject*>();
  return *set;
}

CompiledFunction& implOf(PyObject* self) { return *reinterpret_cast<CompiledObject*>(self)->impl; }

thread_local bool auditing = false;

// Made by kintsugi._audit, which runs the callable twice; no call inside is audited.
PyObject* auditedCall(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  const auto count = static_cast<Py_ssize_t>(PyVectorcall_NARGS(nargsf));
  pyapi::Ref<> module = pyapi::steal(pyapi::importModule("kintsugi._audit"));
  pyapi::Ref<> run = pyapi::steal(module ? PyObject_GetAttrString(module.get(), "run") : nullptr);
  pyapi::Ref<> positional = pyapi::steal(PyTuple_New(count));
  pyapi::Ref<> named = pyapi::steal(PyDict_New());
  if (!run || !positional || !named) return nullptr;
  for (Py_ssize_t i = 0; i < count; ++i) PyTuple_SET_ITEM(positional.get(), i, Py_NewRef(args[i]));
  for (Py_ssize_t i = 0; kwnames != nullptr && i < PyTuple_GET_SIZE(kwnames); ++i) {
    if (PyDict_SetItem(named.get(), PyTuple_GET_ITEM(kwnames, i), args[count + i]) < 0) return nullptr;
  }
  auditing = true;
  pyapi::Ref<> every = pyapi::steal(PyLong_FromSize_t(implOf(self).auditInterval()));
  PyObject* result = every ? PyObject_CallFunctionObjArgs(run.get(), self, positional.get(), named.get(),
                                                          every.get(), nullptr)
                           : nullptr;
  auditing = false;
  return result;
}

PyObject* vectorcall(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  if (!auditing && implOf(self).auditDue()) return auditedCall(self, args, nargsf, kwnames);
  return containedCall([&] { return implOf(self).call(args, nargsf, kwnames); });
}

PyObject* makeCompiled(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"fn", "options", nullptr};
  PyObject *fn, *options;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO!", const_cast<char**>(names), &fn, &PyDict_Type,
                                   &options)) {
    return nullptr;
  }
  if (!PyCallable_Check(fn)) {
    PyErr_Format(PyExc_TypeError, "kintsugi.compile needs a callable, not %.200s", pyapi::typeNameOf(fn));
    return nullptr;
  }
  driver::FunctionOptions parsed;
  PyObject* value = PyDict_GetItemString(options, "fullgraph");
  parsed.fullgraph = value != nullptr && PyObject_IsTrue(value) == 1;
  for (auto [name, option] :
       {std::pair("audit", &parsed.audit), {"trace_length_limit", &parsed.traceLengthLimit}}) {
    value = PyDict_GetItemString(options, name);
    if (value != nullptr && value != Py_None) *option = PyLong_AsSize_t(value);
    if (PyErr_Occurred()) return nullptr;
  }
  value = PyDict_GetItemString(options, "dynamic");
  if (value != nullptr && value != Py_None) parsed.dynamic = PyObject_IsTrue(value) == 1 ? 1 : 0;
  value = PyDict_GetItemString(options, "backend");
  if (value != nullptr && value != Py_None) parsed.backend = pyapi::newRef(value);
  value = PyDict_GetItemString(options, "guard_filter");
  if (value != nullptr && value != Py_None) parsed.guardFilter = pyapi::newRef(value);
  value = PyDict_GetItemString(options, "name");
  if (value != nullptr && PyUnicode_Check(value)) parsed.name = pyapi::utf8(value);
  value = PyDict_GetItemString(options, "place");
  if (value != nullptr && value != Py_None) {
    PyObject *file, *function;
    if (!PyArg_ParseTuple(value, "UiU", &file, &parsed.place.line, &function)) return nullptr;
    parsed.place.file = pyapi::utf8(file);
    parsed.place.function = pyapi::utf8(function);
  }
  value = PyDict_GetItemString(options, "exporting");
  parsed.exporting = value != nullptr && PyObject_IsTrue(value) == 1;
  auto isSet = [options](const char* name) {
    PyObject* flag = PyDict_GetItemString(options, name);
    return flag != nullptr && PyObject_IsTrue(flag) == 1;
  };
  parsed.native = {.enabled = isSet("native"),
                   .sync = isSet("sync"),
                   .strict = isSet("strict"),
                   .contract = isSet("fp_contract"),
                   .keepMemory = isSet("keep_memory"),
                   .autotune = isSet("autotune")};
  value = PyDict_GetItemString(options, "recompile_limit");
  if (value != nullptr && value != Py_None) {
    parsed.hasRecompileLimit = true;
    parsed.recompileLimit = PyLong_AsSize_t(value);
    if (PyErr_Occurred()) return nullptr;
  }
  auto* self = reinterpret_cast<CompiledObject*>(pyapi::allocate(type));
  if (self == nullptr) return nullptr;
  self->vectorcall = vectorcall;
  self->impl = new (std::nothrow) CompiledFunction(fn, std::move(parsed));
  if (self->impl == nullptr) {
    Py_DECREF(self);
    return PyErr_NoMemory();
  }
  auto* made = reinterpret_cast<PyObject*>(self);
  allFunctions().insert(made);
  return made;
}

PyObject* newCompiled(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  return containedCall([&] { return makeCompiled(type, args, kwargs); });
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  CompiledFunction* impl = reinterpret_cast<CompiledObject*>(self)->impl;
  return impl != nullptr ? impl->traverse(visit, arg) : 0;
}

// Nobody can call it any more: of what it holds, traces are enough to cut all cycles.
int clear(PyObject* self) {
  CompiledFunction* impl = reinterpret_cast<CompiledObject*>(self)->impl;
  if (impl != nullptr) impl->reset();
  return 0;
}

void dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  auto* object = reinterpret_cast<CompiledObject*>(self);
  allFunctions().erase(self);  // first: the callbacks of weak references may ask for a reset of all
  if (object->weakrefs != nullptr) PyObject_ClearWeakRefs(self);
  delete object->impl;
  pyapi::freeInstance(self);
}

// A method of a class when it is used as a decorator there: compiled functions bind like functions.
PyObject* descrGet(PyObject* self, PyObject* object, PyObject*) {
  if (object == nullptr || object == Py_None) return Py_NewRef(self);
  return PyMethod_New(self, object);
}

nb::dict diagnosticDict(const diag::Diagnostic& d) {
  nb::dict row;
  row["code"] = strOf(d.codeInfo().id);
  row["name"] = strOf(d.codeInfo().name);
  row["message"] = nb::str(d.message().c_str());
  row["cure"] = nb::str(d.cure().c_str());
  row["file"] = nb::str(d.location.file.c_str());
  row["line"] = d.location.line;
  row["function"] = nb::str(d.location.function.c_str());
  nb::list stack;
  for (const diag::SourceLoc& place : d.stack) {
    nb::dict frame;
    frame["file"] = nb::str(place.file.c_str());
    frame["line"] = place.line;
    frame["function"] = nb::str(place.function.c_str());
    stack.append(frame);
  }
  row["stack"] = stack;
  return row;
}

PyObject* stats(PyObject* self, PyObject*) {
  CompiledFunction& impl = implOf(self);
  runtime::CacheStats cache = impl.cache().stats();
  nb::dict out;
  size_t ops = 0, guards = 0, graphs = 0, sides = 0;
  uint64_t exits = 0;
  driver::NativeCounts native;
  for (const auto& trace : impl.cache().traces()) {
    ops += trace->trace().countOf(ir::Op::kAten);
    guards += trace->recording().document.guards.guards.size();
    // A break is where the compiled graph is split.
    graphs += impl.hasBackend() ? driver::countGraphs(*trace) : 1 + trace->recording().breaks.size();
    exits += trace->sideExits.load();
    sides += trace->sides().count();
    driver::countNative(*trace, native);
  }
  out["graph_count"] = graphs;
  out["graph_break_count"] = impl.breaks().size();
  out["op_count"] = ops;
  out["trace_count"] = cache.traces;
  out["guard_count"] = guards;
  out["hits"] = cache.hits;
  out["misses"] = cache.misses;
  out["recompiles"] = cache.recompiles;
  out["side_exits"] = exits;
  out["left_to_eager"] = static_cast<int>(impl.prefersEager());
  out["side_traces"] = sides;
  out["native_segments"] = native.segments;
  out["native_ready"] = native.ready;
  out["native_plain"] = native.plain;
  out["native_refused"] = native.refused;
  out["native_runs"] = native.runs;
  out["native_backwards"] = native.backwards;
  return out.release().ptr();
}

PyObject* traces(PyObject* self, PyObject*) {
  nb::list out;
  for (const auto& trace : implOf(self).cache().traces()) {
    out.append(nb::str(guard::print(trace->recording().document).c_str()));
  }
  return out.release().ptr();
}

// Each root trace as data (driver/trace_data.h).
PyObject* data(PyObject* self, PyObject*) {
  pyapi::Ref<> out = pyapi::steal(PyList_New(0));
  for (const auto& trace : implOf(self).cache().traces()) {
    pyapi::Ref<> one = driver::traceData(*trace);
    if (!out || !one || PyList_Append(out.get(), one.get()) < 0) return nullptr;
  }
  return out.release();
}

// Each root trace as what a package keeps of it (driver/package_data.h).
PyObject* packageData(PyObject* self, PyObject*) {
  pyapi::Ref<> out = pyapi::steal(PyList_New(0));
  for (const auto& trace : implOf(self).cache().traces()) {
    pyapi::Ref<> one = driver::packageData(*trace);
    if (!out || !one || PyList_Append(out.get(), one.get()) < 0) return nullptr;
  }
  return out.release();
}

PyObject* setPackage(PyObject* self, PyObject* package) {
  if (package != Py_None && !PyCallable_Check(package)) {
    PyErr_SetString(PyExc_TypeError, "a package is asked by calling it");
    return nullptr;
  }
  implOf(self).setPackage(package == Py_None ? pyapi::Ref<>() : pyapi::newRef(package));
  Py_RETURN_NONE;
}

PyObject* adopt(PyObject* self, PyObject* data) {
  if (!PyDict_CheckExact(data)) {
    PyErr_SetString(PyExc_TypeError, "a trace of a package is a dict");
    return nullptr;
  }
  const std::string problem = implOf(self).adopt(data);
  return PyUnicode_DecodeUTF8(problem.data(), static_cast<Py_ssize_t>(problem.size()), "replace");
}

// (path, reason): a trace of that package is not used.
PyObject* notePackage(PyObject* self, PyObject* args) {
  const char *path, *reason;
  if (!PyArg_ParseTuple(args, "ss", &path, &reason)) return nullptr;
  implOf(self).noteUnused(path, reason);
  Py_RETURN_NONE;
}

void appendInstructions(runtime::CompiledTrace& trace, nb::list& out) {
  const ir::Trace& recorded = trace.trace();
  for (size_t i = trace.recording().start; i < recorded.code.size(); ++i) {
    const ir::Instruction& ins = recorded.code[i];
    if (ins.snap == ir::kNone) continue;
    nb::list frames;
    for (const diag::SourceLoc& place : runtime::framesOf(trace, ins.snap)) {
      frames.append(nb::make_tuple(nb::str(place.file.c_str()), place.line, nb::str(place.function.c_str())));
    }
    const std::string name =
        ins.op == ir::Op::kAten ? recorded.opNames[ins.opName] : std::string(ir::opInfo(ins.op).text);
    out.append(nb::make_tuple(trace.number(), i, nb::str(name.c_str()), frames));
  }
  trace.sides().each(
      [&out](uint32_t, const runtime::SideLink& link) { appendInstructions(*link.trace, out); });
}

// Where each instruction with a snapshot comes from, side traces included: (trace, index, operation,
// [(file, line, function)]).
PyObject* instructions(PyObject* self, PyObject*) {
  nb::list out;
  for (const auto& trace : implOf(self).cache().traces()) appendInstructions(*trace, out);
  return out.release().ptr();
}

// Of all root traces: descriptions of their segments (python/kintsugi/backends/fx.py), without examples.
PyObject* segments(PyObject* self, PyObject*) {
  nb::list out;
  for (const auto& trace : implOf(self).cache().traces()) {
    pyapi::Ref<> described = driver::describeSegments(*trace);
    if (!described) return nullptr;
    out.append(nb::steal(described.release()));
  }
  return out.release().ptr();
}

PyObject* breaks(PyObject* self, PyObject*) {
  nb::list out;
  for (const diag::Diagnostic& d : implOf(self).breaks()) out.append(diagnosticDict(d));
  return out.release().ptr();
}

PyObject* recompiles(PyObject* self, PyObject*) {
  nb::list out;
  for (const driver::Recompile& r : implOf(self).recompiles()) {
    nb::dict row;
    row["guard"] = nb::str(r.guard.c_str());
    row["expected"] = nb::str(r.expected.c_str());
    row["seen"] = nb::str(r.seen.c_str());
    row["file"] = nb::str(r.file.c_str());
    row["line"] = r.line;
    out.append(row);
  }
  return out.release().ptr();
}

PyObject* reset(PyObject* self, PyObject*) {
  implOf(self).reset();
  Py_RETURN_NONE;
}

PyObject* quarantine(PyObject* self, PyObject* difference) {
  implOf(self).quarantine(pyapi::utf8(difference));
  Py_RETURN_NONE;
}

// The trace of that number, side traces included; null if there is none.
runtime::CompiledTrace* findTrace(runtime::CompiledTrace& trace, Py_ssize_t number) {
  runtime::CompiledTrace* found = trace.number() == static_cast<size_t>(number) ? &trace : nullptr;
  trace.sides().each([&](uint32_t, const runtime::SideLink& link) {
    if (found == nullptr) found = findTrace(*link.trace, number);
  });
  return found;
}

// Testing: makes one guard instruction of one trace fail at every run (exit stress).
PyObject* forceExit(PyObject* self, PyObject* args) {
  Py_ssize_t number, index;
  if (!PyArg_ParseTuple(args, "nn", &number, &index)) return nullptr;
  for (const auto& root : implOf(self).cache().traces()) {
    if (runtime::CompiledTrace* trace = findTrace(*root, number); trace != nullptr) {
      trace->replay().forceExit(static_cast<size_t>(index));
      Py_RETURN_NONE;
    }
  }
  PyErr_SetString(PyExc_IndexError, "no such trace");
  return nullptr;
}

PyObject* forcedExits(PyObject*, PyObject*) {
  return PyLong_FromUnsignedLongLong(runtime::ReplayProgram::forcedExits());
}

PyObject* getFn(PyObject* self, void*) { return Py_NewRef(implOf(self).fn()); }
PyObject* getEntry(PyObject* self, void*) { return Py_NewRef(implOf(self).entry()); }
PyObject* getDisabled(PyObject* self, void*) { return PyBool_FromLong(implOf(self).disabled()); }

PyMethodDef methods[] = {
    {"stats", atBoundary<stats>, METH_NOARGS, "Counters, as a dict."},
    {"traces", atBoundary<traces>, METH_NOARGS, "The text of each root trace."},
    {"_data", atBoundary<data>, METH_NOARGS, "Each root trace as a dict, for kintsugi.export."},
    {"_package_data", atBoundary<packageData>, METH_NOARGS,
     "Each root trace as a dict, for kintsugi.package."},
    {"_set_package", atBoundary<setPackage>, METH_O,
     "Who is asked for traces before a call is recorded; None: nobody."},
    {"_adopt", atBoundary<adopt>, METH_O,
     "Installs a trace of a package; why it can't be, or an empty text."},
    {"_note_package", atBoundary<notePackage>, METH_VARARGS,
     "A trace of a package (path, reason) is not used: for logs."},
    {"instructions", atBoundary<instructions>, METH_NOARGS,
     "(trace, index, operation, frames) of what has a snapshot."},
    {"_segments", atBoundary<segments>, METH_NOARGS, "Of each root trace, what its tensor graphs are."},
    {"breaks", atBoundary<breaks>, METH_NOARGS, "One dict a break."},
    {"recompiles", atBoundary<recompiles>, METH_NOARGS, "One dict a recompile."},
    {"reset", atBoundary<reset>, METH_NOARGS, "Forgets all traces."},
    {"_quarantine", atBoundary<quarantine>, METH_O,
     "An audit has found a difference: eager mode until reset()."},
    {"_force_exit", atBoundary<forceExit>, METH_VARARGS,
     "Testing: makes a guard instruction of a trace, by its number, fail."},
    {"_forced_exits", atBoundary<forcedExits>, METH_NOARGS,
     "Testing: how often such guards have failed, in this process."},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef getset[] = {
    {"fn", getFn, nullptr, "The callable that was compiled.", nullptr},
    {"_entry", getEntry, nullptr, "The Python function that a call of it runs.", nullptr},
    {"disabled", getDisabled, nullptr, "Whether calls go to eager.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(CompiledObject, vectorcall), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(CompiledObject, weakrefs), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(newCompiled)},
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(clear)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_descr_get, reinterpret_cast<void*>(descrGet)},
    {Py_tp_methods, methods},
    {Py_tp_getset, getset},
    {Py_tp_members, members},
    {0, nullptr},
};

PyType_Spec spec = {"kintsugi._C.Compiled", sizeof(CompiledObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, slots};

}  // namespace

PyObject* compiledTarget(PyObject* object) {
  if (Py_TYPE(object) == compiledType) return implOf(object).fn();
  PyObject* held = heldCall(object);
  return held != nullptr && Py_TYPE(held) == compiledType ? implOf(held).fn() : nullptr;
}

void resetAllCompiled() {
  // Freeing traces may run finalizers that make or drop compiled functions, and what a trace holds may be the
  // last that holds its own function.
  std::vector<PyObject*> all(allFunctions().begin(), allFunctions().end());
  for (PyObject* function : all) {
    if (!allFunctions().contains(function)) continue;
    pyapi::Ref<> held = pyapi::newRef(function);
    implOf(function).reset();
  }
}

void bindCompiled(nb::module_& module) {
  compiledType = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (compiledType == nullptr) throw nb::python_error();
  module.def("_lru_cache_of", [](nb::handle wrapper) {
    PyObject* cache = pyapi::cacheOf(wrapper.ptr());
    return cache == nullptr ? nb::none() : nb::borrow(cache);
  });
  module.def("_package_roots", [] { return nb::steal<nb::dict>(driver::packageRoots().release()); });
  module.attr("Compiled") = nb::handle(reinterpret_cast<PyObject*>(compiledType));
}

}  // namespace kintsugi::bindings
