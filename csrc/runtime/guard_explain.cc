#include "runtime/guard_explain.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "pyapi/plain.h"
#include "pyapi/text.h"
#include "pyapi/types.h"
#include "runtime/compiled_trace.h"

namespace kintsugi::runtime {

namespace {

using guard::GuardKind;

constexpr size_t kMaxText = 96;

std::string shortened(std::string text) {
  if (text.size() > kMaxText) {
    text.resize(kMaxText);
    while (!text.empty() && (static_cast<unsigned char>(text.back()) & 0xC0) == 0x80) {
      text.pop_back();  // not in the middle of a character
    }
    if (!text.empty() && static_cast<unsigned char>(text.back()) >= 0xC0) {
      text.pop_back();
    }
    text += "...";
  }
  return text;
}

std::string typeName(PyTypeObject* type) {
  const std::string name = pyapi::typeName(type);
  return name.substr(name.rfind('.') + 1);
}

// The value of a plain constant, else the kind of thing it is. An object's own repr() would be Python code.
std::string textOf(PyObject* object) {
  if (object == nullptr) {
    return "nothing";
  }
  if (pyapi::isPlain(object)) {
    const pyapi::Ref<> repr = pyapi::steal(PyObject_Repr(object));
    PyErr_Clear();
    return repr ? shortened(pyapi::utf8(repr.get())) : typeName(Py_TYPE(object));
  }
  if (PyType_Check(object)) {
    return "class " + typeName(reinterpret_cast<PyTypeObject*>(object));
  }
  char address[32];
  std::snprintf(address, sizeof address, " at %p", static_cast<void*>(object));
  return typeName(Py_TYPE(object)) + " object" + address;
}

std::string listOf(const std::vector<int64_t>& numbers) {
  std::string out = "[";
  for (size_t i = 0; i < numbers.size(); ++i) {
    out += i == 0 ? "" : ",";
    out += numbers[i] == ir::kAnySize ? "?" : std::to_string(numbers[i]);
  }
  return out + "]";
}

std::string tensorText(const ir::TensorDesc& info, bool sizes) {
  std::string out(ir::dtypeName(info.dtype));
  out += sizes ? listOf(info.sizes) : "[" + std::to_string(info.sizes.size()) + " dims]";
  if (sizes && info.hasOwnStrides()) {
    out += " strides=" + listOf(info.strides);
  }
  out += " " + ir::deviceName(info.device) + (info.requiresGrad ? " requires_grad" : "") +
         (info.isParam ? " param" : "");
  PyTypeObject* type = torchapi::pyTypeOf(info);
  if (type != nullptr && !torchapi::isExactTensorType(type)) {
    out += " " + typeName(type);
  }
  if (!info.isLeaf) {
    out += " non-leaf";
  }
  return out;
}

class Explainer {
 public:
  Explainer(const recording::Recording& recording, Block& block, const Inputs& in)
      : recording_(recording), block_(block), in_(in) {
    objects_.resize(block.nodes.size());
    for (NodeId n = 0; n < block.nodes.size(); ++n) {
      const Node& node = block.nodes[n];
      PyObject* parent = node.root ? nullptr : objects_[node.parent];
      pyapi::Ref<> fresh;
      objects_[n] = node.root || parent != nullptr ? resolveNode(node, parent, in, fresh) : nullptr;
      if (fresh) {
        fresh_.push_back(std::move(fresh));
      }
    }
  }

  GuardFailure explain() {
    for (size_t i = 0; i < block_.states.size(); ++i) {
      if (!block_.states[i]->isCurrent()) {
        note(block_.stateIndices[i], "global state " + block_.states[i]->describe(),
             torchapi::GlobalState::current().describe());
      }
    }
    for (TypeCheck& check : block_.types) {
      if ((*pyapi::typeVersionWord(check.type) != check.version || check.broken) &&
          !typeHolds(block_, check)) {
        note(check.index, "class " + typeName(check.type) + " unchanged",
             "an attribute of it or of a base was set");
        noteAttributes(check);
      }
    }
    for (NodeId n = 0; n < block_.nodes.size(); ++n) {
      explainNode(n);
    }
    for (const SameCheck& check : block_.sames) {
      if ((objects_[check.a] == objects_[check.b]) != check.same) {
        note(check.index, path(check.a) + (check.same ? " is " : " is not ") + path(check.b),
             check.same ? "different objects" : "the same object");
      }
    }
    GuardFailure failure = std::move(first_).value_or(GuardFailure{});
    failure.variations = std::move(variations_);
    failure.classAttributes = std::move(attributes_);
    return failure;
  }

