#include "capture/classes.h"

#include "capture/recorder_tables.h"

#include <string_view>

#include "pyapi/classes.h"
#include "pyapi/text.h"
#include "pyapi/types.h"

namespace kintsugi::capture {

Virtual* virtualClassOf(RecordContext& rec, PyTypeObject* type) { return rec.tables.virtuals.classOf(type); }

Shadow virtualShadowOf(RecordContext& rec, Shadow shadow, PyObject* object) {
  return rec.tables.virtuals.shadowOf(shadow, object);
}

std::optional<Shadow> virtualClassAttribute(RecordContext& rec, PyTypeObject* type, PyObject* name,
                                            PyObject* value) {
  if (rec.tables.virtuals.classes().empty()) return std::nullopt;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(pyapi::mroOf(type)); ++i) {
    auto* cls = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(pyapi::mroOf(type), i));
    if (PyDict_Contains(pyapi::dictOf(cls), name) != 1) continue;
    Virtual* v = virtualClassOf(rec, cls);
    // type.__new__ wraps some functions (`__new__`, `__init_subclass__`). Then the class's entry is not the
    // namespace's.
    if (v == nullptr || v->exposed) return std::nullopt;
    if (PyDict_GetItemWithError(v->partObjects[v->parts.size()].get(), name) != value) return std::nullopt;
    return rec.objects.entryOf(*v, name);
  }
  return std::nullopt;
}

bool pinClasses(RecordContext& rec, Shadow& shadow, PyObject* object) {
  if (shadow.isVirtual() && PyTuple_Check(object)) {
    auto parts = rec.objects.elementsOf(shadow, object);
    for (size_t i = 0; parts && i < parts->size(); ++i) {
      if (!pinClasses(rec, (*parts)[i], PyTuple_GET_ITEM(object, static_cast<Py_ssize_t>(i)))) return false;
    }
    if (parts) return rec.live();
  }
  // A class that the trace makes is this very class in every run.
  const bool ours =
      PyType_Check(object) && virtualClassOf(rec, reinterpret_cast<PyTypeObject*>(object)) != nullptr;
  return ours ? guardBasesOfVirtual(rec, reinterpret_cast<PyTypeObject*>(object)) && rec.live()
              : rec.guards.pinDeep(shadow, object);
}

namespace {

// Unknown code may have changed the class. Guards that its version is still the same. False: the recording
// ended.
bool pinUnchanged(RecordContext& rec, Virtual& v, const char* name) {
  const std::optional<Shadow> noted = rec.snapshots.notedVersion(v);
  if (!noted || rec.instruction.isExecuted()) {
    refuseClass(rec, name);
    return false;
  }
  const ir::Operand before = ir::Operand::value(noted->valueId());
  const ir::Operand now = ir::Operand::value(rec.snapshots.classVersion(v));
  if (!rec.guards.pinAnswer("eq", {before, now}, Py_True)) return false;
  v.exposed = false;
  return true;
}

}  // namespace

bool guardBasesOfVirtual(RecordContext& rec, PyTypeObject* type) {
  Virtual* v = virtualClassOf(rec, type);
  if (v == nullptr) return false;
  if (v->exposed && !pinUnchanged(rec, *v, pyapi::typeName(type))) return true;
  for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(pyapi::mroOf(type)); ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(pyapi::mroOf(type), i));
    rec.guards.guardTypeVersion(base);
  }
  return true;
}

void refuseVirtualConstant(RecordContext& rec, PyObject* object) {
  if (!PyType_Check(object) && !PyFunction_Check(object)) return;
  const Virtual* made = rec.tables.virtuals.findObject(object);
  if (made == nullptr) return;
  const VirtualKind kind = made->kind;
  if (kind == VirtualKind::kClass || kind == VirtualKind::kFunction)
    refuseClass(rec, pyapi::typeNameOf(object));
}

void refuseClass(RecordContext& rec, const char* what) {
  if (!rec.live()) return;
  rec.abort(diag::Code::KTG0302, {what});
  if (PyObject* body = rec.tables.virtuals.newestClassBody()) rec.tables.breakLog.setFailedIn(body);
}

Shadow madeInstance(RecordContext& rec, PyObject* object) {
  if (const auto known = rec.objects.knownObject(object)) return *known;
  for (const Virtual* v : rec.tables.virtuals.held()) {
    if (!v->forgotten || v->object.get() != object) continue;
    return rec.guards.readSource(guard::SourceKind::kValue, ir::kNone, nullptr, v->value, object);
  }
  rec.abort(diag::Code::KTG0302, {pyapi::typeNameOf(object)});
  return Shadow::constant();
}

std::optional<bool> storeInClass(RecordContext& rec, Shadow shadow, PyObject* object, PyObject* name,
                                 Shadow value, PyObject* real) {
  if (!PyType_Check(object)) return std::nullopt;
  Virtual* v = virtualClassOf(rec, reinterpret_cast<PyTypeObject*>(object));
  if (v == nullptr) return std::nullopt;
  const std::string_view text = pyapi::ascii(name);
  // Special names have a meaning for C code. A class that is made with such an entry from the start would
  // behave differently, so setting one later is not recorded.
  PyObject* space = v->partObjects[v->parts.size()].get();
  if (v->exposed || text.starts_with("__") || (value.isVirtual() && PyDict_Contains(space, name) != 0)) {
    refuseClass(rec, pyapi::utf8(name).c_str());
    return false;
  }
  shadow = virtualShadowOf(rec, Shadow::constant(), object);
  if (v->value != ir::kNone) {
    if (!rec.heap.emitEffect(ir::Op::kSetAttr, {{shadow, object}, {value, real}}, name)) return false;
    rec.snapshots.noteVersion(*v);
  }
  rec.objects.noteChange();
  return PyDict_SetItem(space, name, real) == 0 && rec.objects.setEntry(*v, name, value);
}

}  // namespace kintsugi::capture
