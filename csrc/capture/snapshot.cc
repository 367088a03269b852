// Snapshots: frame states, recipes and operands.
//
// A state says, for each live slot, how to get its object again: a constant, a source, a value, or the recipe
// of a virtual object as it is at that moment. Outer frames do not change while an inner frame runs. So all
// states of the inner frame share one parent state, which was made when the call was entered.
#include <algorithm>

#include "capture/attributes.h"
#include "capture/calls/getters.h"
#include "capture/calls/model.h"
#include "capture/classes.h"
#include "capture/exceptions.h"
#include "capture/stand_ins.h"
#include "pyapi/containers.h"
#include "pyapi/frame.h"
#include "pyapi/functions.h"
#include "pyapi/generator.h"
#include "pyapi/imports.h"
#include "pyapi/lazy.h"
#include "pyapi/object_layout.h"
#include "pyapi/slices.h"
#include "pyapi/types.h"
#include "pyapi/waiting_stack.h"
#include "support/check.h"

namespace kintsugi::capture {

using ir::Operand;
using ir::Recipe;
using ir::RecipeKind;

bool Snapshots::operandOf(Shadow shadow, PyObject* object, Operand& out) {
  switch (shadow.kind()) {
    case ShadowKind::kNull:
      out = Operand::null();
      return true;
    case ShadowKind::kConst:
      if (Shadow made = virtualShadowOf(rec_, shadow, object); made.isVirtual())
        return operandOf(made, object, out);
      out = Operand::constant(rec_.guards.constId(object));
      return true;
    case ShadowKind::kSource:
      out = Operand::source(shadow.sourceId());
      return true;
    case ShadowKind::kValue:
      out = Operand::value(shadow.valueId());
      return true;
    case ShadowKind::kVirtual: {
      Virtual& v = rec_.objects.virtualOf(shadow);
      if (v.value != ir::kNone) {
        out = Operand::value(v.value);
        return true;
      }
      auto recipe = recipeOf(shadow.virtualId());
      if (!recipe) return false;
      out = Operand::recipe(*recipe);
      return true;
    }
  }
  return false;
}

std::optional<ir::RecipeId> Snapshots::recipeOf(uint32_t virtualId) {
  Virtual& v = virtuals_.at(virtualId);
  if (v.recipe != ir::kNone && v.recipeEpoch == virtuals_.epoch()) return v.recipe;
  if (v.building) {  // a cycle, as a recursive inner function and its cell
    const bool looped =
        v.kind == VirtualKind::kCell ||
        (!virtuals_.classes().empty() && (v.kind == VirtualKind::kClass || v.kind == VirtualKind::kFunction));
    if (!looped) return std::nullopt;
    if (v.recipe == ir::kNone || v.recipeEpoch != virtuals_.epoch()) {
      const RecipeKind kind = v.kind == VirtualKind::kCell    ? RecipeKind::kCell
                              : v.kind == VirtualKind::kClass ? RecipeKind::kClass
                                                              : RecipeKind::kFunction;
      v.recipe = document_.trace.addRecipe({kind, ir::kNone, {}});
      v.recipeEpoch = virtuals_.epoch();
    }
    return v.recipe;
  }
  v.building = true;
  Recipe recipe;
  bool ok = recipeParts(v, recipe);
  v.building = false;
  if (!ok) return std::nullopt;
  if (v.recipe != ir::kNone && v.recipeEpoch == virtuals_.epoch()) {  // a part refers to the object itself
    document_.trace.recipes[v.recipe] = std::move(recipe);
    return v.recipe;
  }
  v.recipe = addRecipe(std::move(recipe));
  v.recipeEpoch = virtuals_.epoch();
  return v.recipe;
}

ir::RecipeId Snapshots::addRecipe(Recipe recipe) {
  bool runs = recipe.kind == RecipeKind::kGenerator && recipe.parts[1].i == ir::kRunning;
  for (const Operand& part : recipe.parts) {
    runs = runs || (part.kind == ir::OperandKind::kRecipe && running_.contains(part.id));
  }
  partCount_ += recipe.parts.size();
  ir::RecipeId id = document_.trace.addRecipe(std::move(recipe));
  if (runs) running_.insert(id);
  return id;
}

namespace {

struct PartList {
  RecordContext& rec;
  Recipe& recipe;
  bool ok = true;
  void add(Shadow shadow, PyObject* object) {
    Operand operand;
    ok = ok && rec.snapshots.operandOf(shadow, object, operand);
    recipe.parts.push_back(operand);
  }
  void constant(PyObject* object) { recipe.parts.push_back(Operand::constant(rec.guards.constId(object))); }
  void dict(PyObject* shadows, PyObject* real) {
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (ok && PyDict_Next(real, &at, &key, &value)) {
      PyObject* encoded = PyDict_GetItemWithError(shadows, key);
      if (encoded == nullptr) {
        PyErr_Clear();
        ok = false;
        return;
      }
      constant(key);
      add(decodeShadow(encoded), value);
    }
  }
};

// The callable that makes an iterator of the same type from its container; borrowed. Null for a plain
// iterator of a tuple or list, which needs no call. The container of a reversed() iterator is a tuple of the
// items in the iterator's order.
PyObject* iteratorMaker(PyObject* iterator, PyObject* container) {
  if (Py_TYPE(iterator) == &PyReversed_Type) return polyfill("turned_tuple");
  if (Py_TYPE(iterator) == &PyListRevIter_Type) return polyfill("turned_list");
  if (PyTuple_CheckExact(container) || PyList_CheckExact(container)) return nullptr;
  return PyDict_GetItemString(PyEval_GetBuiltins(), "iter");
}

// `functools.partial(zip, strict=True)`; borrowed, null if it can't be made.
PyObject* strictZip() {
  static constinit pyapi::Lazy<PyObject*> madeSlot;
  PyObject* made = madeSlot.get([] {
    pyapi::Ref<> functools = pyapi::steal(pyapi::importModule("functools"));
    pyapi::Ref<> partial =
        functools ? pyapi::steal(PyObject_GetAttrString(functools.get(), "partial")) : pyapi::Ref<>();
    pyapi::Ref<> keywords = pyapi::steal(Py_BuildValue("{sO}", "strict", Py_True));
    pyapi::Ref<> args = pyapi::steal(PyTuple_Pack(1, &PyZip_Type));
    PyObject* object =
        partial && keywords && args ? PyObject_Call(partial.get(), args.get(), keywords.get()) : nullptr;
    if (object == nullptr) PyErr_Clear();
    return object;
  });
  return made;
}

RecipeKind tupleKind(PyObject* object) {
  return PyTuple_CheckExact(object) ? RecipeKind::kTuple : RecipeKind::kNamedTuple;
}

// A generator is described by its function and its frame. If it is running, the snapshot already has the
// frame.
bool generatorParts(RecordContext& rec, Virtual& v, Recipe& recipe) {
  auto* generator = pyapi::asGenerator(v.object.get());
  PartList list{rec, recipe};
  recipe.kind = RecipeKind::kGenerator;
  list.add(v.parts[0], v.partObjects[0].get());
  const pyapi::GeneratorState state = pyapi::stateOf(generator);
  const bool running = state == pyapi::GeneratorState::kRunning;
  if (running || state == pyapi::GeneratorState::kFinished) {
    recipe.parts.push_back(Operand::integer(running ? ir::kRunning : ir::kFinished));
    recipe.parts.push_back(Operand::integer(0));
    return list.ok;
  }
  if (!v.frame || !v.frame->handled.isNull()) return false;
  auto* raw = pyapi::frameOf(generator);
  bool started = v.frame->act != nullptr;
  if (state != (started ? pyapi::GeneratorState::kSuspended : pyapi::GeneratorState::kCreated)) return false;
  recipe.parts.push_back(Operand::integer(started ? pyapi::resumeUnit(raw) - 1 : ir::kNotStarted));
  recipe.parts.push_back(Operand::integer(static_cast<int64_t>(v.frame->locals.size())));
  for (size_t i = 0; i < v.frame->locals.size(); ++i) {
    PyObject* object = pyapi::localAt(raw, static_cast<int>(i));
    // Before the generator has started, the shadow of a cell variable is that of the cell's content, a
    // parameter.
    if (!started && object != nullptr && PyCell_Check(object)) object = PyCell_GET(object);
    list.add(object == nullptr ? Shadow::null() : v.frame->locals[i], object);
  }
  for (size_t i = 0; i < v.frame->stack.size(); ++i) {
    PyObject* object = pyapi::stackAt(raw, static_cast<int>(i));
    list.add(object == nullptr ? Shadow::null() : v.frame->stack[i], object);
  }
  return list.ok;
}

// The dict of an instance is made by `vars(instance)`.
bool sharedDict(RecordContext& rec, Virtual& v, Recipe& recipe) {
  PartList list{rec, recipe};
  recipe.kind = RecipeKind::kCall;
  list.constant(PyDict_GetItemString(PyEval_GetBuiltins(), "vars"));
  list.add(v.parts[0], v.partObjects[0].get());
  return list.ok;
}

// The parts of an instance that the trace has made: its slots and its dict.
bool instanceParts(RecordContext& rec, Virtual& v, Recipe& recipe) {
  PartList list{rec, recipe};
  PyObject* object = v.object.get();
  recipe.kind = RecipeKind::kInstance;
  if (virtualClassOf(rec, Py_TYPE(object)) != nullptr) {
    list.add(Shadow::constant(), reinterpret_cast<PyObject*>(Py_TYPE(object)));
  } else {
    recipe.type = rec.guards.constId(reinterpret_cast<PyObject*>(Py_TYPE(object)));
  }
  if (PyDict_Check(object)) {
    recipe.kind = RecipeKind::kDictInstance;
    recipe.parts.push_back(Operand::integer(PyDict_GET_SIZE(object)));
    list.dict(v.entries.get(), object);
  } else if (PyDict_GET_SIZE(v.entries.get()) != 0) {
    return false;
  }
  PyObject** dict = pyapi::materializedDictSlot(object);
  pyapi::Ref<> attrs = pyapi::steal(dict || PyType_HasFeature(Py_TYPE(object), Py_TPFLAGS_MANAGED_DICT)
                                        ? PyObject_GenericGetDict(object, nullptr)
                                        : nullptr);
  PyErr_Clear();
  Py_ssize_t slots = 0;
  PyObject *name, *encoded;
  Py_ssize_t at = 0;
  while (list.ok && PyDict_Next(v.attrs.get(), &at, &name, &encoded)) {
    PyObject* descriptor = pyapi::lookUpInType(Py_TYPE(object), name);
    if (descriptor == nullptr || !isSlot(descriptor)) continue;
    pyapi::Ref<> real = pyapi::steal(PyObject_GenericGetAttr(object, name));
    PyErr_Clear();
    if (!real) return false;
    list.constant(name);
    list.add(decodeShadow(encoded), real.get());
    ++slots;
  }
  Py_ssize_t others = attrs ? PyDict_GET_SIZE(attrs.get()) : 0;
  if (others + slots != PyDict_GET_SIZE(v.attrs.get())) return false;
  if (attrs) list.dict(v.attrs.get(), attrs.get());
  return list.ok;
}

// The parts of a class that the trace has made: bases, cell, and the namespace in the order of its entries.
bool classParts(RecordContext& rec, Virtual& v, Recipe& recipe) {
  PartList list{rec, recipe};
  recipe.kind = RecipeKind::kClass;
  list.constant(pyapi::heapTypeName(v.object.get()));
  Recipe tuple;
  tuple.kind = RecipeKind::kTuple;
  PartList bases{rec, tuple};
  const size_t count = v.parts.size() - 1;
  for (size_t i = 0; i < count; ++i) bases.add(v.parts[i], v.partObjects[i].get());
  if (!bases.ok) return false;
  recipe.parts.push_back(Operand::recipe(rec.snapshots.addRecipe(std::move(tuple))));
  if (v.partObjects[count]) {
    list.add(v.parts[count], v.partObjects[count].get());
  } else {
    recipe.parts.push_back(Operand::none());
  }
  recipe.parts.push_back(Operand::integer(v.index));
  list.dict(v.entries.get(), v.partObjects[count + 1].get());
  return list.ok;
}

// The annotations of a function, or from CPython 3.14 on the function that makes them.
bool annotationPart(const Virtual& v, PartList& list) {
  PyObject* object = v.object.get();
  PyObject* made = pyapi::annotationsOf(pyapi::asFunction(object));
  PyObject* annotations = PyDict_GetItemString(v.entries.get(), "__annotations__");
  PyObject* annotate = PyDict_GetItemString(v.entries.get(), "__annotate__");
  if (annotations != nullptr && made != nullptr) {
    list.add(decodeShadow(annotations), made);
  } else if (annotate != nullptr && made == nullptr) {
    const pyapi::Ref<> maker = pyapi::steal(PyObject_GetAttrString(object, "__annotate__"));
    if (!maker) PyErr_Clear();
    if (!maker) return false;
    list.add(decodeShadow(annotate), maker.get());
  } else {
    list.recipe.parts.push_back(Operand::none());
    return annotate == nullptr;
  }
  return list.ok;
}

bool functionParts(RecordContext& rec, Virtual& v, Recipe& recipe) {
  PartList list{rec, recipe};
  auto* function = pyapi::asFunction(v.object.get());
  recipe.kind = RecipeKind::kFunction;
  list.constant(pyapi::codeObjectOf(function));
  list.constant(pyapi::globalsOf(function));
  list.constant(pyapi::nameOf(function));
  list.constant(pyapi::qualifiedNameOf(function));
  for (size_t i = 0; i < 2; ++i) {
    PyObject* real = i == 0 ? pyapi::defaultsOf(function) : pyapi::keywordDefaultsOf(function);
    if (real == nullptr) {
      recipe.parts.push_back(Operand::none());
    } else if (v.partObjects[i].get() != real) {
      return false;
    } else {
      list.add(v.parts[i], real);
    }
  }
  if (pyapi::closureOf(function) == nullptr) {
    recipe.parts.push_back(Operand::none());
  } else {
    Recipe closure;
    closure.kind = RecipeKind::kTuple;
    PartList cells{rec, closure};
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(pyapi::closureOf(function)); ++i) {
      cells.add(v.parts[2 + i], PyTuple_GET_ITEM(pyapi::closureOf(function), i));
    }
    if (!cells.ok) return false;
    recipe.parts.push_back(Operand::recipe(rec.snapshots.addRecipe(std::move(closure))));
  }
  if (!annotationPart(v, list)) return false;
  auto attributes = static_cast<Py_ssize_t>(
      pyapi::attributesOf(function) ? PyDict_GET_SIZE(pyapi::attributesOf(function)) : 0);
  if (v.exposed || attributes != PyDict_GET_SIZE(v.attrs.get())) return false;
  if (attributes == 0 && !v.renamed) return list.ok;
  list.constant(pyapi::moduleOf(function) != nullptr ? pyapi::moduleOf(function) : Py_None);
  list.constant(pyapi::docstringOf(function) != nullptr ? pyapi::docstringOf(function) : Py_None);
  Recipe dict;
  dict.kind = RecipeKind::kDict;
  PartList pairs{rec, dict};
  if (attributes > 0) pairs.dict(v.attrs.get(), pyapi::attributesOf(function));
  recipe.parts.push_back(Operand::recipe(rec.snapshots.addRecipe(std::move(dict))));
  return list.ok && pairs.ok;
}

// `functools.partial(function, *args, **keywords)`, or `operator.itemgetter(*args)` and its like.
bool partialParts(RecordContext& rec, Virtual& v, Recipe& recipe) {
  PartList list{rec, recipe};
  recipe.kind = RecipeKind::kCallEx;
  list.constant(makerOf(v.object.get()));
  Recipe args, keywords;
  args.kind = RecipeKind::kTuple;
  keywords.kind = RecipeKind::kDict;
  PartList positional{rec, args}, named{rec, keywords};
  for (size_t i = 0; i < v.parts.size(); ++i) positional.add(v.parts[i], v.partObjects[i].get());
  named.dict(v.entries.get(), v.partObjects.back().get());
  recipe.parts.push_back(Operand::recipe(rec.snapshots.addRecipe(std::move(args))));
  recipe.parts.push_back(Operand::recipe(rec.snapshots.addRecipe(std::move(keywords))));
  return list.ok && positional.ok && named.ok;
}

// A list; for an instance of a subclass of list without attributes, a call of the class with a list.
bool listRecipe(RecordContext& rec, Virtual& v, Recipe& recipe) {
  PyObject* object = v.object.get();
  if (!PyList_Check(object) || v.parts.size() != static_cast<size_t>(PyList_GET_SIZE(object))) return false;
  Recipe items;
  items.kind = RecipeKind::kList;
  PartList list{rec, items};
  for (size_t i = 0; i < v.parts.size(); ++i) list.add(v.parts[i], PyList_GET_ITEM(object, i));
  if (!list.ok) return false;
  if (PyList_CheckExact(object)) {
    recipe = std::move(items);
    return true;
  }
  pyapi::Ref<> dict = pyapi::steal(PyObject_GenericGetDict(object, nullptr));
  PyErr_Clear();
  if (dict && PyDict_GET_SIZE(dict.get()) != 0) return false;
  recipe.kind = RecipeKind::kCall;
  recipe.parts = {Operand::constant(rec.guards.constId(reinterpret_cast<PyObject*>(Py_TYPE(object)))),
                  Operand::recipe(rec.snapshots.addRecipe(std::move(items)))};
  return true;
}

// `deque([...], maxlen=n)`.
bool dequeParts(RecordContext& rec, Virtual& v, Recipe& recipe) {
  PyObject* object = v.object.get();
  if (static_cast<Py_ssize_t>(v.parts.size()) != PyObject_Size(object)) return false;
  PartList list{rec, recipe};
  recipe.kind = RecipeKind::kCallEx;
  list.constant(reinterpret_cast<PyObject*>(Py_TYPE(object)));
  Recipe items, args, keywords;
  items.kind = RecipeKind::kList;
  args.kind = RecipeKind::kTuple;
  keywords.kind = RecipeKind::kDict;
  PartList each{rec, items};
  for (size_t i = 0; i < v.parts.size(); ++i) {
    pyapi::Ref<> item = pyapi::steal(PySequence_GetItem(object, static_cast<Py_ssize_t>(i)));
    if (!item) return false;
    each.add(v.parts[i], item.get());  // the deque keeps it alive
  }
  if (!each.ok) return false;
  args.parts.push_back(Operand::recipe(rec.snapshots.addRecipe(std::move(items))));
  if (v.index != 0) {
    keywords.parts.push_back(rec.trace().stringOperand("maxlen"));
    keywords.parts.push_back(Operand::integer(v.index - 1));
  }
  recipe.parts.push_back(Operand::recipe(rec.snapshots.addRecipe(std::move(args))));
  recipe.parts.push_back(Operand::recipe(rec.snapshots.addRecipe(std::move(keywords))));
  return true;
}

bool iteratorParts(RecordContext& rec, Virtual& v, Recipe& recipe) {
  PartList list{rec, recipe};
  PyObject* object = v.object.get();
  switch (v.kind) {
    case VirtualKind::kGenerator:
      return generatorParts(rec, v, recipe);
    case VirtualKind::kDictView: {
      static const char* names[] = {"keys", "values", "items"};
      recipe.kind = RecipeKind::kCall;
      pyapi::Ref<> method = pyapi::steal(PyObject_GetAttrString(
          reinterpret_cast<PyObject*>(Py_TYPE(v.partObjects[0].get())), names[v.index]));
      list.constant(method.get());
      list.add(v.parts[0], v.partObjects[0].get());
      break;
    }
    case VirtualKind::kIterator: {
      PyObject* container = v.partObjects[0].get();
      PyObject* maker = iteratorMaker(object, container);
      recipe.kind = maker == nullptr ? RecipeKind::kSequenceIterator : RecipeKind::kIterator;
      if (maker == nullptr) {
        list.add(v.parts[0], container);
        recipe.parts.push_back(Operand::integer(v.index));
      } else {
        list.constant(maker);
        recipe.parts.push_back(Operand::integer(v.index));
        list.add(v.parts[0], container);
      }
      break;
    }
    case VirtualKind::kEnumerate:
      recipe.kind = RecipeKind::kCall;
      list.constant(reinterpret_cast<PyObject*>(Py_TYPE(object)));
      list.add(v.parts[0], v.partObjects[0].get());
      recipe.parts.push_back(Operand::integer(v.index));
      break;
    case VirtualKind::kZip:
      if (v.index != 0) {  // strict, but recipes have no keyword arguments
        PyObject* strict = strictZip();
        if (strict == nullptr) return false;
        recipe.kind = RecipeKind::kCall;
        list.constant(strict);
        for (size_t i = 0; i < v.parts.size(); ++i) list.add(v.parts[i], v.partObjects[i].get());
        break;
      }
      [[fallthrough]];
    case VirtualKind::kMap:
    case VirtualKind::kSuper:
      recipe.kind = RecipeKind::kCall;
      list.constant(reinterpret_cast<PyObject*>(Py_TYPE(object)));
      for (size_t i = 0; i < v.parts.size(); ++i) list.add(v.parts[i], v.partObjects[i].get());
      break;
    default:
      return false;
  }
  return list.ok;
}

}  // namespace

