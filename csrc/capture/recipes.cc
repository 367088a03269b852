#include "capture/recipes.h"

#include <algorithm>

#include "capture/makers.h"
#include "capture/plain_objects.h"
#include "capture/special_methods.h"
#include "pyapi/containers.h"
#include "pyapi/frame.h"
#include "pyapi/functions.h"
#include "pyapi/generator.h"
#include "pyapi/imports.h"
#include "pyapi/iterator_state.h"
#include "pyapi/lazy.h"
#include "pyapi/object_layout.h"
#include "pyapi/slices.h"
#include "pyapi/stack_limit.h"
#include "pyapi/types.h"

namespace kintsugi::capture {

using ir::Operand;
using ir::Recipe;
using ir::RecipeKind;

bool Recipes::operandOf(Shadow shadow, PyObject* object, Operand& out) {
  switch (shadow.kind()) {
    case ShadowKind::kNull:
      out = Operand::null();
      return true;
    case ShadowKind::kConst:
      if (Shadow made = virtuals_.shadowOf(shadow, object); made.isVirtual())
        return operandOf(made, object, out);
      out = Operand::constant(constId(object));
      return true;
    case ShadowKind::kSource:
      out = Operand::source(shadow.sourceId());
      return true;
    case ShadowKind::kValue:
      out = Operand::value(shadow.valueId());
      return true;
    case ShadowKind::kVirtual: {
      Virtual& v = virtuals_[shadow];
      if (v.value != ir::kNone) {
        out = Operand::value(v.value);
        return true;
      }
      auto recipe = of(shadow.virtualId());
      if (!recipe) return false;
      if (named_ != nullptr) named_->push_back({shadow.virtualId(), *recipe});
      out = Operand::recipe(*recipe);
      return true;
    }
  }
  return false;
}

std::optional<ir::RecipeId> Recipes::of(uint32_t virtualId) {
  Virtual& v = virtuals_.at(virtualId);
  if (isCurrent({virtualId, v.recipe})) return v.recipe;
  if (pyapi::stackIsScarce()) return std::nullopt;  // objects that are nested very deep
  if (v.building) {                                 // a cycle, as a recursive inner function and its cell
    const bool looped =
        v.kind == VirtualKind::kCell ||
        (!virtuals_.classes().empty() && (v.kind == VirtualKind::kClass || v.kind == VirtualKind::kFunction));
    if (!looped) return std::nullopt;
    ++loops_;
    if (v.recipe == ir::kNone || v.recipeEpoch != virtuals_.epoch()) {
      const RecipeKind kind = v.kind == VirtualKind::kCell    ? RecipeKind::kCell
                              : v.kind == VirtualKind::kClass ? RecipeKind::kClass
                                                              : RecipeKind::kFunction;
      v.recipe = trace_.addRecipe({kind, ir::kNone, {}});
      v.recipeEpoch = virtuals_.epoch();
    }
    return v.recipe;
  }
  v.building = true;
  Recipe recipe;
  std::vector<NamedRecipe> named;
  const size_t loops = loops_;
  bool ok = false;
  {
    const Naming naming(*this, named);
    ok = recipeParts(v, recipe);
  }
  v.building = false;
  if (!ok) return std::nullopt;
  v.looped = loops_ != loops;
  if (v.recipe != ir::kNone && v.recipeEpoch == virtuals_.epoch()) {  // a part refers to the object itself
    trace_.recipes[v.recipe] = std::move(recipe);
    return v.recipe;
  }
  return keepRecipe(v, std::move(recipe), std::move(named));
}

namespace {

bool isSame(const Recipe& a, const Recipe& b) {
  const auto same = [](const Operand& x, const Operand& y) {
    return x.kind == y.kind && x.count == y.count && x.i == y.i;
  };
  return a.kind == b.kind && a.type == b.type && std::ranges::equal(a.parts, b.parts, same);
}

}  // namespace

// The recipe of an object that has just been described: the one that it has, if that says the same.
ir::RecipeId Recipes::keepRecipe(Virtual& v, Recipe recipe, std::vector<NamedRecipe> named) {
  if (v.looped || v.recipe == ir::kNone || !isSame(trace_.recipes[v.recipe], recipe))
    v.recipe = add(std::move(recipe));
  v.named = std::move(named);
  v.recipeEpoch = virtuals_.epoch();
  return v.recipe;
}

// Those that were found valid in this epoch are not looked at again. What is part of a cycle is described
// anew, as its parts can't be told valid one by one.
bool Recipes::isCurrent(const NamedRecipe& named) {
  Virtual& v = virtuals_.at(named.virtualId);
  if (v.recipe == ir::kNone || v.recipe != named.recipe || v.building) return false;
  const uint64_t made = v.recipeEpoch;
  if (made == virtuals_.epoch()) return true;
  if (v.looped || v.changed > made || virtuals_.lastGeneralChange() > made || pyapi::stackIsScarce())
    return false;
  for (const NamedRecipe& part : v.named) {
    if (isCurrent(part)) continue;
    v.changed = virtuals_.epoch();  // so that nobody looks for the changed part again
    return false;
  }
  v.recipeEpoch = virtuals_.epoch();
  return true;
}

ir::RecipeId Recipes::add(Recipe recipe) {
  bool runs = recipe.kind == RecipeKind::kGenerator && recipe.parts[1].i == ir::kRunning;
  for (const Operand& part : recipe.parts) {
    runs = runs || (part.kind == ir::OperandKind::kRecipe && running_.contains(part.id));
  }
  partCount_ += recipe.parts.size();
  ir::RecipeId id = trace_.addRecipe(std::move(recipe));
  if (runs) running_.insert(id);
  return id;
}

namespace {

struct PartList {
  Recipes& recipes;
  Recipe& recipe;
  bool ok = true;
  void add(Shadow shadow, PyObject* object) {
    Operand operand;
    ok = ok && recipes.operandOf(shadow, object, operand);
    recipe.parts.push_back(operand);
  }
  void constant(PyObject* object) { recipe.parts.push_back(Operand::constant(recipes.constId(object))); }
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
// iterator of a tuple or list, which needs no call. The container of a reversed tuple is a tuple of the items
// in the iterator's order.
PyObject* iteratorMaker(PyObject* iterator, PyObject* container) {
  if (Py_TYPE(iterator) == &PyReversed_Type) return polyfill("turned_tuple");
  if (Py_TYPE(iterator) == &PyListRevIter_Type) return reinterpret_cast<PyObject*>(&PyReversed_Type);
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
bool generatorParts(Recipes& recipes, Virtual& v, Recipe& recipe) {
  auto* generator = pyapi::asGenerator(v.object.get());
  PartList list{recipes, recipe};
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
bool sharedDict(Recipes& recipes, Virtual& v, Recipe& recipe) {
  PartList list{recipes, recipe};
  recipe.kind = RecipeKind::kCall;
  list.constant(PyDict_GetItemString(PyEval_GetBuiltins(), "vars"));
  list.add(v.parts[0], v.partObjects[0].get());
  return list.ok;
}

// The parts of an instance that the trace has made: its slots and its dict.
bool instanceParts(Recipes& recipes, Virtual& v, Recipe& recipe) {
  PartList list{recipes, recipe};
  PyObject* object = v.object.get();
  recipe.kind = RecipeKind::kInstance;
  if (recipes.virtuals().classOf(Py_TYPE(object)) != nullptr) {
    list.add(Shadow::constant(), reinterpret_cast<PyObject*>(Py_TYPE(object)));
  } else {
    recipe.type = recipes.constId(reinterpret_cast<PyObject*>(Py_TYPE(object)));
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
bool classParts(Recipes& recipes, Virtual& v, Recipe& recipe) {
  PartList list{recipes, recipe};
  recipe.kind = RecipeKind::kClass;
  list.constant(pyapi::heapTypeName(v.object.get()));
  Recipe tuple;
  tuple.kind = RecipeKind::kTuple;
  PartList bases{recipes, tuple};
  const size_t count = v.parts.size() - 1;
  for (size_t i = 0; i < count; ++i) bases.add(v.parts[i], v.partObjects[i].get());
  if (!bases.ok) return false;
  recipe.parts.push_back(Operand::recipe(recipes.add(std::move(tuple))));
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

bool functionParts(Recipes& recipes, Virtual& v, Recipe& recipe) {
  PartList list{recipes, recipe};
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
    PartList cells{recipes, closure};
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(pyapi::closureOf(function)); ++i) {
      cells.add(v.parts[2 + i], PyTuple_GET_ITEM(pyapi::closureOf(function), i));
    }
    if (!cells.ok) return false;
    recipe.parts.push_back(Operand::recipe(recipes.add(std::move(closure))));
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
  PartList pairs{recipes, dict};
  if (attributes > 0) pairs.dict(v.attrs.get(), pyapi::attributesOf(function));
  recipe.parts.push_back(Operand::recipe(recipes.add(std::move(dict))));
  return list.ok && pairs.ok;
}

// `functools.partial(function, *args, **keywords)`, or `operator.itemgetter(*args)` and its like.
bool partialParts(Recipes& recipes, Virtual& v, Recipe& recipe) {
  PartList list{recipes, recipe};
  recipe.kind = RecipeKind::kCallEx;
  list.constant(makerOf(v.object.get()));
  Recipe args, keywords;
  args.kind = RecipeKind::kTuple;
  keywords.kind = RecipeKind::kDict;
  PartList positional{recipes, args}, named{recipes, keywords};
  for (size_t i = 0; i < v.parts.size(); ++i) positional.add(v.parts[i], v.partObjects[i].get());
  named.dict(v.entries.get(), v.partObjects.back().get());
  recipe.parts.push_back(Operand::recipe(recipes.add(std::move(args))));
  recipe.parts.push_back(Operand::recipe(recipes.add(std::move(keywords))));
  return list.ok && positional.ok && named.ok;
}

// A list; for an instance of a subclass of list without attributes, a call of the class with a list.
bool listRecipe(Recipes& recipes, Virtual& v, Recipe& recipe) {
  PyObject* object = v.object.get();
  if (!PyList_Check(object) || v.parts.size() != static_cast<size_t>(PyList_GET_SIZE(object))) return false;
  Recipe items;
  items.kind = RecipeKind::kList;
  PartList list{recipes, items};
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
  recipe.parts = {Operand::constant(recipes.constId(reinterpret_cast<PyObject*>(Py_TYPE(object)))),
                  Operand::recipe(recipes.add(std::move(items)))};
  return true;
}

// `deque([...], maxlen=n)`.
bool dequeParts(Recipes& recipes, Virtual& v, Recipe& recipe) {
  PyObject* object = v.object.get();
  if (static_cast<Py_ssize_t>(v.parts.size()) != PyObject_Size(object)) return false;
  PartList list{recipes, recipe};
  recipe.kind = RecipeKind::kCallEx;
  list.constant(reinterpret_cast<PyObject*>(Py_TYPE(object)));
  Recipe items, args, keywords;
  items.kind = RecipeKind::kList;
  args.kind = RecipeKind::kTuple;
  keywords.kind = RecipeKind::kDict;
  PartList each{recipes, items};
  for (size_t i = 0; i < v.parts.size(); ++i) {
    pyapi::Ref<> item = pyapi::steal(PySequence_GetItem(object, static_cast<Py_ssize_t>(i)));
    if (!item) return false;
    each.add(v.parts[i], item.get());  // the deque keeps it alive
  }
  if (!each.ok) return false;
  args.parts.push_back(Operand::recipe(recipes.add(std::move(items))));
  if (v.index != 0) {
    keywords.parts.push_back(recipes.trace().stringOperand("maxlen"));
    keywords.parts.push_back(Operand::integer(v.index - 1));
  }
  recipe.parts.push_back(Operand::recipe(recipes.add(std::move(args))));
  recipe.parts.push_back(Operand::recipe(recipes.add(std::move(keywords))));
  return true;
}

// See pyapi::membersAsAdded(). Null also where hashing may be Python code.
pyapi::Ref<> membersAsAdded(PyObject* set) {
  PyObject* key = nullptr;
  for (Py_ssize_t at = 0; pyapi::nextSetItem(set, &at, &key);) {
    if (!isPlainDeep(key)) return {};
  }
  return pyapi::membersAsAdded(set);
}

// True for a container of the trace, and for a view of such a dict.
bool isMade(Recipes& recipes, Shadow container) {
  if (container.isVirtual() && recipes.virtuals()[container].kind == VirtualKind::kDictView)
    return recipes.virtuals()[container].parts[0].isVirtual();
  return container.isVirtual();
}

// An iterator of a container, as far as the real one is. One that has ended is made without its container,
// which may have grown since.
bool placedIterator(Recipes& recipes, Virtual& v, Recipe& recipe) {
  PartList list{recipes, recipe};
  PyObject* object = v.object.get();
  PyObject* container = v.partObjects[0].get();
  const auto state = pyapi::iteratorState(object, container);
  recipe.kind = RecipeKind::kIterator;
  if (state && state->ended) {
    const char* kind = pyapi::kindOfEnded(object);
    PyObject* maker = polyfill("ended");
    const pyapi::Ref<> name = pyapi::steal(kind != nullptr ? PyUnicode_InternFromString(kind) : nullptr);
    if (!name || maker == nullptr) return false;
    list.constant(maker);
    recipe.parts.push_back(Operand::integer(0));
    list.constant(name.get());
    return true;
  }
  PyObject* maker = iteratorMaker(object, container);
  const int64_t place = state ? state->place : v.index;
  if (maker == nullptr) {
    recipe.kind = RecipeKind::kSequenceIterator;
    list.add(v.parts[0], container);
    recipe.parts.push_back(Operand::integer(place));
    return list.ok;
  }
  const bool newSet = v.parts[0].isVirtual() && PyAnySet_CheckExact(container) && place != 0;
  if ((state && !state->movable) || (newSet && !membersAsAdded(container))) return false;
  // Code that is not looked into may change the size of an older dict or set, so the recipe names the size
  // that it had.
  const bool named = v.sized && pyapi::asksForSize(object) && !isMade(recipes, v.parts[0]);
  const bool plain = !state || (state->plain && !named);
  list.constant(maker);
  recipe.parts.push_back(Operand::integer(plain ? place : pyapi::kPlaced));
  list.add(v.parts[0], container);
  if (!plain) {
    for (const int64_t number : {place, state->left, state->expected})
      recipe.parts.push_back(Operand::integer(number));
  }
  return list.ok;
}

bool iteratorParts(Recipes& recipes, Virtual& v, Recipe& recipe) {
  PartList list{recipes, recipe};
  PyObject* object = v.object.get();
  switch (v.kind) {
    case VirtualKind::kGenerator:
      return generatorParts(recipes, v, recipe);
    case VirtualKind::kDictView: {
      static const char* names[] = {"keys", "values", "items"};
      recipe.kind = RecipeKind::kCall;
      pyapi::Ref<> method = pyapi::steal(PyObject_GetAttrString(
          reinterpret_cast<PyObject*>(Py_TYPE(v.partObjects[0].get())), names[v.index]));
      list.constant(method.get());
      list.add(v.parts[0], v.partObjects[0].get());
      break;
    }
    case VirtualKind::kIterator:
      return placedIterator(recipes, v, recipe);
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

bool Recipes::recipeParts(Virtual& v, Recipe& recipe) {
  PartList list{*this, recipe};
  PyObject* object = v.object.get();
  switch (v.kind) {
    case VirtualKind::kTuple:
      recipe.kind = tupleKind(object);
      if (recipe.kind == RecipeKind::kNamedTuple)
        recipe.type = constId(reinterpret_cast<PyObject*>(Py_TYPE(object)));
      for (size_t i = 0; i < v.parts.size(); ++i) list.add(v.parts[i], PyTuple_GET_ITEM(object, i));
      return list.ok;
    case VirtualKind::kList:
      return listRecipe(*this, v, recipe);
    case VirtualKind::kDict:
      if (v.shared) return sharedDict(*this, v, recipe);
      if (!PyDict_CheckExact(object) || PyDict_GET_SIZE(object) != PyDict_GET_SIZE(v.entries.get()))
        return false;
      recipe.kind = RecipeKind::kDict;
      list.dict(v.entries.get(), object);
      return list.ok;
    case VirtualKind::kSet: {
      recipe.kind = PyFrozenSet_Check(object) ? RecipeKind::kFrozenSet : RecipeKind::kSet;
      pyapi::Ref<> members = v.parts.empty() ? membersAsAdded(object) : pyapi::Ref<>();
      if (!members) members = pyapi::steal(PySequence_Tuple(object));
      for (Py_ssize_t i = 0; members && i < PyTuple_GET_SIZE(members.get()); ++i) {
        PyObject* key = PyTuple_GET_ITEM(members.get(), i);
        size_t member = 0;
        while (member < v.parts.size() && v.partObjects[member].get() != key) ++member;
        member < v.parts.size() ? list.add(v.parts[member], key) : list.constant(key);
      }
      return list.ok && members;
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
      return instanceParts(*this, v, recipe);
    case VirtualKind::kCell:
      recipe.kind = RecipeKind::kCell;
      list.add(v.parts[0], PyCell_GET(object));
      return list.ok;
    case VirtualKind::kFunction:
      return functionParts(*this, v, recipe);
    case VirtualKind::kPartial:
      return partialParts(*this, v, recipe);
    case VirtualKind::kDeque:
      return dequeParts(*this, v, recipe);
    case VirtualKind::kClass:
      return classParts(*this, v, recipe);
    case VirtualKind::kException:
      return exceptionParts(v, recipe);
    case VirtualKind::kTraceback:
      return tracebackParts(v, recipe);
    case VirtualKind::kMethod:
      recipe.kind = RecipeKind::kMethod;
      if (PyMethod_Check(object) &&
          pyapi::isMethodInC(v.partObjects[0].get())) {  // `MethodType(list.append, a)`
        recipe.kind = RecipeKind::kCall;
        list.constant(reinterpret_cast<PyObject*>(&PyMethod_Type));
      }
      list.add(v.parts[0], v.partObjects[0].get());
      list.add(v.parts[1], v.partObjects[1].get());
      return list.ok;
    case VirtualKind::kRange:
      if (Py_TYPE(object) == &PyRange_Type) return false;  // a range is a constant
      [[fallthrough]];
    default:
      return iteratorParts(*this, v, recipe);
  }
}

}  // namespace kintsugi::capture