 private:
  void note(uint32_t index, std::string expected, std::string seen) {
    // Failures without a guard (something is missing) come after those of any guard.
    if (!first_ || index < first_->guard) {
      first_ = GuardFailure{index, std::move(expected), std::move(seen)};
    }
  }

  std::string path(NodeId n) const {
    return recording_.document.sources.path(block_.nodes[n].source, recording_.document.trace.constTexts);
  }

  void explainNode(NodeId n) {
    const Node& node = block_.nodes[n];
    PyObject* object = objects_[n];
    if (object == nullptr) {
      // What is missing under a missing parent is the parent's failure.
      const bool parentMissing = !node.root && objects_[node.parent] == nullptr;
      if (!parentMissing) {
        note(firstGuardBelow(n), path(n) + " exists", "missing");
      }
      return;
    }
    for (const LocalGuard& g : block_.guardsOf(node)) {
      if (!holds(g, object)) {
        note(g.index, path(n) + expectedOf(g), seenOf(g, object));
        noteVariation(g, object);
      }
    }
  }

  void noteAttributes(const TypeCheck& check) {
    for (size_t i = 0; i < check.entries.size(); ++i) {
      auto* base =
          reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(check.mro.get(), static_cast<Py_ssize_t>(i)));
      const bool same = *pyapi::dictVersionWord(pyapi::dictOf(base)) == check.dictVersions[i];
      if (same || check.entries[i] == nullptr) {
        continue;
      }
      const std::unordered_map<const PyObject*, const PyObject*> before(check.entries[i]->begin(),
                                                                        check.entries[i]->end());
      PyObject *key, *value;
      Py_ssize_t at = 0;
      while (PyDict_Next(pyapi::dictOf(base), &at, &key, &value)) {
        const auto found = before.find(key);
        const bool changed = found == before.end() || found->second != value;
        const bool bound = pyapi::hasDescriptorGet(value) || pyapi::hasDescriptorSet(value);
        if (changed && !bound && PyUnicode_CheckExact(key)) {
          attributes_.emplace_back(base, pyapi::newRef(key));
        }
      }
    }
  }

  void noteVariation(const LocalGuard& g, PyObject* object) {
    if (g.kind == GuardKind::kDimRange && torchapi::isTensor(object)) {
      variations_.push_back({g.index, uint64_t{1} << (PyLong_AsLong(PyTuple_GET_ITEM(g.key, 0)) & 63)});
      return;
    }
    if (g.kind == GuardKind::kTensor && torchapi::isTensor(object)) {
      const uint64_t dims = torchapi::changedSizes(object, *g.info);
      if (dims != 0) {
        variations_.push_back({g.index, dims});
      }
    } else if (g.kind == GuardKind::kEquals && PyLong_CheckExact(object) && PyLong_CheckExact(g.key)) {
      variations_.push_back({g.index, 0});
    } else if ((g.kind == GuardKind::kEquals || g.kind == GuardKind::kIs) && PyFloat_CheckExact(object) &&
               PyFloat_CheckExact(g.key)) {  // a NaN is compared by identity
      variations_.push_back({g.index, 0});
    } else if (g.kind == GuardKind::kEquals && PyUnicode_CheckExact(object) && PyUnicode_CheckExact(g.key)) {
      variations_.push_back({g.index, 0, true});
    } else if (g.kind == GuardKind::kLength && (PyList_CheckExact(object) || PyDict_CheckExact(object))) {
      variations_.push_back({g.index, 0, true});
    }
  }

  uint32_t firstGuardBelow(NodeId n) const {
    uint32_t index = ir::kNone;
    for (NodeId m = n; m < block_.nodes[n].end; ++m) {
      for (const LocalGuard& g : block_.guardsOf(block_.nodes[m])) {
        index = std::min(index, g.index);
      }
    }
    return index;
  }

  static std::string rangeOf(PyObject* range) {
    const auto number = [range](Py_ssize_t i) { return textOf(PyTuple_GET_ITEM(range, i)); };
    return ".shape[" + number(0) + "] between " + number(1) + " and " + number(2);
  }

