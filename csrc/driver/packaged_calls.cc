// CompiledFunction: traces that another process has recorded.
//
// A package is asked when no trace serves a call, before the call is recorded: then the arguments are there,
// through which objects of its traces are found. What it gives is verified, guarded as any trace, and looked
// up as any trace: a call that it does not fit is recorded.
#include "diag/log.h"
#include "driver/compiled_function.h"
#include "driver/package_checks.h"
#include "driver/package_data.h"
#include "pyapi/stack_limit.h"
#include "support/contain.h"
#include "support/fault.h"

namespace kintsugi::driver {

namespace {

// (positional arguments, dict of the others); null: an exception is pending.
pyapi::Ref<> argumentsOf(const pyapi::Arguments& args) {
  pyapi::Ref<> positional = pyapi::steal(PyTuple_New(static_cast<Py_ssize_t>(args.positional())));
  pyapi::Ref<> named = pyapi::steal(PyDict_New());
  if (!positional || !named) return {};
  for (size_t i = 0; i < args.positional(); ++i)
    PyTuple_SET_ITEM(positional.get(), static_cast<Py_ssize_t>(i),
                     Py_NewRef(args.at(static_cast<int64_t>(i))));
  for (size_t i = 0; i < args.keywords(); ++i) {
    PyObject* name = PyTuple_GET_ITEM(args.kwnames(), static_cast<Py_ssize_t>(i));
    if (PyDict_SetItem(named.get(), name, args.at(static_cast<int64_t>(args.positional() + i))) < 0)
      return {};
  }
  return pyapi::steal(PyTuple_Pack(2, positional.get(), named.get()));
}

}  // namespace

// Nothing: the call is to be recorded.
std::optional<PyObject*> CompiledFunction::callPackaged(const pyapi::Arguments& args) {
  const pyapi::Ref<> package = std::move(package_);  // a call inside, or of another thread, records
  const pyapi::Ref<> given = argumentsOf(args);
  const pyapi::Arguments* outer = std::exchange(packagedFor_, &args);
  const pyapi::Ref<> again = pyapi::steal(given ? PyObject_CallObject(package.get(), given.get()) : nullptr);
  packagedFor_ = outer;
  if (!again) {
    PyErr_WriteUnraisable(package.get());
    return std::nullopt;
  }
  if (again.get() == Py_True && !package_) package_ = package.clone();
  runtime::SlotBuffer slots;
  const auto trace = cache_.lookup(args, slots, checkedGuards());
  if (trace == nullptr || pyapi::recursionLeft(PyThreadState_Get()) < trace->recording().recursion)
    return std::nullopt;
  return runTrace(*trace, args, slots);
}

std::shared_ptr<runtime::CompiledTrace> CompiledFunction::adopted(PyObject* data, std::string& problem) {
  auto recording = recordingOf(data, function_.get(), problem);
  if (!recording) return nullptr;
  if (!recording->breaks.empty() && (options_.fullgraph || errorOnGraphBreak())) {
    problem = "it has graph breaks, which are errors here";
    return nullptr;
  }
  for (const diag::Diagnostic& d : recording->breaks) addBreak(d);
  const bool side = recording->start != 0;
  auto trace = std::make_shared<runtime::CompiledTrace>(std::move(*recording));
  if (options_.native.enabled) attachNative(*trace, options_.native);
  if (options_.backend &&
      !attachBackend(*trace, options_.backend.get(), side ? nullptr : packagedFor_, options_.name)) {
    PyErr_Clear();
    problem = "its backend failed";
    return nullptr;
  }
  PyObject* sides = PyDict_GetItemString(data, "sides");
  for (Py_ssize_t i = 0; sides != nullptr && PyList_Check(sides) && i < PyList_GET_SIZE(sides); ++i) {
    PyObject *guard, *below;
    if (!PyArg_ParseTuple(PyList_GET_ITEM(sides, i), "OO!", &guard, &PyDict_Type, &below) ||
        !PyLong_Check(guard)) {
      PyErr_Clear();
      problem = "a side trace is missing";
      return nullptr;
    }
    const auto at = static_cast<size_t>(PyLong_AsUnsignedLongMask(guard));
    auto linked = adopted(below, problem);
    if (linked == nullptr) return nullptr;
    if (!followsFrom(linked->recording(), trace->recording(), at)) {
      problem = "a side trace is of another trace";
      return nullptr;
    }
    trace->sides().link(static_cast<uint32_t>(at), std::move(linked), kSidesPerGuard);
  }
  return trace;
}

std::string CompiledFunction::adopt(PyObject* data) {
  std::string problem;
  const auto failure = contain([&] {
    faultPoint("package");
    auto trace = adopted(data, problem);
    if (trace == nullptr) return;
    if (trace->recording().start != 0) {
      problem = "its trace does not begin at the call";
      return;
    }
    keepTrace(std::move(trace), ", from a package");
  });
  if (!failure) return problem;
  PyErr_Clear();
  addBreak(diag::Diagnostic(diag::Code::KTG0000, {failure->text}));
  return "a check of Kintsugi's own failed";
}

void CompiledFunction::noteUnused(const std::string& path, const std::string& reason) {
  if (!diag::log::enabled(diag::log::Channel::kRecompiles)) return;
  const diag::Diagnostic d(diag::Code::KTG0204, {path, reason}, entryPlace());
  diag::log::emit(diag::log::Channel::kRecompiles, d.format());
}

}  // namespace kintsugi::driver