bool Snapshots::recipeParts(Virtual& v, Recipe& recipe) {
  PartList list{rec_, recipe};
  PyObject* object = v.object.get();
  switch (v.kind) {
    case VirtualKind::kTuple:
      recipe.kind = tupleKind(object);
      if (recipe.kind == RecipeKind::kNamedTuple)
        recipe.type = rec_.guards.constId(reinterpret_cast<PyObject*>(Py_TYPE(object)));
      for (size_t i = 0; i < v.parts.size(); ++i) list.add(v.parts[i], PyTuple_GET_ITEM(object, i));
      return list.ok;
    case VirtualKind::kList:
      return listRecipe(rec_, v, recipe);
    case VirtualKind::kDict:
      if (v.shared) return sharedDict(rec_, v, recipe);
      if (!PyDict_CheckExact(object) || PyDict_GET_SIZE(object) != PyDict_GET_SIZE(v.entries.get()))
        return false;
      recipe.kind = RecipeKind::kDict;
      list.dict(v.entries.get(), object);
      return list.ok;
    case VirtualKind::kSet: {
      recipe.kind = PyFrozenSet_Check(object) ? RecipeKind::kFrozenSet : RecipeKind::kSet;
      PyObject* key;
      Py_ssize_t at = 0;
      while (pyapi::nextSetItem(object, &at, &key)) {
        size_t member = 0;
        while (member < v.parts.size() && v.partObjects[member].get() != key) ++member;
        member < v.parts.size() ? list.add(v.parts[member], key) : list.constant(key);
      }
      return list.ok;
    }
    case VirtualKind::kSlice: {
      recipe.kind = RecipeKind::kSlice;
      const pyapi::SliceParts slice = pyapi::partsOfSlice(object);
      list.add(v.parts[0], slice.start);
      list.add(v.parts[1], slice.stop);
      list.add(v.parts[2], slice.step);
      return list.ok;
    }
    case VirtualKind::kInstance:
      return instanceParts(rec_, v, recipe);
    case VirtualKind::kCell:
      recipe.kind = RecipeKind::kCell;
      list.add(v.parts[0], PyCell_GET(object));
      return list.ok;
    case VirtualKind::kFunction:
      return functionParts(rec_, v, recipe);
    case VirtualKind::kPartial:
      return partialParts(rec_, v, recipe);
    case VirtualKind::kDeque:
      return dequeParts(rec_, v, recipe);
    case VirtualKind::kClass:
      return classParts(rec_, v, recipe);
    case VirtualKind::kException:
      return exceptionParts(rec_, v, recipe);
    case VirtualKind::kTraceback:
      return tracebackParts(rec_, v, recipe);
    case VirtualKind::kMethod:
      recipe.kind = RecipeKind::kMethod;
      list.add(v.parts[0], v.partObjects[0].get());
      list.add(v.parts[1], v.partObjects[1].get());
      return list.ok;
    case VirtualKind::kRange:
      if (Py_TYPE(object) == &PyRange_Type) return false;  // a range is a constant
      [[fallthrough]];
    default:
      return iteratorParts(rec_, v, recipe);
  }
}

