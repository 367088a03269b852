// The structural part of the guards: walks sources from their roots and compares, without running Python
// code.

#include <algorithm>
#include <unordered_map>

#include "pyapi/frame.h"
#include "pyapi/functions.h"
#include "pyapi/number.h"
#include "pyapi/plain.h"
#include "pyapi/types.h"
#include "runtime/guard_block.h"

namespace kintsugi::runtime {

namespace {

using guard::GuardKind;
using guard::SourceKind;

PyObject* functionPart(SourceKind kind, PyObject* object, int64_t index) {
  if (!PyFunction_Check(object)) {
    return nullptr;
  }
  auto* function = pyapi::asFunction(object);
  switch (kind) {
    case SourceKind::kClosure:
      if (pyapi::closureOf(function) == nullptr || index < 0 ||
          index >= PyTuple_GET_SIZE(pyapi::closureOf(function))) {
        return nullptr;
      }
      return PyTuple_GET_ITEM(pyapi::closureOf(function), index);
    case SourceKind::kDefaults:
      return pyapi::defaultsOf(function);
    case SourceKind::kKwDefaults:
      return pyapi::keywordDefaultsOf(function);
    case SourceKind::kGlobals:
      return pyapi::globalsOf(function);
    default:
      return pyapi::builtinsOf(function);
  }
}

PyObject* readMember(const Node& node, PyObject* parent, pyapi::Ref<>& fresh) {
  bool noneIfNull = false;
  if (PyObject** slot = pyapi::memberSlot(node.key, parent, &noneIfNull)) {
    return *slot == nullptr && noneIfNull ? Py_None : *slot;
  }
  fresh = pyapi::readDescriptor(node.key, parent);
  return fresh.get();
}

// The version of a dict that guards compare; `object` need not be a dict.
bool lacksKey(const LocalGuard& guard, PyObject* object) {
  PyObject* value = nullptr;
  return PyDict_Check(object) && guard.key != nullptr &&
         pyapi::lookUp(object, guard.key, guard.hash, &value) == pyapi::Lookup::kMissing;
}

// Most objects that are asked have no attributes of their own, so their dict is not made for this.
bool lacksAttribute(const LocalGuard& guard, PyObject* object) {
  if (!pyapi::hasInstanceAttributes(object)) [[likely]] {
    return true;
  }
  PyObject* dict = pyapi::instanceDict(object);
  return dict != nullptr && lacksKey(guard, dict);
}

bool memberIsEmpty(PyObject* descriptor, PyObject* object) {
  bool noneIfNull = false;
  PyObject** slot = pyapi::memberSlot(descriptor, object, &noneIfNull);
  return slot != nullptr && *slot == nullptr && !noneIfNull;
}

}  // namespace

PyObject* loadRoot(const Node& root, const Inputs& in) {
  if (root.external) {
    return in.slots[root.source];
  }
  switch (root.kind) {
    case SourceKind::kArg:
      return in.args.at(root.index);
    case SourceKind::kPinned:
      return root.key;
    case SourceKind::kValue:
      return in.values == nullptr ? nullptr : in.values[root.index];
    default:
      return nullptr;
  }
}

PyObject* resolveNode(const Node& node, PyObject* parent, const Inputs& in, pyapi::Ref<>& fresh) {
  if (node.root) {
    return loadRoot(node, in);
  }
  switch (node.kind) {
    case SourceKind::kArg:
    case SourceKind::kPinned:
    case SourceKind::kValue:
      return nullptr;  // always roots
    case SourceKind::kType:
      return reinterpret_cast<PyObject*>(Py_TYPE(parent));
    case SourceKind::kDict:
      return pyapi::instanceDict(parent);
    case SourceKind::kDictItem: {
      PyObject* value = nullptr;
      const bool found = PyDict_Check(parent) && node.keyHashed &&
                         pyapi::lookUp(parent, node.key, node.hash, &value) == pyapi::Lookup::kFound;
      return found ? value : nullptr;
    }
    case SourceKind::kListItem:
      return PyList_Check(parent) && node.index >= 0 && node.index < PyList_GET_SIZE(parent)
                 ? PyList_GET_ITEM(parent, node.index)
                 : nullptr;
    case SourceKind::kTupleItem:
      return PyTuple_Check(parent) && node.index >= 0 && node.index < PyTuple_GET_SIZE(parent)
                 ? PyTuple_GET_ITEM(parent, node.index)
                 : nullptr;
    case SourceKind::kMember:
      return readMember(node, parent, fresh);
    case SourceKind::kGetSet:
      fresh = pyapi::readDescriptor(node.key, parent);
      return fresh.get();
    case SourceKind::kCell:
      return PyCell_Check(parent) ? PyCell_GET(parent) : nullptr;
    case SourceKind::kClosure:
    case SourceKind::kDefaults:
    case SourceKind::kKwDefaults:
    case SourceKind::kGlobals:
    case SourceKind::kBuiltins:
      return functionPart(node.kind, parent, node.index);
    case SourceKind::kMethodFunction:
      return PyMethod_Check(parent) ? PyMethod_GET_FUNCTION(parent) : nullptr;
    case SourceKind::kMethodSelf:
      return PyMethod_Check(parent) ? PyMethod_GET_SELF(parent) : nullptr;
    case SourceKind::kPartial: {
      PyObject** field = pyapi::partialField(parent, node.index);
      return field == nullptr ? nullptr : *field;
    }
    case SourceKind::kReferent:
      return PyWeakref_CheckRefExact(parent) ? pyapi::referentOf(parent) : nullptr;
  }
  return nullptr;
}

bool holds(const LocalGuard& guard, PyObject* object) {
  switch (guard.kind) {
    case GuardKind::kType:
      return reinterpret_cast<PyObject*>(Py_TYPE(object)) == guard.key;
    case GuardKind::kIs:
      return object == guard.key;
    case GuardKind::kEquals:
      return pyapi::plainEquals(object, guard.key);
    case GuardKind::kFits:
      return PyLong_Check(object) && pyapi::fitsInt64(object);
    case GuardKind::kLength: {
      const pyapi::Word* length = pyapi::lengthWord(object);
      return length != nullptr && *length == static_cast<pyapi::Word>(guard.number);
    }
    case GuardKind::kLacksKey:
      return lacksKey(guard, object);
    case GuardKind::kKeys:
      return PyDict_Check(object) && PyTuple_Check(guard.key) && pyapi::keysAre(object, guard.key);
    case GuardKind::kSetEquals:
      return PyAnySet_Check(object) && PyAnySet_Check(guard.key) && pyapi::plainSetsEqual(object, guard.key);
    case GuardKind::kElement:
      return PyAnySet_Check(object) && pyapi::lookUpInSet(object, guard.key) == pyapi::Lookup::kFound;
    case GuardKind::kNoElement:
      return PyAnySet_Check(object) && pyapi::lookUpInSet(object, guard.key) == pyapi::Lookup::kMissing;
    case GuardKind::kNoDict:
      return !pyapi::hasInstanceAttributes(object);
    case GuardKind::kNoAttribute:
      return lacksAttribute(guard, object);
    case GuardKind::kEmptyMember:
      return memberIsEmpty(guard.key, object);
    case GuardKind::kEmptyCell:
      return PyCell_Check(object) && PyCell_GET(object) == nullptr;
    case GuardKind::kFunction:
      return PyFunction_Check(object) && PyFunction_GET_CODE(object) == guard.key;
    case GuardKind::kTensor:
    case GuardKind::kTensorRank:
      return torchapi::matches(object, *guard.info, guard.kind == GuardKind::kTensor);
    case GuardKind::kDimRange:
      return torchapi::sizeIsBetween(object, guard.key);
    case GuardKind::kTypeVersion:
    case GuardKind::kOpenAttribute:
    case GuardKind::kSame:
    case GuardKind::kNotSame:
    case GuardKind::kGlobalState:
      return true;  // not about one object: checked by the block
  }
  return false;
}

namespace {

// The entries of a class's dict, cached by its version, which no other dict ever has: many traces ask for the
// same classes.
std::shared_ptr<const ClassEntries> entriesOf(PyObject* dict) {
  static std::unordered_map<pyapi::Word, std::weak_ptr<const ClassEntries>> known;
  std::weak_ptr<const ClassEntries>& slot = known[*pyapi::dictVersionWord(dict)];
  if (auto entries = slot.lock()) return entries;
  auto made = std::make_shared<ClassEntries>();
  PyObject *key, *value;
  Py_ssize_t at = 0;
  while (PyDict_Next(dict, &at, &key, &value)) made->emplace_back(key, value);
  slot = made;
  if (known.size() % 1024 == 0)
    std::erase_if(known, [](const auto& entry) { return entry.second.expired(); });
  return made;
}

}  // namespace

bool setTypeBaseline(TypeCheck& check) {
  const bool versioned = pyapi::ensureTypeVersion(check.type);
  check.version = versioned ? *pyapi::typeVersionWord(check.type) : ~pyapi::Word{0};
  check.mro = pyapi::newRef(pyapi::mroOf(check.type));
  check.dictVersions.clear();
  check.entries.clear();
  for (Py_ssize_t i = 0; check.mro && i < PyTuple_GET_SIZE(check.mro.get()); ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(check.mro.get(), i));
    check.dictVersions.push_back(*pyapi::dictVersionWord(pyapi::dictOf(base)));
    check.entries.push_back(PyType_HasFeature(base, Py_TPFLAGS_HEAPTYPE) ? entriesOf(pyapi::dictOf(base))
                                                                         : nullptr);
  }
  return versioned;
}

