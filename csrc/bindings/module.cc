// The extension module `kintsugi._C`: what the Python package needs of the core, and nothing else.
#define PY_SSIZE_T_CLEAN
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <pthread.h>

#include "bindings/boundary.h"
#include "bindings/call_holder.h"
#include "bindings/call_models.h"
#include "bindings/compiled_type.h"
#include "bindings/events.h"
#include "bindings/graph_testing.h"
#include "bindings/guard_testing.h"
#include "bindings/interpret.h"
#include "bindings/native.h"
#include "bindings/replay_testing.h"
#include "bindings/text.h"
#include "capture/calls/model.h"
#include "capture/calls/numpy.h"
#include "capture/calls/substitutes.h"
#include "capture/calls/targets.h"
#include "capture/calls/torch_callables.h"
#include "capture/record/comptime.h"
#include "codegen/kernel_cache.h"
#include "diag/log.h"
#include "driver/compiled_function.h"
#include "driver/disabled.h"
#include "driver/recording.h"
#include "driver/stance.h"
#include "pyapi/imports.h"
#include "pyapi/type_versions.h"
#include "support/fault.h"
#include "support/target.h"
#include "support/verification.h"
#include "torchapi/eager_traits.h"
#include "torchapi/known_torch.h"
#include "torchapi/run_memory.h"
#include "torchapi/torch_patches.h"

namespace nb = nanobind;

namespace kintsugi {

namespace {

PyObject* logSink = nullptr;  // kept for the process; replaced under the GIL

// A failed check in a function that nanobind wraps.
void translateFailedCheck(const std::exception_ptr& thrown, void*) {
  const auto failure = contain([&] { std::rethrow_exception(thrown); });
  if (!failure || !failure->isCheck) std::rethrow_exception(thrown);  // for the next translator
  bindings::setInternalError(failure->text);
}

void emitToPython(const diag::log::Event& event) {
  PyGILState_STATE gil = PyGILState_Ensure();
  if (logSink != nullptr) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    auto channel = diag::log::channelName(event.channel);
    PyObject* result =
        PyObject_CallFunction(logSink, "s#s#", channel.data(), static_cast<Py_ssize_t>(channel.size()),
                              event.text.c_str(), static_cast<Py_ssize_t>(event.text.size()));
    if (result == nullptr) PyErr_WriteUnraisable(logSink);
    Py_XDECREF(result);
    PyErr_Restore(type, value, traceback);
  }
  PyGILState_Release(gil);
}

void setLogSink(nb::object sink) {
  Py_XSETREF(logSink, sink.is_none() ? nullptr : sink.release().ptr());
  diag::log::setSink(logSink != nullptr ? emitToPython : nullptr);
}

void setLogChannels(const std::vector<std::string>& names) {
  diag::log::disableAll();
  for (const std::string& name : names) {
    auto channel = diag::log::findChannel(name);
    if (!channel) throw nb::value_error(("unknown log channel: " + name).c_str());
    diag::log::setEnabled(*channel, true);
  }
}

// Two settings that mean something together.
void setDiskCache(const std::string& name, nb::object value) {
  static auto* directory = new std::string();
  static uint64_t limit = 0;
  if (name == "cache_dir") {
    PyObject* bytes = nullptr;  // a path need not be text
    if (PyUnicode_FSConverter(value.ptr(), &bytes) == 0) throw nb::python_error();
    *directory = std::string(PyBytes_AS_STRING(bytes)) + "/kernels";
    Py_DECREF(bytes);
  } else {
    limit = nb::cast<uint64_t>(value);
  }
  nb::gil_scoped_release released;
  codegen::setDiskCache(limit == 0 ? std::string() : *directory, limit);
}

void setVerification(const std::string& level) {
  kintsugi::setVerification(level == "abort" ? Verification::kAbort
                            : level == "on"  ? Verification::kOn
                                             : Verification::kOff);
}

// Settings that the core does not need are accepted: the package validates names and types.
void setConfig(const std::string& name, nb::object value) {
  driver::Settings& s = driver::settings();
  if (name == "recompile_limit" || name == "cache_size_limit") s.recompileLimit = nb::cast<size_t>(value);
  if (name == "trace_length_limit") s.traceLengthLimit = nb::cast<size_t>(value);
  if (name == "audit") s.audit = nb::cast<size_t>(value);
  if (name == "side_trace_limit") s.sideTraceLimit = nb::cast<size_t>(value);
  if (name == "eager_when_faster") s.eagerWhenFaster = nb::cast<bool>(value);
  if (name == "report_compiling") s.reportCompiling = nb::cast<bool>(value);
  if (name == "error_on_graph_break") s.errorOnGraphBreak = nb::cast<bool>(value);
  if (name == "assume_static_by_default") s.assumeStatic = nb::cast<bool>(value);
  if (name == "verbose") s.verbose = nb::cast<bool>(value);
  if (name == "suppress_errors") s.suppressErrors = nb::cast<bool>(value);
  if (name == "cache_dir" || name == "disk_cache_limit") setDiskCache(name, value);
  if (name == "verify") setVerification(nb::cast<std::string>(value));
  if (name == "target") limitTarget(levelNamed(nb::cast<std::string>(value)));
  if (name == "memory_pool_limit") torchapi::setRunMemoryLimit(nb::cast<uint64_t>(value));
}

// `backend`: None: none is forced; else (native, what is called with segments, or None).
void setStance(const std::string& name, bool skipsGuards, nb::object backend) {
  using driver::StanceKind;
  static constexpr std::pair<const char*, StanceKind> kNames[] = {
      {"default", StanceKind::kDefault},
      {"force_eager", StanceKind::kForceEager},
      {"eager_on_recompile", StanceKind::kEagerOnRecompile},
      {"fail_on_recompile", StanceKind::kFailOnRecompile},
      {"eager_then_compile", StanceKind::kEagerThenCompile},
  };
  if (driver::isRecording() && !driver::isDisabled()) {
    PyErr_SetString(PyExc_RuntimeError, "kintsugi.set_stance was called in compiled code");
    throw nb::python_error();
  }
  driver::Stance wanted;
  bool known = false;
  for (const auto& [text, kind] : kNames) {
    if (name != text) continue;
    wanted.kind = kind;
    known = true;
  }
  if (!known) throw nb::value_error(("unknown stance: " + name).c_str());
  wanted.skipsGuards = skipsGuards;
  if (!backend.is_none()) {
    wanted.hasBackend = true;
    wanted.native = nb::cast<bool>(backend[0]);
    nb::object compiler = backend[1];
    if (!compiler.is_none()) wanted.backend = pyapi::newRef(compiler.ptr());
  }
  driver::setStance(std::move(wanted));
}

// fn(*args, **kwargs) with all compiled callables in eager mode on this thread.
nb::object callDisabled(nb::args args, nb::kwargs kwargs) {
  driver::DisabledScope scope;
  nb::tuple rest = nb::steal<nb::tuple>(PyTuple_GetSlice(args.ptr(), 1, PyTuple_GET_SIZE(args.ptr())));
  PyObject* result = PyObject_Call(PyTuple_GET_ITEM(args.ptr(), 0), rest.ptr(), kwargs.ptr());
  if (result == nullptr) throw nb::python_error();
  return nb::steal(result);
}

// Calls `body()`, which may change a class for a while, and gives the class and those below it their versions
// back.
nb::object withTypesKept(nb::type_object root, nb::callable body) {
  pyapi::TypeVersions versions(reinterpret_cast<PyTypeObject*>(root.ptr()));
  PyObject* result = PyObject_CallNoArgs(body.ptr());
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  versions.restore();
  PyErr_Restore(type, value, traceback);
  if (result == nullptr) throw nb::python_error();
  return nb::steal(result);
}

// [(path, state, always, codes), ...]: see pyapi/known_objects.h.
nb::list knownObjects() {
  nb::list out;
  for (const pyapi::KnownRow& row : pyapi::knownRows())
    out.append(nb::make_tuple(row.path, row.state, row.always, row.codes));
  return out;
}

nb::list codes() {
  nb::list out;
  for (const diag::CodeInfo& info : diag::allCodes()) {
    nb::dict row;
    row["code"] = bindings::strOf(info.id);
    row["name"] = bindings::strOf(info.name);
    row["message"] = bindings::strOf(info.message);
    row["cure"] = bindings::strOf(info.cure);
    row["severity"] = bindings::strOf(diag::severityName(info.severity));
    out.append(row);
  }
  return out;
}

}  // namespace

}  // namespace kintsugi

