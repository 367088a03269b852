#include "capture/class_attributes.h"

#include <algorithm>
#include <string_view>

#include "capture/classes.h"
#include "capture/recorder_tables.h"
#include "pyapi/code.h"
#include "pyapi/errors.h"
#include "pyapi/imports.h"
#include "pyapi/lazy.h"
#include "pyapi/object_layout.h"
#include "pyapi/opcodes.h"
#include "pyapi/text.h"
#include "pyapi/types.h"

namespace kintsugi::capture {

using guard::GuardKind;
using ir::Op;

namespace {

// Attributes of tensor classes are also read by torch's C++ code, which the recorder does not see.
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

// Special names such as `__len__` have a meaning for C code, so they are never opened.
bool mayOpen(PyTypeObject* type, PyObject* name) {
  return PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) && !PyType_HasFeature(type, Py_TPFLAGS_IMMUTABLETYPE) &&
         !pyapi::ascii(name).starts_with("__") && !isTensorClass(type);
}

namespace {

bool mayOpen(RecordContext& rec, PyTypeObject* type, PyObject* name) {
  return virtualClassOf(rec, type) == nullptr && capture::mayOpen(type, name);
}

bool isOpen(RecordContext& rec, PyTypeObject* type, PyObject* name) {
  return rec.tables.attributes.isOpen(type, name);
}

bool isDescriptor(PyObject* value) {
  return pyapi::hasDescriptorGet(value) || pyapi::hasDescriptorSet(value);
}

void noteClosed(RecordContext& rec, PyTypeObject* type, PyObject* name) {
  if (mayOpen(rec, type, name)) rec.tables.attributes.close(type, name);
}

// True if the code that is being recorded sets an attribute of that name, and `value` is not a descriptor or
// a class.
bool isStoredHere(RecordContext& rec, PyObject* value, PyObject* name) {
  const ShadowFrame* frame = rec.tables.frames.current();
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

// The first class in the MRO that has the attribute, or null.
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

bool anyOpen(RecordContext& rec, PyObject* order, Py_ssize_t from, PyObject* name) {
  if (!rec.tables.attributes.isAnythingOpen()) return false;
  for (Py_ssize_t i = from; i < PyTuple_GET_SIZE(order); ++i) {
    if (isOpen(rec, at(order, i), name)) return true;
  }
  return false;
}

// Look-up binds the value if its type is a descriptor's. The guard on the type covers this.
void guardEntry(RecordContext& rec, TypeEntry& entry) {
  if (!rec.live()) return;
  if (isDescriptor(entry.value)) {
    entry.open = false;
    rec.guards.pin(entry.shadow, entry.value);
    return;
  }
  rec.guards.guardType(entry.shadow, entry.value);
  rec.guards.guardTypeVersion(Py_TYPE(entry.value));
}

// Opens the attribute in each class from the one that is asked to the one that has it: any of them may get
// it.
void openUpTo(RecordContext& rec, PyObject* order, Py_ssize_t from, PyTypeObject* owner, PyObject* name) {
  for (Py_ssize_t i = from; i < PyTuple_GET_SIZE(order); ++i) {
    PyTypeObject* base = at(order, i);
    if (mayOpen(rec, base, name) && !rec.tables.attributes.isClosed(base, name))
      rec.tables.attributes.open(base, name);
    if (base == owner) return;
  }
}

TypeEntry readOpen(RecordContext& rec, PyObject* order, Py_ssize_t from, PyObject* name) {
  TypeEntry entry;
  for (Py_ssize_t i = from; i < PyTuple_GET_SIZE(order) && rec.live(); ++i) {
    PyTypeObject* base = at(order, i);
    entry.value = own(base, name);
    if (!isOpen(rec, base, name)) {
      noteClosed(rec, base, name);
      if (entry.value != nullptr) return entry;
      continue;
    }
    const Shadow dict = rec.guards.pinnedRoot(pyapi::dictOf(base));
    if (entry.value == nullptr) {
      rec.heap.lacksKey(dict, pyapi::dictOf(base), name);
      continue;
    }
    {
      const AttributeLog::ReadingOpen reading(rec.tables.attributes);
      entry.shadow = rec.objects.dictEntry(dict, pyapi::dictOf(base), name, entry.value);
    }
    entry.open = true;
    guardEntry(rec, entry);
    return entry;
  }
  return entry;
}

}  // namespace

TypeEntry typeEntry(RecordContext& rec, PyTypeObject* type, PyObject* name, PyTypeObject* after) {
  PyObject* order = pyapi::mroOf(type);
  const Py_ssize_t from = placeBehind(order, after);
  TypeEntry entry;
  if (pyapi::ascii(name).starts_with("__")) {
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

bool closeAll(RecordContext& rec, PyTypeObject* type) { return rec.tables.attributes.closeAll(type); }

std::optional<bool> storeOpen(RecordContext& rec, Shadow shadow, PyObject* object, PyObject* name,
                              Shadow value, PyObject* real) {
  if (!PyType_Check(object) || shadow.isValue()) return std::nullopt;
  auto* type = reinterpret_cast<PyTypeObject*>(object);
  PyTypeObject* meta = Py_TYPE(object);
  if (!mayOpen(rec, type, name) || !pyapi::setsAttributesLikeType(meta)) return std::nullopt;
  rec.guards.guardTypeVersion(meta);
  const TypeEntry above = typeEntry(rec, meta, name);
  const bool setter = above.value != nullptr && pyapi::hasDescriptorSet(above.value);
  if (setter && isOpen(rec, type, name)) rec.abort(diag::Code::KTG0303, {pyapi::typeName(type)});
  if (setter) return std::nullopt;
  if (!isOpen(rec, type, name)) {
    // The class gets a method, which will rarely change again.
    if (real != nullptr && isDescriptor(real)) return std::nullopt;
    rec.tables.attributes.noteWritten(type, name);
    if (rec.tables.attributes.isClosed(type, name)) return std::nullopt;
    rec.tables.attributes.open(type, name);
  }
  rec.tables.attributes.noteWritten(type, name);
  if (!rec.live() || (shadow.isSource() && !rec.guards.pin(shadow, object))) return false;
  rec.guards.guardTypeVersion(type);
  const Shadow dict = rec.guards.pinnedRoot(pyapi::dictOf(type));
  const Shadow target = Shadow::source(rec.guards.sourceOf(shadow, object));
  PyObject* before = own(type, name);
  if (real == nullptr && before == nullptr)
    return rec.heap.lacksKey(dict, pyapi::dictOf(type), name);  // the run raises AttributeError
  if (real == nullptr) rec.objects.dictEntry(dict, pyapi::dictOf(type), name, before);
  rec.tables.classVersions.expectWrites();
  const bool written = real != nullptr
                           ? rec.heap.emitEffect(Op::kSetAttr, {{target, object}, {value, real}}, name)
                           : rec.heap.emitEffect(Op::kDelAttr, {{target, object}}, name);
  if (!written || !rec.live()) return false;
  return real != nullptr ? rec.heap.noteWrite(pyapi::dictOf(type), name, value, real)
                         : rec.heap.noteDelete(pyapi::dictOf(type), name);
}

void opensAttribute(RecordContext& rec, PyTypeObject* type, const char* name) {
  const pyapi::Ref<> text = pyapi::steal(PyUnicode_InternFromString(name));
  if (!text || !mayOpen(rec, type, text.get())) return;
  if (!isOpen(rec, type, text.get()) && !rec.tables.attributes.isClosed(type, text.get()))
    rec.tables.attributes.open(type, text.get());
  rec.tables.attributes.noteWritten(type, text.get());
  rec.tables.classVersions.expectWrites();
}

void describeOpen(RecordContext& rec) {
  rec.tables.attributes.allOpen().each([&](PyTypeObject* type, PyObject* name) {
    bool guarded = false;
    for (const guard::Guard& g : rec.tables.document.guards.guards) {
      guarded = guarded || (g.kind == GuardKind::kTypeVersion &&
                            PyType_IsSubtype(rec.tables.constants.typeAt(g.key), type) != 0);
    }
    if (!guarded) return;
    pyapi::Ref<> pair = pyapi::steal(PyTuple_Pack(2, type, name));
    if (!pair) {
      PyErr_Clear();
      return;
    }
    guard::Guard row;
    row.kind = GuardKind::kOpenAttribute;
    row.block = rec.tables.blocks.root();
    row.key = rec.guards.constId(pair.get());
    rec.tables.document.guards.guards.push_back(row);
  });
}

}  // namespace kintsugi::capture