namespace {

bool isLeftOut(const OpenDict& dict, PyObject* key) {
  return std::any_of(dict.names.begin(), dict.names.end(), [key](PyObject* name) {
    return name == key || (PyUnicode_CheckExact(key) && PyUnicode_Compare(name, key) == 0);
  });
}

// Entry by entry: keys that are not left out keep their order, unless one is deleted and set again.
bool entriesMatch(OpenDict& dict) {
  const pyapi::Word version = *pyapi::dictVersionWord(pyapi::dictOf(dict.type));
  if (version == dict.version) return true;
  size_t next = 0;
  PyObject *key, *value;
  Py_ssize_t at = 0;
  while (PyDict_Next(pyapi::dictOf(dict.type), &at, &key, &value)) {
    const bool expected = next < dict.entries.size() && dict.entries[next].first.get() == key;
    if (expected && dict.entries[next].second.get() != value) return false;
    if (!expected && !isLeftOut(dict, key)) return false;
    next += expected ? 1 : 0;
  }
  if (next != dict.entries.size()) return false;
  dict.version = version;
  return true;
}

}  // namespace

void setDictBaseline(OpenDict& dict) {
  PyObject *key, *value;
  Py_ssize_t at = 0;
  dict.version = *pyapi::dictVersionWord(pyapi::dictOf(dict.type));
  while (PyDict_Next(pyapi::dictOf(dict.type), &at, &key, &value)) {
    if (!isLeftOut(dict, key)) dict.entries.emplace_back(pyapi::newRef(key), pyapi::newRef(value));
  }
}

