#include "capture/class_attributes.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "capture/classes.h"
#include "pyapi/code.h"
#include "pyapi/errors.h"
#include "pyapi/imports.h"
#include "pyapi/lazy.h"
#include "pyapi/object_layout.h"
#include "pyapi/opcodes.h"
#include "pyapi/types.h"

namespace kintsugi::capture {

using guard::GuardKind;
using ir::Op;

namespace {

std::string_view text(PyObject* name) {
  Py_ssize_t n = 0;
  const char* chars = PyUnicode_AsUTF8AndSize(name, &n);
  PyErr_Clear();
  return {chars != nullptr ? chars : "", chars != nullptr ? static_cast<size_t>(n) : 0};
}

// What tensors' classes have is not looked up by the recorder alone.
bool isTensorClass(PyTypeObject* type) {
  static constinit pyapi::Lazy<PyTypeObject*> baseSlot;
  PyTypeObject* base = baseSlot.get([] {
    pyapi::Ref<> module = pyapi::steal(pyapi::importModule("torch._C"));
    PyObject* cls = module ? PyObject_GetAttrString(module.get(), "TensorBase") : nullptr;
    PyErr_Clear();
    return reinterpret_cast<PyTypeObject*>(cls);
  });
  return base == nullptr || PyType_IsSubtype(type, base) != 0;
}

}  // namespace

// Names with a meaning for C code stay as they are.
bool mayOpen(PyTypeObject* type, PyObject* name) {
  return PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) && !PyType_HasFeature(type, Py_TPFLAGS_IMMUTABLETYPE) &&
         !text(name).starts_with("__") && !isTensorClass(type);
}

namespace {

bool mayOpen(Recorder& rec, PyTypeObject* type, PyObject* name) {
  return ownClass(rec, type) == nullptr && capture::mayOpen(type, name);
}

bool isOpen(Recorder& rec, PyTypeObject* type, PyObject* name) {
  const RecorderState& known = rec.known();
  return known.opened_.contains(type, name) ||
         (known.options_.openAttributes != nullptr && known.options_.openAttributes->contains(type, name));
}

bool isDescriptor(PyObject* value) {
  return pyapi::hasDescriptorGet(value) || pyapi::hasDescriptorSet(value);
}

// One object for each text.
PyObject* interned(Recorder& rec, PyObject* name) {
  if (PyUnicode_CHECK_INTERNED(name)) return name;
  PyObject* one = Py_NewRef(name);
  PyUnicode_InternInPlace(&one);
  const pyapi::Ref<> owned = pyapi::steal(one);
  rec.known().kept_.add(one);
  return one;
}

// Was the class asked for the name, and the answer left to the guards on versions?
bool wasClosed(Recorder& rec, PyTypeObject* type, PyObject* name) {
  if (rec.known().closedClasses_.contains(type)) return true;
  const auto found = rec.known().closedNames_.find(interned(rec, name));
  return found != rec.known().closedNames_.end() &&
         std::find(found->second.begin(), found->second.end(), type) != found->second.end();
}

void noteClosed(Recorder& rec, PyTypeObject* type, PyObject* name) {
  if (!mayOpen(rec, type, name)) return;
  std::vector<PyTypeObject*>& asked = rec.known().closedNames_[interned(rec, name)];
  if (std::find(asked.begin(), asked.end(), type) == asked.end()) asked.push_back(type);
}

// Does the code that is being recorded set an attribute of that name? The value is none that is called.
bool isStoredHere(Recorder& rec, PyObject* value, PyObject* name) {
  const ShadowFrame* frame = rec.known().current_;
  if (frame == nullptr || isDescriptor(value) || PyType_Check(value)) return false;
  const CodeInfo* code = CodeInfo::of(frame->code);
  for (int32_t i = 0; code != nullptr && i < code->size(); ++i) {
    const Instr& instr = code->at(i);
    if (instr.op == op::STORE_ATTR && pyapi::nameAt(frame->code, instr.arg) == name) return true;
  }
  PyErr_Clear();
  return false;
}

PyTypeObject* at(PyObject* order, Py_ssize_t i) {
  return reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(order, i));
}