ir::StateId Snapshots::makeState(ShadowFrame& frame, int32_t pc, size_t popped,
                                 const std::vector<Shadow>& extra, ir::ReturnAction action,
                                 Operand replacement) {
  ir::FrameState state;
  state.parent = callerState(frame);
  state.code = rec_.guards.constId(reinterpret_cast<PyObject*>(frame.code));
  state.pc = pc;
  state.action = action;
  state.replacement = replacement;
  state.rebuildable =
      frame.rebuildable && (state.parent == ir::kNone || document_.trace.states[state.parent].rebuildable);
  Activation& act = *frame.act;
  PyObject** base = pyapi::stackBase(act.frame);
  std::vector<Operand> localOperands(frame.locals.size(), Operand::null());
  std::vector<Operand> stackOperands;
  auto put = [&](Shadow shadow, PyObject* object, Operand& out) {
    if (object == nullptr) shadow = Shadow::null();
    if (!operandOf(shadow, object, out)) {
      out = Operand::null();
      state.rebuildable = false;
    }
  };
  if (pyapi::ownedByGenerator(act.frame)) {
    auto* generator = reinterpret_cast<PyObject*>(pyapi::generatorOf(act.frame));
    if (rec_.callees.runningGenerator(act) == nullptr) {
      state.rebuildable = false;
      put(frame.functionShadow, frame.function.get(), state.function);
    } else {
      put(Shadow::virt(virtuals_.find(generator).value()), generator, state.function);
    }
  } else {
    put(frame.functionShadow, frame.function.get(), state.function);
  }
  for (size_t i = 0; i < frame.locals.size(); ++i)
    put(frame.locals[i], pyapi::localAt(act.frame, static_cast<int>(i)), localOperands[i]);
  const StackBefore* before = instruction_.stackBefore();
  const bool half =
      before != nullptr && before->frame == &frame && pc == instruction_.instr()->start && popped == 0;
  const std::vector<Shadow>& stack = half ? before->shadows : frame.stack;
  const auto stackObject = [&](size_t i) {
    if (act.sp == nullptr) return pyapi::waitingStackAt(act.frame, static_cast<int>(i));
    return half ? before->objects[i].get() : base[i];
  };
  size_t depth = stack.size() - popped;
  if (!frame.handled.isNull()) {
    put(frame.handled, frame.handledObject.get(), state.handled);
    state.handledOver = static_cast<uint16_t>(frame.handledOver);
    if (frame.handledOver >= depth) {
      state.handled = Operand::null();
      state.rebuildable = false;
    }
  }
  stackOperands.resize(depth + extra.size(), Operand::null());
  for (size_t i = 0; i < depth; ++i) put(stack[i], stackObject(i), stackOperands[i]);
  for (size_t i = 0; i < extra.size(); ++i) {
    if (extra[i].isConst() || !operandOf(extra[i], nullptr, stackOperands[depth + i])) {
      state.rebuildable = false;
    }
  }
  return document_.trace.addState(state, localOperands, stackOperands);
}

