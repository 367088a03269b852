#include "driver/stance.h"

#include <functional>

#include "capture/source_hash.h"
#include "pyapi/lazy.h"
#include "torchapi/tensor_desc.h"

namespace kintsugi::driver {

namespace {

constexpr int kMostNesting = 8;  // of containers among the arguments

bool isNumber(PyObject* object) { return PyLong_CheckExact(object) || PyFloat_CheckExact(object); }

using Visit = std::function<void(uint64_t hash, PyObject* object)>;

void walk(uint64_t hash, PyObject* object, int depth, const Visit& visit) {
  using guard::SourceKind;
  if (torchapi::isTensor(object) || isNumber(object)) return visit(hash, object);
  if (depth == kMostNesting) return;
  if (PyTuple_CheckExact(object) || PyList_CheckExact(object)) {
    const SourceKind kind = PyTuple_CheckExact(object) ? SourceKind::kTupleItem : SourceKind::kListItem;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i)
      walk(capture::sourceHash(hash, kind, nullptr, i), PySequence_Fast_GET_ITEM(object, i), depth + 1,
           visit);
  } else if (PyDict_CheckExact(object)) {
    PyObject *key, *value;
    for (Py_ssize_t at = 0; PyDict_Next(object, &at, &key, &value);) {
      if (!PyUnicode_CheckExact(key) && !PyLong_CheckExact(key)) continue;
      walk(capture::sourceHash(hash, SourceKind::kDictItem, key, 0), value, depth + 1, visit);
    }
  }
}

void walkAll(const pyapi::Arguments& args, const Visit& visit) {
  for (size_t i = 0; i < args.total(); ++i) {
    const auto index = static_cast<int64_t>(i);
    walk(capture::sourceHash(capture::kNoParent, guard::SourceKind::kArg, nullptr, index), args.at(index), 0,
         visit);
  }
}

// Another number of the same type, bit by bit for floats.
bool isAnother(PyObject* a, PyObject* b) {
  if (Py_TYPE(a) != Py_TYPE(b)) return false;
  const int same = PyObject_RichCompareBool(a, b, Py_EQ);
  if (same < 0) PyErr_Clear();
  return same == 0;
}

}  // namespace

namespace detail {
bool stanceIsSet = false;
}

namespace {

// Never destroyed: it may hold an object, and the interpreter ends before static objects do.
Stance& current() {
  static constinit pyapi::Lazy<Stance*> made;
  return *made.get([] { return new Stance(); });
}

}  // namespace

const Stance& stance() { return current(); }

void setStance(Stance wanted) {
  detail::stanceIsSet = wanted.kind != StanceKind::kDefault || wanted.skipsGuards || wanted.hasBackend;
  std::swap(current(), wanted);  // what it was goes last: a finalizer may ask
}

void SeenArguments::take(const pyapi::Arguments& args) {
  taken_ = true;
  walkAll(args, [this](uint64_t hash, PyObject* object) {
    Seen& seen = seen_[hash];
    if (torchapi::isTensor(object)) {
      seen.sizes = torchapi::describe(object).sizes;
    } else {
      seen.number = pyapi::newRef(object);
    }
  });
}

void SeenArguments::addDifferences(const pyapi::Arguments& args, std::unordered_set<uint64_t>& sources,
                                   std::unordered_map<uint64_t, uint64_t>& sizes) const {
  walkAll(args, [&](uint64_t hash, PyObject* object) {
    const auto found = seen_.find(hash);
    if (found == seen_.end()) return;
    const Seen& seen = found->second;
    if (seen.number) {
      if (isNumber(object) && isAnother(object, seen.number.get())) sources.insert(hash);
      return;
    }
    if (!torchapi::isTensor(object)) return;
    const auto now = torchapi::describe(object).sizes;
    if (now.size() != seen.sizes.size()) return;
    uint64_t dims = 0;
    for (size_t d = 0; d < std::min<size_t>(now.size(), 64); ++d)
      dims |= uint64_t{now[d] != seen.sizes[d]} << d;
    if (dims != 0) sizes[hash] |= dims;
  });
}

}  // namespace kintsugi::driver