// A type's version becomes invalid at any write to the type or a base, even one that stores the same value.
// Then everything that look-up depends on is compared.
bool typeHolds(Block& block, TypeCheck& check) {
  if (check.broken || pyapi::mroOf(check.type) != check.mro.get() || !check.mro) {
    return false;
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(check.mro.get()); ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(check.mro.get(), i));
    const pyapi::Word version = *pyapi::dictVersionWord(pyapi::dictOf(base));
    pyapi::Word& known = check.dictVersions[static_cast<size_t>(i)];
    if (version == known) continue;
    const auto open = std::find_if(block.openDicts.begin(), block.openDicts.end(),
                                   [base](const OpenDict& dict) { return dict.type == base; });
    if (open == block.openDicts.end() || !entriesMatch(*open)) return false;
    known = version;
  }
  if (pyapi::ensureTypeVersion(check.type)) {
    check.version = *pyapi::typeVersionWord(check.type);
  }
  return true;
}

bool globalStateHolds(const Block& block) {
  for (const torchapi::GlobalState* state : block.states) {
    if (!state->isCurrent()) {
      return false;
    }
  }
  return true;
}

bool walk(Block& block, const Inputs& in, NodeId id) {
  ++block.walks;
  block.samesStale = true;
  const NodeId end = block.nodes[id].end;
  for (NodeId n = id; n < end; ++n) {
    Node& node = block.nodes[n];
    PyObject* parent = node.root ? nullptr : block.objects[node.parent];
    pyapi::Ref<> fresh;
    PyObject* object = resolveNode(node, parent, in, fresh);
    bool good = object != nullptr;
    if (fresh) {
      // A computed object that nothing else holds lives as long as the memo keeps it. The trace would use it
      // for longer, so the check fails.
      good = !node.slotUsed || Py_REFCNT(object) > 1 || torchapi::hasOtherOwner(object);
      block.retired.push_back(std::move(fresh));
    }
    for (const LocalGuard& g : block.guardsOf(node)) {
      if (!good) {
        break;
      }
      if (g.tensor != ir::kNone) {
        block.tensors[g.tensor].tensor = object;  // compared with the others, at the end
      } else {
        good = holds(g, object);
      }
    }
    if (!good) {
      block.objects[id] = nullptr;  // the subtree's words are stale from here on
      return false;
    }
    block.objects[n] = object;
    node.type = Py_TYPE(object);
    if (node.keepsObject) {
      node.kept = pyapi::newRef(object);
    }
    writeWords(block, n);
  }
  return true;
}

}  // namespace kintsugi::runtime
