// Calls of functools.partial.
#include "capture/record/partials.h"

#include "pyapi/imports.h"
#include "pyapi/lazy.h"
#include "torchapi/known_torch.h"

namespace kintsugi::capture {

using guard::SourceKind;

namespace {

// The partial's keywords come first, in its order. Where the call gives one too, the call's value counts.
void mergeKeywords(Call& call, PyObject* names, PooledVector<PyObject*> values, Shadows shadows) {
  pyapi::Ref<> merged = pyapi::steal(PySequence_List(names));
  Py_ssize_t given = call.kwnames != nullptr ? PyTuple_GET_SIZE(call.kwnames) : 0;
  for (Py_ssize_t k = 0; k < given; ++k) {
    PyObject* name = PyTuple_GET_ITEM(call.kwnames, k);
    PyObject* value = call.args[call.positional + static_cast<size_t>(k)];
    Shadow shadow = call.shadows[call.positional + static_cast<size_t>(k)];
    Py_ssize_t at = PySequence_Index(merged.get(), name);
    PyErr_Clear();
    if (at < 0) {
      PyList_Append(merged.get(), name);
      values.push_back(value);
      shadows.push_back(shadow);
    } else {
      values[static_cast<size_t>(at)] = value;
      shadows[static_cast<size_t>(at)] = shadow;
    }
  }
  call.args.resize(call.positional);
  call.shadows.resize(call.positional);
  call.args.insert(call.args.end(), values.begin(), values.end());
  call.shadows.insert(call.shadows.end(), shadows.begin(), shadows.end());
  call.kept.push_back(pyapi::steal(PyList_AsTuple(merged.get())));
  call.kwnames = call.kept.back().get();
}

// Adds the keywords of a partial that is older than the trace. False: the recording has ended.
bool partialKeywords(RecordContext& rec, Call& call, Shadow shadow, PyObject* keywords) {
  if (PyDict_GET_SIZE(keywords) == 0) {
    rec.guards.guardLength(shadow, keywords, 0);
    return true;
  }
  auto shadows = rec.objects.dictParts(shadow, keywords, 1);
  pyapi::Ref<> names = pyapi::steal(PySequence_Tuple(keywords));
  if (!shadows || !names) return false;
  PooledVector<PyObject*> values;
  for (size_t i = 0; i < shadows->size(); ++i) {
    values.push_back(
        PyDict_GetItemWithError(keywords, PyTuple_GET_ITEM(names.get(), static_cast<Py_ssize_t>(i))));
  }
  mergeKeywords(call, names.get(), std::move(values), std::move(*shadows));
  return true;
}

// functools.Placeholder; null before CPython 3.14. A missing attribute of a module runs Python code from 3.13
// on, so its dict is asked.
PyObject* placeholder() {
  static constinit pyapi::Lazy<PyObject*> slot;
  return slot.get([] {
    return Py_XNewRef(
        PyDict_GetItemString(PyModule_GetDict(pyapi::importModule("functools")), "Placeholder"));
  });
}

// The positional arguments of a partial, with what each of them was in the trace.
struct Given {
  PooledVector<PyObject*> args;
  Shadows shadows;
};

// The first arguments of the call go where the partial has placeholders. Which of its arguments are some is
// guarded. False: the call has too few, or the recording has ended.
bool fillPlaceholders(RecordContext& rec, Call& call, Given& given) {
  if (placeholder() == nullptr) return true;
  size_t used = 0;
  for (size_t i = 0; i < given.args.size(); ++i) {
    if (given.args[i] != placeholder()) {
      if (!torchapi::isTensor(given.args[i])) rec.guards.guardType(given.shadows[i], given.args[i]);
      continue;
    }
    if (!rec.guards.pin(given.shadows[i], given.args[i]) || used == call.positional) return false;
    given.args[i] = call.args[used];
    given.shadows[i] = call.shadows[used++];
  }
  const auto count = static_cast<std::ptrdiff_t>(used);
  call.args.erase(call.args.begin(), call.args.begin() + count);
  call.shadows.erase(call.shadows.begin(), call.shadows.begin() + count);
  call.positional -= used;
  return rec.live();
}

void prepend(Call& call, const Given& given) {
  for (size_t i = given.args.size(); i-- > 0;) call.prepend(given.args[i], given.shadows[i]);
}

// For a partial that the trace has made.
bool unwrapNewPartial(RecordContext& rec, Call& call) {
  Virtual& v = rec.objects.virtualOf(call.shadow);
  if (v.kind != VirtualKind::kPartial) return false;
  Given given;
  for (size_t i = 1; i < v.parts.size(); ++i) {
    given.args.push_back(v.partObjects[i].get());
    given.shadows.push_back(v.parts[i]);
  }
  if (!fillPlaceholders(rec, call, given)) return false;
  if (PyDict_GET_SIZE(v.entries.get()) > 0) {
    PyObject* keywords = v.partObjects.back().get();
    pyapi::Ref<> names = pyapi::steal(PySequence_Tuple(v.entries.get()));
    PooledVector<PyObject*> values;
    Shadows shadows;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names.get()); ++i) {
      PyObject* name = PyTuple_GET_ITEM(names.get(), i);
      values.push_back(PyDict_GetItemWithError(keywords, name));
      shadows.push_back(*rec.objects.entryOf(v, name));
    }
    mergeKeywords(call, names.get(), std::move(values), std::move(shadows));
  }
  prepend(call, given);
  call.callable = v.partObjects[0].get();
  call.shadow = v.parts[0];
  return true;
}

}  // namespace

bool unwrapPartial(RecordContext& rec, Call& call) {
  static constinit pyapi::Lazy<PyObject*> typeSlot;
  PyObject* type =
      typeSlot.get([] { return PyObject_GetAttrString(pyapi::importModule("functools"), "partial"); });
  if (reinterpret_cast<PyObject*>(Py_TYPE(call.callable)) != type) return false;
  if (call.shadow.isVirtual()) return unwrapNewPartial(rec, call);
  if (!call.shadow.isSource() && !call.shadow.isConst()) return false;
  ir::SourceId source = rec.guards.sourceOf(call.shadow, call.callable);
  rec.guards.guardType(Shadow::source(source), call.callable);
  pyapi::Ref<> parts[3];
  const char* names[] = {"func", "args", "keywords"};
  Shadow shadows[3];
  for (int i = 0; i < 3; ++i) {
    parts[i] = pyapi::steal(PyObject_GetAttrString(call.callable, names[i]));
    shadows[i] = rec.guards.readSource(SourceKind::kPartial, source, nullptr, i, parts[i].get());
  }
  auto elements = rec.objects.elementsOf(shadows[1], parts[1].get());
  if (!elements) return false;
  Given given;
  given.shadows = std::move(*elements);
  for (size_t i = 0; i < given.shadows.size(); ++i)
    given.args.push_back(PyTuple_GET_ITEM(parts[1].get(), static_cast<Py_ssize_t>(i)));
  if (!fillPlaceholders(rec, call, given)) return false;
  if (!partialKeywords(rec, call, shadows[2], parts[2].get())) return false;
  prepend(call, given);
  call.callable = parts[0].get();
  call.shadow = shadows[0];
  for (auto& part : parts) call.kept.push_back(std::move(part));
  return true;
}

}  // namespace kintsugi::capture