PyObject* own(PyTypeObject* type, PyObject* name) {
  PyObject* value = PyDict_GetItemWithError(pyapi::dictOf(type), name);
  PyErr_Clear();
  return value;
}

// The first class that has the attribute, or null.
PyTypeObject* ownerOf(PyObject* order, Py_ssize_t from, PyObject* name) {
  for (Py_ssize_t i = from; i < PyTuple_GET_SIZE(order); ++i) {
    if (own(at(order, i), name) != nullptr) return at(order, i);
  }
  return nullptr;
}

Py_ssize_t placeBehind(PyObject* order, PyTypeObject* after) {
  Py_ssize_t i = 0;
  while (after != nullptr && i < PyTuple_GET_SIZE(order) && at(order, i) != after) ++i;
  return after != nullptr ? i + 1 : 0;
}

bool isAnythingOpen(const RecorderState& known) {
  return !known.opened_.empty() ||
         (known.options_.openAttributes != nullptr && !known.options_.openAttributes->empty());
}

bool hasOpen(Recorder& rec, PyTypeObject* type) {
  const RecorderState& known = rec.known();
  return known.opened_.has(type) ||
         (known.options_.openAttributes != nullptr && known.options_.openAttributes->has(type));
}

bool anyOpen(Recorder& rec, PyObject* order, Py_ssize_t from, PyObject* name) {
  if (!isAnythingOpen(rec.known())) return false;
  for (Py_ssize_t i = from; i < PyTuple_GET_SIZE(order); ++i) {
    if (isOpen(rec, at(order, i), name)) return true;
  }
  return false;
}

// Whether look-up binds what it has found follows from the type, which is part of the guard.
void settle(Recorder& rec, TypeEntry& entry) {
  if (!rec.live()) return;
  if (isDescriptor(entry.value)) {
    entry.open = false;
    rec.pin(entry.shadow, entry.value);
    return;
  }
  rec.guardType(entry.shadow, entry.value);
  rec.guardTypeVersion(Py_TYPE(entry.value));
}

// The attribute will be set in the class that is asked, or in the one that has it.
void openUpTo(Recorder& rec, PyObject* order, Py_ssize_t from, PyTypeObject* owner, PyObject* name) {
  for (Py_ssize_t i = from; i < PyTuple_GET_SIZE(order); ++i) {
    PyTypeObject* base = at(order, i);
    if (mayOpen(rec, base, name) && !wasClosed(rec, base, name)) rec.known().opened_.add(base, name);
    if (base == owner) return;
  }
}

TypeEntry readOpen(Recorder& rec, PyObject* order, Py_ssize_t from, PyObject* name) {
  TypeEntry entry;
  for (Py_ssize_t i = from; i < PyTuple_GET_SIZE(order) && rec.live(); ++i) {
    PyTypeObject* base = at(order, i);
    entry.value = own(base, name);
    if (!isOpen(rec, base, name)) {
      noteClosed(rec, base, name);
      if (entry.value != nullptr) return entry;
      continue;
    }
    const Shadow dict = rec.pinnedRoot(pyapi::dictOf(base));
    if (entry.value == nullptr) {
      rec.lacksKey(dict, pyapi::dictOf(base), name);
      continue;
    }
    rec.known().readingOpen_ = true;
    entry.shadow = rec.dictEntry(dict, pyapi::dictOf(base), name, entry.value);
    rec.known().readingOpen_ = false;
    entry.open = true;
    settle(rec, entry);
    return entry;
  }
  return entry;
}

