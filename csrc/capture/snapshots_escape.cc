// Snapshots: objects that escape are built in the trace.
#include "capture/snapshots.h"
#include "capture/stand_ins.h"
#include "pyapi/classes.h"
#include "pyapi/functions.h"
#include "pyapi/types.h"
#include "torchapi/tensor_desc.h"

namespace kintsugi::capture {

using ir::Operand;
using ir::RecipeKind;

namespace {

// Counts how deeply calls of escape() are nested: 1 is the object itself, 2 a part of it.
struct EscapeDepth {
  EscapeDepth() : value(++current) {}
  ~EscapeDepth() { --current; }
  EscapeDepth(const EscapeDepth&) = delete;
  EscapeDepth& operator=(const EscapeDepth&) = delete;
  int value;
  static thread_local int current;
};
thread_local int EscapeDepth::current = 0;

}  // namespace

// Builds the object of a recipe.
ir::ValueId Snapshots::build(ir::RecipeId recipe, ir::StateId snap) {
  const size_t at =
      writer_.emit(ir::Op::kBuild, {Operand::recipe(recipe)}, {{ir::TypeKind::kObject, ir::kNone}}, snap);
  return trace_.code[at].firstResult;
}

// The class that has to be built first because the object is its `__class__` cell or holds that cell; else
// null.
Shadow Snapshots::classAround(const Virtual& v) {
  const auto unbuilt = [&](Shadow cell) {
    Virtual* cls = virtuals_.classOfCell(cell);
    return cls != nullptr && cls->value == ir::kNone && !cls->building ? virtuals_[cell].parts[0]
                                                                       : Shadow::null();
  };
  if (v.kind == VirtualKind::kCell) {
    auto self = known_.knownObject(v.object.get());
    return self ? unbuilt(*self) : Shadow::null();
  }
  if (v.kind != VirtualKind::kFunction) return Shadow::null();
  for (size_t i = 2; i < v.parts.size(); ++i) {
    if (Shadow cls = unbuilt(v.parts[i]); cls.isVirtual()) return cls;
  }
  return Shadow::null();
}

// The cell of a class that is about to be built, without content: type.__new__ fills it.
bool Snapshots::escapeCell(Virtual& cls) {
  if (!cls.parts.back().isVirtual()) return true;
  Virtual& cell = virtuals_[cls.parts.back()];
  if (cell.value != ir::kNone) return true;
  const ir::StateId snap = stateBefore();
  cell.value = build(recipes_.add({RecipeKind::kCell, ir::kNone, {Operand::null()}}), snap);
  virtuals_.noteChange(cell);
  return breaks_.isLive();
}

// What escapes with a virtual object.
std::vector<std::pair<Shadow, PyObject*>> Snapshots::escapingParts(const Virtual& v, PyObject* object) {
  std::vector<std::pair<Shadow, PyObject*>> parts;
  if (v.kind == VirtualKind::kTuple || v.kind == VirtualKind::kList) {
    for (size_t i = 0; i < v.parts.size(); ++i) {
      parts.emplace_back(v.parts[i],
                         PyTuple_Check(object) ? PyTuple_GET_ITEM(object, i) : PyList_GET_ITEM(object, i));
    }
  } else if (v.kind == VirtualKind::kCell) {
    parts.emplace_back(v.parts[0], PyCell_GET(object));
  } else if (v.kind == VirtualKind::kClass) {
    for (size_t i = 0; i + 1 < v.parts.size(); ++i) parts.emplace_back(v.parts[i], v.partObjects[i].get());
    PyObject *key, *encoded;
    Py_ssize_t at = 0;
    while (PyDict_Next(v.entries.get(), &at, &key, &encoded)) {
      Shadow part = decodeShadow(encoded);
      if (part.isVirtual()) parts.emplace_back(part, virtuals_[part].object.get());
    }
  } else if (v.kind == VirtualKind::kGenerator || v.kind == VirtualKind::kDeque) {
    Shadows slots = v.kind == VirtualKind::kDeque ? v.parts : Shadows{};
    if (v.frame) {
      slots = v.frame->locals;
      slots.insert(slots.end(), v.frame->stack.begin(), v.frame->stack.end());
      slots.push_back(v.frame->functionShadow);
    }
    for (Shadow slot : slots) {
      if (slot.isVirtual()) parts.emplace_back(slot, virtuals_[slot].object.get());
    }
  } else {
    for (size_t i = 0; i < v.parts.size() && i < v.partObjects.size(); ++i) {
      parts.emplace_back(v.parts[i], v.partObjects[i].get());
    }
    PyObject* closure =
        v.kind == VirtualKind::kFunction ? pyapi::closureOf(pyapi::asFunction(object)) : nullptr;
    for (size_t i = 2; closure != nullptr && i < v.parts.size(); ++i) {
      parts.emplace_back(v.parts[i], PyTuple_GET_ITEM(closure, static_cast<Py_ssize_t>(i) - 2));
    }
    if (v.kind == VirtualKind::kException) {
      for (PyObject* linked : linkedObjects(object)) {
        if (auto known = known_.knownObject(linked)) parts.emplace_back(*known, linked);
      }
    }
    for (PyObject* shadows : {v.entries.get(), v.attrs.get()}) {
      PyObject *key, *encoded;
      Py_ssize_t at = 0;
      while (shadows && PyDict_Next(shadows, &at, &key, &encoded)) {
        Shadow part = decodeShadow(encoded);
        if (part.isVirtual()) parts.emplace_back(part, virtuals_[part].object.get());
      }
    }
  }
  if (virtuals_.classOf(Py_TYPE(object)) != nullptr) {
    auto* type = reinterpret_cast<PyObject*>(Py_TYPE(object));
    parts.emplace_back(virtuals_.shadowOf(Shadow::constant(), type), type);
  }
  return parts;
}

namespace {

PyObject* versionName() {
  static PyObject* name = PyUnicode_InternFromString("version");
  return name;
}

}  // namespace

ir::ValueId Snapshots::classVersion(const Virtual& cls) {
  facts_.bound = "it makes a class";  // the version is a number of this process
  const Operand function = Operand::constant(recipes_.constId(pyapi::classVersion()));
  const size_t at = writer_.emit(ir::Op::kCallKnown, {function, Operand::value(cls.value)},
                                 {{ir::TypeKind::kObject, ir::kNone}}, stateBefore());
  return trace_.code[at].firstResult;
}

void Snapshots::noteVersion(Virtual& cls) {
  virtuals_.setAttribute(cls, versionName(), Shadow::value(classVersion(cls)));
}

std::optional<Shadow> Snapshots::notedVersion(const Virtual& cls) const {
  PyObject* encoded = cls.attrs ? PyDict_GetItemWithError(cls.attrs.get(), versionName()) : nullptr;
  return encoded != nullptr ? std::optional(decodeShadow(encoded)) : std::nullopt;
}

bool Snapshots::escape(Shadow& shadow, PyObject* object) {
  if (shadow.isValue() && !torchapi::isTensor(object)) return true;
  if (!shadow.isVirtual()) return true;
  Virtual& v = virtuals_[shadow];
  if (v.value != ir::kNone) return true;
  if (isStandIn(v)) {
    breaks_.abort(diag::Code::KTG0302, {pyapi::typeNameOf(object)});
    return false;
  }
  if (v.building) {  // a cycle, as a recursive inner function and its cell
    breaks_.abort(diag::Code::KTG0302, {pyapi::typeNameOf(object)});
    return false;
  }
  if (Shadow cls = classAround(v); cls.isVirtual()) {  // building the class builds this object too
    if (!escape(cls, virtuals_[cls].object.get())) return false;
    if (v.value != ir::kNone) return true;
  }
  const EscapeDepth depth;
  // The state has to name the recipe of the whole object, which can't be made while parts are being built.
  stateBefore();
  if (v.kind == VirtualKind::kClass && !escapeCell(v)) return false;
  // Parts escape first, so that each mutable part is one object for everybody who sees it.
  std::vector<std::pair<Shadow, PyObject*>> parts = escapingParts(v, object);
  v.building = true;
  for (auto& [part, real] : parts) {
    part = virtuals_.shadowOf(part, real);
    if (part.isVirtual() && !escape(part, real)) return v.building = false;
  }
  v.building = false;
  auto recipe = recipes_.of(shadow.virtualId());
  if (!recipe) {
    breaks_.abort(diag::Code::KTG0302, {pyapi::typeNameOf(object)});
    return false;
  }
  ir::StateId snap = stateBefore();
  v.value = build(*recipe, snap);
  if (v.kind == VirtualKind::kClass) noteVersion(v);
  if (isConsumed(v)) {  // its new owner may move it on
    v.kind = VirtualKind::kOpaque;
    v.frame.reset();
  }
  virtuals_.noteChange(v);
  if (depth.value == 1 && instruction_.isUntouched(frames_.current()->stack.size())) {
    instruction_.forgetState();  // later snapshots have to name the object that was built
    stateBefore();
  }
  return true;
}

bool Snapshots::escapeHandled() {
  for (ShadowFrame* frame = frames_.current(); frame != nullptr; frame = frame->caller) {
    if (frame->handled.isNull()) continue;
    Shadow shadow = frame->handled;
    if (!escape(shadow, frame->handledObject.get())) return false;
  }
  return true;
}

}  // namespace kintsugi::capture