ir::StateId Snapshots::stateBefore() {
  if (instruction_.state() != ir::kNone) return instruction_.state();
  KINTSUGI_CHECK(instruction_.isUntouched(frames_.current()->stack.size()),
                 "a snapshot after the instruction has run");
  instruction_.setState(makeState(*frames_.current(), instruction_.instr()->start, 0, {},
                                  ir::ReturnAction::kPush, Operand::null()));
  return instruction_.state();
}

CallSite Snapshots::callSite(const Instr& instr, size_t popped, std::vector<Shadow> extra,
                             ir::ReturnAction action) {
  CallSite site;
  site.instr = &instr;
  site.popped = popped;
  site.extra = std::move(extra);
  site.action = action;
  return site;
}

ir::StateId Snapshots::callerState(ShadowFrame& frame) {
  if (frame.caller == nullptr) return ir::kNone;
  CallSite& site = frame.site;
  if (site.state != ir::kNone && site.epoch == virtuals_.epoch()) return site.state;
  Operand replacement = Operand::null();
  KINTSUGI_CHECK(site.instr != nullptr || !frame.rebuildable, "a frame without a call site");
  if (ir::hasReplacement(site.action) &&
      !operandOf(site.replacement, site.replacementObject.get(), replacement)) {
    frame.rebuildable = false;
  }
  int32_t pc = frame.caller->act->pc;
  if (site.instr != nullptr) pc = site.again ? site.instr->start : site.instr->next;
  size_t popped = site.popped;
  if (site.instr == nullptr) {
    // C code runs the frame (as next() does with a generator), so the caller's instruction can't be finished
    // by an exit. Only an exception can go on in the caller, with the part of the stack that its handler
    // keeps.
    const pyapi::Handler handler = pyapi::findHandler(frame.caller->code, pc - 1);
    const size_t kept = handler.target < 0 ? 0 : static_cast<size_t>(handler.depth);
    popped = frame.caller->stack.size() - std::min(kept, frame.caller->stack.size());
  }
  site.state = makeState(*frame.caller, pc, popped, site.extra, site.action, replacement);
  site.epoch = virtuals_.epoch();
  return site.state;
}

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