// The same entries but those that are open.
bool othersAreSame(Recorder& rec, PyTypeObject* type, PyObject* before) {
  Py_ssize_t same = 0, open = 0;
  PyObject *key, *value;
  Py_ssize_t place = 0;
  while (PyDict_Next(pyapi::dictOf(type), &place, &key, &value)) {
    if (PyUnicode_CheckExact(key) && isOpen(rec, type, key)) continue;
    if (PyDict_GetItemWithError(before, key) != value) {
      PyErr_Clear();
      return false;
    }
    ++same;
  }
  place = 0;
  while (PyDict_Next(before, &place, &key, &value)) {
    open += PyUnicode_CheckExact(key) && isOpen(rec, type, key) ? 1 : 0;
  }
  return same + open == PyDict_GET_SIZE(before);
}

}  // namespace

TypeEntry typeEntry(Recorder& rec, PyTypeObject* type, PyObject* name, PyTypeObject* after) {
  PyObject* order = pyapi::mroOf(type);
  const Py_ssize_t from = placeBehind(order, after);
  TypeEntry entry;
  if (text(name).starts_with("__")) {
    PyTypeObject* owner = ownerOf(order, from, name);
    entry.value = owner != nullptr ? own(owner, name) : nullptr;
    return entry;
  }
  if (anyOpen(rec, order, from, name)) return readOpen(rec, order, from, name);
  PyTypeObject* owner = ownerOf(order, from, name);
  entry.value = owner != nullptr ? own(owner, name) : nullptr;
  if (owner != nullptr && mayOpen(rec, owner, name) && isStoredHere(rec, entry.value, name)) {
    openUpTo(rec, order, from, owner, name);
    if (anyOpen(rec, order, from, name)) return readOpen(rec, order, from, name);
  }
  for (Py_ssize_t i = from; i < PyTuple_GET_SIZE(order); ++i) {
    noteClosed(rec, at(order, i), name);
    if (at(order, i) == owner) break;
  }
  return entry;
}

bool closeAll(Recorder& rec, PyTypeObject* type) {
  if (hasOpen(rec, type) || rec.known().written_.has(type)) return false;
  rec.known().closedClasses_.insert(type);
  return true;
}

std::optional<bool> storeOpen(Recorder& rec, Shadow shadow, PyObject* object, PyObject* name, Shadow value,
                              PyObject* real) {
  if (!PyType_Check(object) || shadow.isValue()) return std::nullopt;
  auto* type = reinterpret_cast<PyTypeObject*>(object);
  PyTypeObject* meta = Py_TYPE(object);
  if (!mayOpen(rec, type, name) || !pyapi::setsAttributesLikeType(meta)) return std::nullopt;
  RecorderState& known = rec.known();
  rec.guardTypeVersion(meta);
  const TypeEntry above = typeEntry(rec, meta, name);
  const bool setter = above.value != nullptr && pyapi::hasDescriptorSet(above.value);
  if (setter && isOpen(rec, type, name)) rec.abort(diag::Code::KTG0303, {pyapi::typeName(type)});
  if (setter) return std::nullopt;
  if (!isOpen(rec, type, name)) {
    if (real != nullptr && isDescriptor(real)) return std::nullopt;  // a method, which stays for a while
    known.written_.add(type, name);
    if (wasClosed(rec, type, name)) return std::nullopt;
    known.opened_.add(type, name);
  }
  known.written_.add(type, name);
  if (!rec.live() || (shadow.isSource() && !rec.pin(shadow, object))) return false;
  rec.guardTypeVersion(type);
  const Shadow dict = rec.pinnedRoot(pyapi::dictOf(type));
  const Shadow target = Shadow::source(rec.sourceOf(shadow, object));
  PyObject* before = own(type, name);
  if (real == nullptr && before == nullptr) return rec.lacksKey(dict, pyapi::dictOf(type), name);  // raises
  if (real == nullptr) rec.dictEntry(dict, pyapi::dictOf(type), name, before);
  expectWrites(rec);
  const bool written = real != nullptr ? rec.emitEffect(Op::kSetAttr, {{target, object}, {value, real}}, name)
                                       : rec.emitEffect(Op::kDelAttr, {{target, object}}, name);
  if (!written || !rec.live()) return false;
  return real != nullptr ? rec.noteWrite(pyapi::dictOf(type), name, value)
                         : rec.noteDelete(pyapi::dictOf(type), name);
}

