#include "capture/restorer.h"

#include <algorithm>

#include "capture/classes.h"
#include "capture/exceptions.h"
#include "capture/recorder.h"
#include "capture/recorder_tables.h"
#include "capture/sizes.h"
#include "pyapi/exception_state.h"
#include "pyapi/frame.h"
#include "pyapi/iterator_state.h"
#include "pyapi/known_objects.h"
#include "pyapi/opcodes.h"
#include "support/check.h"

namespace kintsugi::capture {

using ir::Operand;
using ir::OperandKind;
using ir::Recipe;
using ir::RecipeKind;

namespace {

// Index of the kind of dict view: 0 keys, 1 values, 2 items; -1: no dict view.
int64_t viewIndex(const PyTypeObject* type) {
  if (type == &PyDictKeys_Type || type == &PyODictKeys_Type) return 0;
  if (type == &PyDictValues_Type || type == &PyODictValues_Type) return 1;
  return type == &PyDictItems_Type || type == &PyODictItems_Type ? 2 : -1;
}

}  // namespace

PyObject* Restorer::object(const Operand& operand) {
  switch (operand.kind) {
    case OperandKind::kNull:
    case OperandKind::kNone:
      return nullptr;
    case OperandKind::kConst:
      return start_.parent.consts[operand.id].get();
    case OperandKind::kValue:
      return start_.values.at(operand.id).get();
    case OperandKind::kSource:
      return start_.sources.at(operand.id).get();
    case OperandKind::kRecipe:
      return start_.recipes.at(operand.id).get();
    default:
      KINTSUGI_UNREACHABLE("a snapshot with an operand of kind ", int(operand.kind));
  }
}

Shadow Restorer::shadow(const Operand& operand) {
  switch (operand.kind) {
    case OperandKind::kNull:
    case OperandKind::kNone:
      return Shadow::null();
    case OperandKind::kConst:
      return Shadow::constant();
    case OperandKind::kValue:
      return value(operand);
    case OperandKind::kSource:
      return source(operand);
    case OperandKind::kRecipe:
      return recipe(operand.id);
    default:
      KINTSUGI_UNREACHABLE("a snapshot with an operand of kind ", int(operand.kind));
  }
}

// A source from before the exit keeps its number. The result of the step whose guard block failed was not
// resolved there, so the side trace's first block resolves it.
Shadow Restorer::source(const Operand& operand) {
  const guard::SourceNode& node = start_.parent.document.sources.nodes[operand.id];
  if (node.block < rec_.tables.blocks.root()) {
    keepIdentity(object(operand), operand.id);
    return rec_.guards.adoptSource(operand.id, object(operand));
  }
  KINTSUGI_CHECK(node.kind == guard::SourceKind::kValue, "$", operand.id, " is not resolved at the exit");
  return fromStep(static_cast<ir::ValueId>(node.index), object(operand));
}

Shadow Restorer::fromStep(ir::ValueId value, PyObject* object) {
  const Shadow shadow = rec_.guards.readSource(guard::SourceKind::kValue, ir::kNone, nullptr, value, object);
  rec_.tables.finalized.add(object);
  rec_.tables.finalizers.track(object, shadow);
  return shadow;
}

// A tensor or a number keeps its value. An object that a step returned or that the trace has built is read as
// a source from its value.
Shadow Restorer::value(const Operand& operand) {
  PyObject* real = object(operand);
  if (start_.parent.document.trace.values[operand.id].kind != ir::TypeKind::kObject) {
    if (torchapi::isTensor(real)) {
      keepIdentity(real, inputSource(operand.id));
      rec_.ops().restore(real, operand.id);
      rec_.tables.restored.addTensor(operand.id, real);
    }
    return Shadow::value(operand.id);
  }
  return fromStep(operand.id, real);
}

// Two sources used to be different objects and are the same object now. What the recorder learns about the
// object only holds while they are the same, so a guard says that.
void Restorer::keepIdentity(PyObject* object, ir::SourceId source) {
  if (source == ir::kNone || isPlain(object)) return;
  const auto [known, fresh] = sourceOf_.try_emplace(object, source);
  if (!fresh && known->second != source) {
    rec_.guards.guard(guard::GuardKind::kSame, source, ir::kNone, 0, known->second);
  }
}

// The source that the value was read from; kNone if the value was computed.
ir::SourceId Restorer::inputSource(ir::ValueId value) const {
  const ir::Trace& trace = start_.parent.document.trace;
  const auto input = std::find_if(trace.code.begin(), trace.code.end(), [&](const ir::Instruction& ins) {
    return ins.op == ir::Op::kInput && ins.firstResult == value;
  });
  return input != trace.code.end() ? trace.operandsOf(*input)[0].id : ir::kNone;
}

Shadow Restorer::recipe(ir::RecipeId id) {
  auto [it, fresh] = made_.try_emplace(id, Shadow::null());
  if (!fresh) return it->second;
  const Recipe& from = start_.parent.document.trace.recipes[id];
  PyObject* real = start_.recipes.at(id).get();
  Shadow made = rec_.objects.newVirtual(kindOf(from, real), real);
  made_[id] = made;
  fill(made, from, real);
  return made;
}

VirtualKind Restorer::kindOf(const Recipe& recipe, PyObject* object) const {
  switch (recipe.kind) {
    case RecipeKind::kTuple:
    case RecipeKind::kNamedTuple:
      return VirtualKind::kTuple;
    case RecipeKind::kList:
      return VirtualKind::kList;
    case RecipeKind::kDict:
      return VirtualKind::kDict;
    case RecipeKind::kSet:
    case RecipeKind::kFrozenSet:
      return VirtualKind::kSet;
    case RecipeKind::kSlice:
      return VirtualKind::kSlice;
    case RecipeKind::kInstance:
    case RecipeKind::kDictInstance:
      return VirtualKind::kInstance;
    case RecipeKind::kCell:
      return VirtualKind::kCell;
    case RecipeKind::kFunction:
      return VirtualKind::kFunction;
    case RecipeKind::kMethod:
      return VirtualKind::kMethod;
    case RecipeKind::kSequenceIterator:
    case RecipeKind::kIterator:
      return VirtualKind::kIterator;
    case RecipeKind::kGenerator:
      return VirtualKind::kGenerator;
    case RecipeKind::kCallEx:
      return pyapi::isA(object, pyapi::Known::kDeque) ? VirtualKind::kDeque : VirtualKind::kPartial;
    case RecipeKind::kException:
      return VirtualKind::kException;
    case RecipeKind::kTraceback:
      return VirtualKind::kTraceback;
    case RecipeKind::kClass:
      return VirtualKind::kClass;
    case RecipeKind::kCall:
      break;
  }
  PyTypeObject* type = Py_TYPE(object);
  if (type == &PyEnum_Type) return VirtualKind::kEnumerate;
  if (type == &PyZip_Type) return VirtualKind::kZip;
  if (type == &PyMap_Type || type == &PyFilter_Type) return VirtualKind::kMap;
  if (type == &PySuper_Type) return VirtualKind::kSuper;
  if (viewIndex(type) >= 0) return VirtualKind::kDictView;
  if (PyDict_CheckExact(object)) return VirtualKind::kDict;  // `vars(instance)`
  if (PyList_Check(object)) return VirtualKind::kList;       // an instance of a subclass of list
  return VirtualKind::kOpaque;
}

void Restorer::fillIterator(Shadow made, const Recipe& recipe) {
  const bool sequence = recipe.kind == RecipeKind::kSequenceIterator;
  const bool placed = recipe.parts[1].i == pyapi::kPlaced;
  rec_.objects.virtualOf(made).index = recipe.parts[placed ? 3 : 1].i;
  const Operand& container = recipe.parts[sequence ? 0 : 2];
  Shadow shadow = this->shadow(container);
  Virtual& v = rec_.objects.virtualOf(made);
  v.parts = {shadow};
  v.partObjects.push_back(pyapi::newRef(this->object(container)));
  v.sized = placed;
  v.unpinned = true;
}

void Restorer::fill(Shadow made, const Recipe& recipe, PyObject* object) {
  switch (rec_.objects.virtualOf(made).kind) {
    case VirtualKind::kList:
      if (recipe.kind == RecipeKind::kCall)
        return fillParts(made, Recipe(start_.parent.document.trace.recipes[recipe.parts[1].id]), 0, false);
      [[fallthrough]];
    case VirtualKind::kTuple:
    case VirtualKind::kSlice:
    case VirtualKind::kCell:
      return fillParts(made, recipe, 0, false);
    case VirtualKind::kMethod:
      return fillParts(made, recipe, 0, true);
    case VirtualKind::kDict:
      if (recipe.kind == RecipeKind::kCall) return fillSharedDict(made, recipe);
      return fillPairs(made, recipe, 0, recipe.parts.size(), false);
    case VirtualKind::kInstance: {
      size_t first = 0;
      if (recipe.type == ir::kNone) {
        restoreClass(recipe.parts[0]);
        first = 1;
      }
      if (recipe.kind == RecipeKind::kDictInstance) {
        first = 1 + 2 * static_cast<size_t>(recipe.parts[0].i);
        fillPairs(made, recipe, 1, first, false);
      }
      return fillPairs(made, recipe, first, recipe.parts.size(), true);
    }
    case VirtualKind::kFunction:
      return fillFunction(made, recipe);
    case VirtualKind::kClass:
      return fillClass(made, recipe);
    case VirtualKind::kPartial:
    case VirtualKind::kDeque:
      return fillCalled(made, recipe, object);
    case VirtualKind::kIterator:
      return fillIterator(made, recipe);
    case VirtualKind::kEnumerate: {
      Recipe inner = recipe;
      rec_.objects.virtualOf(made).index = inner.parts.back().i;
      inner.parts.pop_back();
      return fillParts(made, inner, 1, true);
    }
    case VirtualKind::kDictView: {
      rec_.objects.virtualOf(made).index = viewIndex(Py_TYPE(object));
      return fillParts(made, recipe, 1, true);
    }
    // The recipe of a strict zip calls another callable (recipes.cc).
    case VirtualKind::kZip: {
      PyObject* callable = this->object(recipe.parts[0]);
      rec_.objects.virtualOf(made).index = callable != reinterpret_cast<PyObject*>(&PyZip_Type);
      return fillParts(made, recipe, 1, true);
    }
    case VirtualKind::kGenerator:
      return fillGenerator(made, recipe);
    case VirtualKind::kException:
      return fillException(made, recipe);
    case VirtualKind::kTraceback:
      shadow(recipe.parts[0]);
      return;
    case VirtualKind::kSet:
      for (const Operand& operand : std::vector<Operand>(recipe.parts)) {
        Shadow part = shadow(operand);
        if (part.isConst()) continue;
        rec_.objects.virtualOf(made).parts.push_back(part);
        rec_.objects.virtualOf(made).partObjects.push_back(pyapi::newRef(this->object(operand)));
      }
      return;
    default:
      return fillParts(made, recipe, 1, true);
  }
}

// Restores an object that is made by a call with arguments and keywords.
void Restorer::fillCalled(Shadow made, const Recipe& recipe, PyObject* object) {
  const auto& recipes = start_.parent.document.trace.recipes;
  const Recipe args = recipes[recipe.parts[1].id];
  const Recipe keywords = recipes[recipe.parts[2].id];
  if (rec_.objects.virtualOf(made).kind == VirtualKind::kDeque) {
    fillParts(made, recipes[args.parts[0].id], 0, false);
    rec_.objects.virtualOf(made).index = keywords.parts.empty() ? 0 : keywords.parts[1].i + 1;
    return;
  }
  fillParts(made, args, 0, true);
  fillPairs(made, keywords, 0, keywords.parts.size(), false);
  pyapi::Ref<> dict = pyapi::steal(PyObject_GetAttrString(object, "keywords"));
  if (!dict) {  // a getter has no `keywords`; the recipe says what it was made with
    PyErr_Clear();
    dict = pyapi::steal(PyDict_New());
    for (size_t i = 0; i + 1 < keywords.parts.size(); i += 2)
      PyDict_SetItem(dict.get(), this->object(keywords.parts[i]), this->object(keywords.parts[i + 1]));
  }
  rec_.objects.virtualOf(made).partObjects.push_back(std::move(dict));
}

void Restorer::fillParts(Shadow made, const Recipe& recipe, size_t first, bool withObjects) {
  for (size_t i = first; i < recipe.parts.size(); ++i) {
    Shadow part = shadow(recipe.parts[i]);
    Virtual& v = rec_.objects.virtualOf(made);  // shadow() may have added virtual objects
    v.parts.push_back(part);
    if (withObjects) v.partObjects.push_back(pyapi::newRef(object(recipe.parts[i])));
  }
}

void Restorer::fillPairs(Shadow made, const Recipe& recipe, size_t first, size_t end, bool attributes) {
  for (size_t i = first; i + 1 < end; i += 2) {
    Shadow part = shadow(recipe.parts[i + 1]);
    Virtual& v = rec_.objects.virtualOf(made);
    PyObject* key = object(recipe.parts[i]);
    attributes ? rec_.objects.setAttrShadow(v, key, part) : rec_.objects.setEntry(v, key, part);
  }
}

// Parts of the recipe: code, globals, name, qualname, defaults, kwdefaults, closure, annotations (or the
// function that makes them); perhaps module, doc, dict.
void Restorer::fillFunction(Shadow made, const Recipe& recipe) {
  for (size_t i = 4; i < 6; ++i) {
    Shadow part = shadow(recipe.parts[i]);
    Virtual& v = rec_.objects.virtualOf(made);
    v.parts.push_back(part);
    v.partObjects.push_back(pyapi::newRef(object(recipe.parts[i])));
  }
  if (recipe.parts[6].kind == OperandKind::kRecipe) {
    fillParts(made, start_.parent.document.trace.recipes[recipe.parts[6].id], 0, false);
  }
  static PyObject* annotations = PyUnicode_InternFromString("__annotations__");
  static PyObject* annotate = PyUnicode_InternFromString("__annotate__");
  if (recipe.parts[7].kind != OperandKind::kNone) {
    Shadow part = shadow(recipe.parts[7]);
    const bool later = !PyDict_Check(object(recipe.parts[7]));
    rec_.objects.setEntry(rec_.objects.virtualOf(made), later ? annotate : annotations, part);
  }
  if (recipe.parts.size() > 10) {
    const Recipe& attributes = start_.parent.document.trace.recipes[recipe.parts[10].id];
    fillPairs(made, attributes, 0, attributes.parts.size(), true);
    rec_.objects.virtualOf(made).renamed = true;
  }
}

// Parts of the recipe: name, bases, cell, number of entries at first, then pairs of name and value.
void Restorer::fillClass(Shadow made, const Recipe& recipe) {
  rec_.tables.virtuals.addClass(made);
  const Recipe bases = start_.parent.document.trace.recipes[recipe.parts[1].id];
  // The class is registered before its entries are looked at, because entries may refer to the class.
  pyapi::Ref<> space = pyapi::steal(PyDict_New());
  for (size_t i = 4; i + 1 < recipe.parts.size(); i += 2)
    PyDict_SetItem(space.get(), object(recipe.parts[i]), object(recipe.parts[i + 1]));
  {
    Virtual& v = rec_.objects.virtualOf(made);
    v.index = recipe.parts[3].i;
    v.parts.assign(bases.parts.size() + 1, Shadow::null());
    for (const Operand& base : bases.parts) v.partObjects.push_back(pyapi::newRef(object(base)));
    v.partObjects.push_back(pyapi::newRef(object(recipe.parts[2])));
    v.partObjects.push_back(std::move(space));
    v.partObjects.emplace_back();
  }
  for (size_t i = 0; i < bases.parts.size(); ++i) {
    Shadow base = shadow(bases.parts[i]);
    rec_.objects.virtualOf(made).parts[i] = base;
  }
  Shadow cell = shadow(recipe.parts[2]);
  rec_.objects.virtualOf(made).parts.back() = cell;
  fillPairs(made, recipe, 4, recipe.parts.size(), false);
}

// Restores the class of an instance. It is a recipe of the trace, or it was built before the exit.
void Restorer::restoreClass(const Operand& operand) {
  if (operand.kind == OperandKind::kRecipe) {
    shadow(operand);
    return;
  }
  PyObject* cls = object(operand);
  if (virtualClassOf(rec_, reinterpret_cast<PyTypeObject*>(cls)) != nullptr) return;
  Shadow made = rec_.objects.newVirtual(VirtualKind::kClass, cls);
  Virtual& v = rec_.objects.virtualOf(made);
  v.value = operand.id;
  v.exposed = true;
  v.parts.push_back(Shadow::null());
  v.partObjects.resize(3);
  rec_.tables.virtuals.addClass(made);
}

// Parts of the recipe: n, n arguments, cause, context, suppress, traceback, then pairs of name and value.
void Restorer::fillException(Shadow made, const Recipe& recipe) {
  Recipe inner = recipe;
  const size_t count = static_cast<size_t>(recipe.parts[0].i), first = count + 1;
  inner.parts.resize(first);
  fillParts(made, inner, 1, true);
  for (size_t i : {first, first + 1, first + 3}) {
    const Operand& link = recipe.parts[i];
    const bool outside = link.kind == OperandKind::kRecipe &&
                         start_.parent.document.trace.recipes[link.id].kind == RecipeKind::kCall;
    outside ? setOutsideContext(rec_, made) : (void)shadow(link);
  }
  PyObject* dict = pyapi::partsOf(rec_.objects.virtualOf(made).object.get()).dict;
  for (size_t i = first + 4; i + 1 < recipe.parts.size(); i += 2) {  // a name may also be a field of C code
    if (dict == nullptr || PyDict_Contains(dict, object(recipe.parts[i])) != 1) continue;
    Shadow part = shadow(recipe.parts[i + 1]);
    rec_.objects.setAttrShadow(rec_.objects.virtualOf(made), object(recipe.parts[i]), part);
  }
}

// Parts of the recipe: the function vars(), and the instance.
void Restorer::fillSharedDict(Shadow made, const Recipe& recipe) {
  fillParts(made, recipe, 1, true);
  Virtual& v = rec_.objects.virtualOf(made);
  if (!v.parts[0].isVirtual()) {  // the instance was built, and others hold it
    v.kind = VirtualKind::kOpaque;
    return;
  }
  v.shared = true;
  v.entries = rec_.objects.virtualOf(v.parts[0]).attrs.clone();
}

// Parts of the recipe: function, position, number of locals, locals, stack.
void Restorer::fillGenerator(Shadow made, const Recipe& recipe) {
  static Activation started{};  // the frame has begun, but its activation is over
  Shadow function = shadow(recipe.parts[0]);
  rec_.objects.virtualOf(made).parts = {function};
  rec_.objects.virtualOf(made).partObjects.push_back(pyapi::newRef(object(recipe.parts[0])));
  if (recipe.parts[1].i < ir::kNotStarted) return;  // it is running, or finished
  auto frame = std::make_unique<ShadowFrame>();
  frame->function = pyapi::newRef(object(recipe.parts[0]));
  frame->functionShadow = function;
  frame->code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(frame->function.get()));
  if (recipe.parts[1].i >= 0) frame->act = &started;
  auto locals = static_cast<size_t>(recipe.parts[2].i);
  for (size_t i = 3; i < recipe.parts.size(); ++i) {
    (i < 3 + locals ? frame->locals : frame->stack).push_back(shadow(recipe.parts[i]));
  }
  const bool waits = frame->act != nullptr;
  rec_.objects.virtualOf(made).frame = std::move(frame);
  if (waits) rec_.lifetimes.watch(made.virtualId());
}

}  // namespace kintsugi::capture