namespace {

// The class that has to be built first because the object is its `__class__` cell or holds that cell; else
// null.
Shadow classAround(RecordContext& rec, Virtual& v) {
  const auto unbuilt = [&](Shadow cell) {
    Virtual* cls = classOfCell(rec, cell);
    return cls != nullptr && cls->value == ir::kNone && !cls->building ? rec.objects.virtualOf(cell).parts[0]
                                                                       : Shadow::null();
  };
  if (v.kind == VirtualKind::kCell) {
    auto self = rec.objects.knownObject(v.object.get());
    return self ? unbuilt(*self) : Shadow::null();
  }
  if (v.kind != VirtualKind::kFunction) return Shadow::null();
  for (size_t i = 2; i < v.parts.size(); ++i) {
    if (Shadow cls = unbuilt(v.parts[i]); cls.isVirtual()) return cls;
  }
  return Shadow::null();
}

// The cell of a class that is about to be built, without content: type.__new__ fills it.
bool escapeCell(RecordContext& rec, Virtual& cls) {
  if (!cls.parts.back().isVirtual()) return true;
  Virtual& cell = rec.objects.virtualOf(cls.parts.back());
  if (cell.value != ir::kNone) return true;
  const ir::StateId snap = rec.snapshots.stateBefore();
  const ir::RecipeId empty = rec.snapshots.addRecipe({RecipeKind::kCell, ir::kNone, {Operand::null()}});
  const size_t at =
      rec.steps.emit(ir::Op::kBuild, {Operand::recipe(empty)}, {{ir::TypeKind::kObject, ir::kNone}}, snap);
  cell.value = rec.trace().code[at].firstResult;
  rec.objects.noteChange();
  return rec.live();
}

// What escapes with a virtual object.
std::vector<std::pair<Shadow, PyObject*>> escapingParts(RecordContext& rec, Virtual& v, PyObject* object) {
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
      if (part.isVirtual()) parts.emplace_back(part, rec.objects.virtualOf(part).object.get());
    }
  } else if (v.kind == VirtualKind::kGenerator || v.kind == VirtualKind::kDeque) {
    std::vector<Shadow> slots = v.kind == VirtualKind::kDeque ? v.parts : std::vector<Shadow>{};
    if (v.frame) {
      slots = v.frame->locals;
      slots.insert(slots.end(), v.frame->stack.begin(), v.frame->stack.end());
      slots.push_back(v.frame->functionShadow);
    }
    for (Shadow slot : slots) {
      if (slot.isVirtual()) parts.emplace_back(slot, rec.objects.virtualOf(slot).object.get());
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
        if (auto known = rec.objects.knownObject(linked)) parts.emplace_back(*known, linked);
      }
    }
    for (PyObject* shadows : {v.entries.get(), v.attrs.get()}) {
      PyObject *key, *encoded;
      Py_ssize_t at = 0;
      while (shadows && PyDict_Next(shadows, &at, &key, &encoded)) {
        Shadow part = decodeShadow(encoded);
        if (part.isVirtual()) parts.emplace_back(part, rec.objects.virtualOf(part).object.get());
      }
    }
  }
  if (virtualClassOf(rec, Py_TYPE(object)) != nullptr) {
    auto* type = reinterpret_cast<PyObject*>(Py_TYPE(object));
    parts.emplace_back(virtualShadowOf(rec, Shadow::constant(), type), type);
  }
  return parts;
}

}  // namespace