void opensAttribute(Recorder& rec, PyTypeObject* type, const char* name) {
  const pyapi::Ref<> text = pyapi::steal(PyUnicode_InternFromString(name));
  RecorderState& known = rec.known();
  if (!text || !mayOpen(rec, type, text.get())) return;
  if (!isOpen(rec, type, text.get()) && !wasClosed(rec, type, text.get()))
    known.opened_.add(type, text.get());
  known.written_.add(type, text.get());
  expectWrites(rec);
}

void expectWrites(Recorder& rec) {
  RecorderState& known = rec.known();
  if (!isAnythingOpen(known)) return;
  ClassVersions& versions = known.classVersions_;
  versions = {};
  const auto& guards = known.document_.guards.guards;
  for (size_t i = 0; i < guards.size(); ++i) {
    if (guards[i].kind != GuardKind::kTypeVersion) continue;
    auto* type = reinterpret_cast<PyTypeObject*>(known.consts_[guards[i].key].get());
    if (guards[i].number != static_cast<int64_t>(*pyapi::typeVersionWord(type))) continue;
    versions.guards.emplace_back(i, pyapi::newRef(pyapi::mroOf(type)));
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(pyapi::mroOf(type)); ++k) {
      PyTypeObject* base = at(pyapi::mroOf(type), k);
      const auto [entry, fresh] =
          versions.dicts.try_emplace(base, *pyapi::dictVersionWord(pyapi::dictOf(base)));
      if (fresh && hasOpen(rec, base))
        versions.contents[base] = pyapi::steal(PyDict_Copy(pyapi::dictOf(base)));
    }
  }
}

void renewVersions(Recorder& rec) {
  RecorderState& known = rec.known();
  ClassVersions versions = std::exchange(known.classVersions_, {});
  const pyapi::PendingErrorScope kept;  // the instruction's own
  std::unordered_map<PyTypeObject*, bool> same;
  for (const auto& [base, version] : versions.dicts) {
    const auto before = versions.contents.find(base);
    same[base] = *pyapi::dictVersionWord(pyapi::dictOf(base)) == version ||
                 (before != versions.contents.end() && othersAreSame(rec, base, before->second.get()));
  }
  for (const auto& [i, order] : versions.guards) {
    guard::Guard& guard = known.document_.guards.guards[i];
    auto* type = reinterpret_cast<PyTypeObject*>(known.consts_[guard.key].get());
    bool all = pyapi::mroOf(type) == order.get();
    for (Py_ssize_t k = 0; all && k < PyTuple_GET_SIZE(order.get()); ++k) all = same[at(order.get(), k)];
    if (all && pyapi::ensureTypeVersion(type))
      guard.number = static_cast<int64_t>(*pyapi::typeVersionWord(type));
  }
  versions = {};  // what it held may be dropped here
}

void describeOpen(Recorder& rec) {
  RecorderState& known = rec.known();
  OpenAttributes all;
  all.addAll(known.opened_);
  if (known.options_.openAttributes != nullptr) all.addAll(*known.options_.openAttributes);
  all.each([&](PyTypeObject* type, PyObject* name) {
    bool guarded = false;
    for (const guard::Guard& g : known.document_.guards.guards) {
      guarded = guarded ||
                (g.kind == GuardKind::kTypeVersion &&
                 PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(known.consts_[g.key].get()), type) != 0);
    }
    if (!guarded) return;
    pyapi::Ref<> pair = pyapi::steal(PyTuple_Pack(2, type, name));
    if (!pair) {
      PyErr_Clear();
      return;
    }
    guard::Guard row;
    row.kind = GuardKind::kOpenAttribute;
    row.block = known.rootBlock_;
    row.key = rec.constId(pair.get());
    known.document_.guards.guards.push_back(row);
  });
}

}  // namespace kintsugi::capture