  static std::string expectedOf(const LocalGuard& g) {
    switch (g.kind) {
      case GuardKind::kType:
        return " of type " + typeName(reinterpret_cast<PyTypeObject*>(g.key));
      case GuardKind::kIs:
        return " is " + textOf(g.key);
      case GuardKind::kEquals:
      case GuardKind::kSetEquals:
        return " == " + textOf(g.key);
      case GuardKind::kElement:
        return " with element " + textOf(g.key);
      case GuardKind::kNoElement:
        return " without element " + textOf(g.key);
      case GuardKind::kFits:
        return " of at most 64 bits";
      case GuardKind::kLength:
        return " with length " + std::to_string(g.number);
      case GuardKind::kLacksKey:
        return " without key " + textOf(g.key);
      case GuardKind::kKeys:
        return " with keys " + textOf(g.key);
      case GuardKind::kNoDict:
        return " without attributes of its own";
      case GuardKind::kNoAttribute:
        return " without an attribute " + textOf(g.key) + " of its own";
      case GuardKind::kEmptyMember:
        return " with an unset slot";
      case GuardKind::kEmptyCell:
        return " is an empty cell";
      case GuardKind::kFunction:
        return " with the code it had";
      case GuardKind::kTensor:
      case GuardKind::kTensorRank:
        return ": " + tensorText(*g.info, g.kind == GuardKind::kTensor);
      case GuardKind::kDimRange:
        return rangeOf(g.key);
      case GuardKind::kTypeVersion:
      case GuardKind::kOpenAttribute:
      case GuardKind::kSame:
      case GuardKind::kNotSame:
      case GuardKind::kGlobalState:
        break;
    }
    return "";
  }

  static std::string seenOf(const LocalGuard& g, PyObject* object) {
    switch (g.kind) {
      case GuardKind::kType:
        return "type " + typeName(Py_TYPE(object));
      case GuardKind::kLength: {
        const pyapi::Word* length = pyapi::lengthWord(object);
        return length == nullptr ? "type " + typeName(Py_TYPE(object)) : "length " + std::to_string(*length);
      }
      case GuardKind::kElement:
        return "it lacks the element";
      case GuardKind::kNoElement:
        return "it has the element";
      case GuardKind::kFits:
        return "more bits";
      case GuardKind::kLacksKey:
        return "it has the key";
      case GuardKind::kKeys:
        return "other keys or another order";
      case GuardKind::kNoDict:
        return "it has attributes";
      case GuardKind::kNoAttribute:
        return "it has the attribute";
      case GuardKind::kEmptyMember:
        return "it is set";
      case GuardKind::kEmptyCell:
        return textOf(PyCell_Check(object) ? PyCell_GET(object) : object);
      case GuardKind::kFunction:
        return PyFunction_Check(object) ? "other code" : textOf(object);
      case GuardKind::kDimRange:
        return torchapi::isTensor(object) ? tensorText(torchapi::describe(object), true) : textOf(object);
      case GuardKind::kTensor:
      case GuardKind::kTensorRank:
        return torchapi::isTensor(object)
                   ? tensorText(torchapi::describe(object), g.kind == GuardKind::kTensor)
                   : textOf(object);
      default:
        return textOf(object);
    }
  }

  const recording::Recording& recording_;
  Block& block_;
  const Inputs& in_;
  std::vector<PyObject*> objects_;
  std::vector<pyapi::Ref<>> fresh_;
  std::optional<GuardFailure> first_;
  std::vector<Variation> variations_;
  std::vector<std::pair<PyTypeObject*, pyapi::Ref<>>> attributes_;
};

}  // namespace

std::string describeGuard(const recording::Recording& recording, uint32_t guard) {
  if (guard == ir::kNone) {
    return {};
  }
  const ir::SourceId source = recording.document.guards.guards[guard].source;
  return source == ir::kNone ? "global state"
                             : recording.document.sources.path(source, recording.document.trace.constTexts);
}

std::vector<pyapi::Ref<>> resolveSources(const recording::Recording& recording,
                                         const pyapi::Arguments& args) {
  const auto& sources = recording.document.sources.nodes;
  std::vector<pyapi::Ref<>> objects(sources.size());
  const Inputs in{args, nullptr, nullptr};
  for (size_t id = 0; id < sources.size(); ++id) {
    const guard::SourceNode& source = sources[id];
    Node node;
    node.kind = source.kind;
    node.root = source.parent == ir::kNone;
    node.index = source.index;
    node.key = source.key == ir::kNone ? nullptr : recording.consts[source.key].get();
    node.keyHashed = node.kind == guard::SourceKind::kDictItem && pyapi::plainHash(node.key, &node.hash);
    PyObject* parent = node.root ? nullptr : objects[source.parent].get();
    if (!node.root && parent == nullptr) continue;
    pyapi::Ref<> fresh;
    objects[id] = pyapi::newRef(resolveNode(node, parent, in, fresh));
  }
  return objects;
}

GuardFailure explainBlock(const recording::Recording& recording, Block& block, const Inputs& in) {
  return Explainer(recording, block, in).explain();
}

}  // namespace kintsugi::runtime