bool Snapshots::escape(Shadow& shadow, PyObject* object) {
  if (shadow.isValue() && !torchapi::isTensor(object)) return true;
  if (!shadow.isVirtual()) return true;
  Virtual& v = rec_.objects.virtualOf(shadow);
  if (v.value != ir::kNone) return true;
  if (isStandIn(v)) {
    rec_.abort(diag::Code::KTG0302, {pyapi::typeNameOf(object)});
    return false;
  }
  if (v.building) {  // a cycle, as a recursive inner function and its cell
    rec_.abort(diag::Code::KTG0302, {pyapi::typeNameOf(object)});
    return false;
  }
  if (Shadow cls = classAround(rec_, v); cls.isVirtual()) {  // building the class builds this object too
    if (!escape(cls, rec_.objects.virtualOf(cls).object.get())) return false;
    if (v.value != ir::kNone) return true;
  }
  const EscapeDepth depth;
  // The state has to name the recipe of the whole object, which can't be made while parts are being built.
  stateBefore();
  if (v.kind == VirtualKind::kClass && !escapeCell(rec_, v)) return false;
  // Parts escape first, so that each mutable part is one object for everybody who sees it.
  std::vector<std::pair<Shadow, PyObject*>> parts = escapingParts(rec_, v, object);
  v.building = true;
  for (auto& [part, real] : parts) {
    part = virtualShadowOf(rec_, part, real);
    if (part.isVirtual() && !escape(part, real)) return v.building = false;
  }
  v.building = false;
  auto recipe = recipeOf(shadow.virtualId());
  if (!recipe) {
    rec_.abort(diag::Code::KTG0302, {pyapi::typeNameOf(object)});
    return false;
  }
  ir::StateId snap = stateBefore();
  size_t at =
      rec_.steps.emit(ir::Op::kBuild, {Operand::recipe(*recipe)}, {{ir::TypeKind::kObject, ir::kNone}}, snap);
  v.value = document_.trace.code[at].firstResult;
  if (v.kind == VirtualKind::kClass) noteVersion(rec_, v);
  if (isConsumed(v)) {  // its new owner may move it on
    v.kind = VirtualKind::kOpaque;
    v.frame.reset();
  }
  virtuals_.noteChange();
  if (depth.value == 1 && instruction_.isUntouched(frames_.current()->stack.size())) {
    instruction_.forgetState();  // later snapshots have to name the object that was built
    stateBefore();
  }
  return true;
}

}  // namespace kintsugi::capture