NB_MODULE(_C, m) {
  using namespace kintsugi;
  nb::set_leak_warnings(false);
  nb::register_exception_translator(translateFailedCheck);
  if (!pyapi::keepModules()) throw nb::python_error();
  torchapi::findKnownObjects();
  torchapi::clampGradients();
  bindings::bindCallHolder(m);
  bindings::bindCompiled(m);
  capture::setCompiledTarget(bindings::compiledTarget);
  m.def("reset_all", &bindings::resetAllCompiled);
  m.def("set_config", &setConfig, nb::arg("name"), nb::arg("value").none());
  m.def("set_log_sink", &setLogSink, nb::arg("sink").none());
  m.def("set_log_channels", &setLogChannels);
  m.def("codes", &codes);
  m.def("find_callables", [] {
    capture::registerModels();
    capture::findTorchCallables();
    capture::findNumpyCallables();
  });
  m.def("set_error_on_graph_break", &driver::setErrorOnGraphBreak, nb::arg("value"));
  m.def("set_stance", &setStance, nb::arg("name"), nb::arg("skips_guards"), nb::arg("backend").none());
  m.def("substitute", [](nb::object original, nb::object function) {
    capture::substitute(original.ptr(), function.ptr());
  });
  m.def("has_substitute",
        [](nb::object original) { return capture::substituteOf(original.ptr()) != nullptr; });
  m.def("_call_disabled", &callDisabled);
  m.def("_with_types_kept", &withTypesKept, nb::arg("root"), nb::arg("body"));
  m.def("_recording", [] {
    PyObject* described = capture::describeRecording();
    if (described == nullptr) throw nb::python_error();
    return nb::steal(described);
  });
  m.def("is_recording", &driver::isRecording);
  m.def("_failed_checks", [] { return std::make_pair(failedCheckCount(), lastFailedCheck()); });
  m.def("_fail_at", &failAt, nb::arg("name"), nb::arg("after") = 0);
  m.def("_has_failed", &hasFailed);
  m.def("known_objects", &knownObjects);
  m.def("_hide_polyfills", &pyapi::hidePolyfills);
  m.def("_is_torch_function", [](nb::handle function) {
    PyObject* object = function.ptr();
    return PyFunction_Check(object) &&
           torchapi::isTorchCode(reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(object)),
                                 PyFunction_GET_GLOBALS(object));
  });
  m.def("_is_torch_module", [](nb::dict globals) { return torchapi::isTorchModule(globals.ptr()); });
  m.def("_torch_patches", [] { return torchapi::torchPatches().epoch; });
  bindings::bindEvents(m);
  bindings::bindNative(m);
  bindings::bindCallModels(m);
  bindInterpreter(m);
  bindings::bindReplayTesting(m);
  bindings::bindGraphTesting(m);
  bindings::bindGuardTesting(m);
  pthread_atfork(nullptr, nullptr, [] { runtime::TraceCache::forgetRecordings(); });
}
