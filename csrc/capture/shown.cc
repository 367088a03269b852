#include "capture/shown.h"

#include <algorithm>
#include <vector>

#include "capture/recorder_tables.h"
#include "capture/special_methods.h"
#include "pyapi/name_fields.h"
#include "pyapi/object_layout.h"
#include "pyapi/plain.h"
#include "pyapi/text.h"
#include "pyapi/types.h"

namespace kintsugi::capture {

using guard::SourceKind;

namespace {

constexpr const char* kNames[] = {"__name__", "__qualname__"};

}  // namespace

std::optional<Shadow> shownName(RecordContext& rec, Shadow shadow, PyObject* object,
                                std::string_view attribute) {
  PyObject* field = pyapi::nameField(object, attribute);
  if (field == nullptr) return std::nullopt;
  const pyapi::Ref<> value = pyapi::readDescriptor(field, object);
  return rec.guards.readSource(SourceKind::kMember, rec.guards.sourceOf(shadow, object), field, 0,
                               value.get());
}

bool isRenamed(RecordContext& rec, PyObject* object) { return rec.tables.attributes.isRenamed(object); }

void noteRename(RecordContext& rec, PyObject* object, PyObject* attribute) {
  const std::string_view name = pyapi::ascii(attribute);
  const bool module = PyType_Check(object) && name == "__module__";
  PyObject* field = pyapi::fieldBehind(pyapi::lookUpInType(Py_TYPE(object), attribute));
  const bool member = field != nullptr && Py_TYPE(field) == &PyMemberDescr_Type && !isSlot(field);
  if (module || member || pyapi::nameField(object, name) != nullptr)
    rec.tables.attributes.noteRenamed(object);
}

bool guardNames(RecordContext& rec, PyObject* object) {
  if (pyapi::nameField(object, "__name__") == nullptr) return true;
  if (isRenamed(rec, object)) return false;
  if (const auto known = rec.objects.knownObject(object); known && known->isVirtual())
    return true;  // made in the trace, which knows its names
  for (const char* attribute : kNames) {
    if (!rec.live()) return false;
    std::optional<Shadow> name = shownName(rec, Shadow::constant(), object, attribute);
    PyObject* field = pyapi::nameField(object, attribute);
    const pyapi::Ref<> value = pyapi::readDescriptor(field, object);
    if (name) rec.guards.pin(*name, value.get());
  }
  if (PyType_Check(object))
    rec.guards.guardTypeVersion(reinterpret_cast<PyTypeObject*>(object));  // covers `__module__`
  return rec.live();
}

bool guardNamesIn(RecordContext& rec, PyObject* message) {
  if (!PyUnicode_Check(message)) return true;
  std::vector<PyObject*> named;
  for (const pyapi::Ref<>& object : rec.tables.constants.objects()) {
    for (const char* attribute : kNames) {
      PyObject* field = pyapi::nameField(object.get(), attribute);
      if (field == nullptr) break;
      const pyapi::Ref<> name = pyapi::readDescriptor(field, object.get());
      if (!name || PyUnicode_Contains(message, name.get()) == 0) continue;
      named.push_back(object.get());
      break;
    }
  }
  PyErr_Clear();
  return std::ranges::all_of(named, [&rec](PyObject* object) { return guardNames(rec, object); });
}

bool canFold(RecordContext& rec, Shadow shadow, PyObject* object, bool attributes) {
  if (object == nullptr || shadow.isNull()) return true;
  if (isPlainDeep(object) || pyapi::isNumpyNumber(object) || PyRange_Check(object)) return true;
  if (isIdentityValue(object)) return !attributes;
  if (rec.guards.isFrozen(object)) return true;
  if (PyFrozenSet_CheckExact(object)) return shadow.isConst();
  if (PySlice_Check(object)) return true;
  // A list whose identity is pinned may still have other items.
  if (!PyTuple_Check(object) && !(PyList_CheckExact(object) && !shadow.isConst())) return false;
  PyObject** items = PySequence_Fast_ITEMS(object);
  const bool made = shadow.isVirtual() && rec.objects.virtualOf(shadow).parts.size() ==
                                              static_cast<size_t>(PySequence_Fast_GET_SIZE(object));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i) {
    const Shadow item =
        made ? rec.objects.virtualOf(shadow).parts[static_cast<size_t>(i)] : Shadow::constant();
    if (!canFold(rec, item, items[i], attributes)) return false;
  }
  return true;
}

}  // namespace kintsugi::capture
