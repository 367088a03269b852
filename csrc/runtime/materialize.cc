#include "runtime/materialize.h"

#include "pyapi/classes.h"
#include "pyapi/code.h"
#include "pyapi/exception_state.h"
#include "pyapi/frame.h"
#include "pyapi/functions.h"
#include "pyapi/generator.h"
#include "pyapi/iterator_state.h"
#include "pyapi/lazy.h"
#include "pyapi/text.h"
#include "pyapi/types.h"
#include "runtime/compiled_trace.h"
#include "support/check.h"
#include "support/fault.h"

namespace kintsugi::runtime {

using ir::Operand;
using ir::OperandKind;
using ir::Recipe;
using ir::RecipeKind;
using pyapi::Ref;

bool Materializer::get(const Operand& operand, Ref<>& out) {
  switch (operand.kind) {
    case OperandKind::kNull:
      out.reset();
      return true;
    case OperandKind::kNone:
      out = pyapi::newRef(Py_None);
      return true;
    case OperandKind::kValue:
      out = boxed(operand.id);
      break;
    case OperandKind::kSource:
      out = pyapi::newRef(sourceObject(operand.id));
      break;
    case OperandKind::kConst:
      out = recording_.consts[operand.id].clone();
      break;
    case OperandKind::kRecipe:
      out = recipe(operand.id);
      break;
    case OperandKind::kInt:
      out = pyapi::steal(PyLong_FromLongLong(operand.i));
      break;
    case OperandKind::kFloat:
      out = pyapi::steal(PyFloat_FromDouble(operand.f));
      break;
    case OperandKind::kBool:
      out = pyapi::newRef(operand.i != 0 ? Py_True : Py_False);
      break;
    case OperandKind::kStr:
      out = pyapi::decoded(recording_.document.trace.strings[operand.id]);
      break;
    case OperandKind::kComplex: {
      const auto& [re, im] = recording_.document.trace.complexes[operand.id];
      out = pyapi::steal(PyComplex_FromDoubles(re, im));
      break;
    }
    case OperandKind::kList: {
      Recipe list;
      const auto elements = recording_.document.trace.listOf(operand);
      list.parts.assign(elements.begin(), elements.end());
      out = buildList(list);
      break;
    }
    case OperandKind::kDtype:
    case OperandKind::kDevice:
    case OperandKind::kLayout:
    case OperandKind::kMemoryFormat:
      KINTSUGI_UNREACHABLE("an operand of the dispatcher used as a Python object");
  }
  return static_cast<bool>(out);
}

pyapi::Ref<> Materializer::boxed(ir::ValueId id) {
  const torchapi::Value& value = run_.values[id];
  if (value.kind != torchapi::ValueKind::kFloat && value.kind != torchapi::ValueKind::kInt)
    return pyapi::steal(torchapi::box(value));
  if (const ir::SourceId argument = run_.numberArguments[id]; argument != ir::kNone)
    return pyapi::newRef(run_.slots[argument]);
  const auto found = run_.numbers->find(id);
  if (found != run_.numbers->end()) return pyapi::newRef(found->second);
  pyapi::Ref<> made = pyapi::steal(torchapi::box(value));
  if (made) run_.numbers->emplace(id, Py_NewRef(made.get()));
  return made;
}

// If a guard block fails, its snapshot may name the step's result by a source that the block has not resolved
// yet. Then the object is taken from the value.
PyObject* Materializer::sourceObject(ir::SourceId source) const {
  const guard::SourceNode& node = recording_.document.sources.nodes[source];
  PyObject* object = node.kind == guard::SourceKind::kValue ? run_.objects[node.index] : nullptr;
  if (object == nullptr) {
    object = run_.slots[source];
  }
  KINTSUGI_CHECK(object != nullptr, "source $", source, " was not resolved");
  return object;
}

Ref<> Materializer::object(const Operand& operand) {
  faultPoint("materialize");
  Ref<> out;
  if (get(operand, out) && !out) {
    PyErr_SetString(PyExc_SystemError, "kintsugi: an empty slot was used as an object");
  }
  return out;
}

Ref<> Materializer::recipe(ir::RecipeId id) {
  for (const auto& [known, object] : made_) {
    if (known == id) {
      return object.clone();
    }
  }
  const Recipe& from = recording_.document.trace.recipes[id];
  // What a cell holds may refer to the cell: it is filled when everything around it has been made, so that an
  // object with a function that refers to the object is made once.
  if (from.kind == RecipeKind::kCell) {
    Ref<> cell = pyapi::steal(PyCell_New(nullptr));
    made_.emplace_back(id, cell.clone());
    if (from.parts.empty()) {
      return cell;
    }
    waiting_.emplace_back(cell.clone(), from.parts[0]);
    return making_ > 0 || fillCells() ? std::move(cell) : nullptr;
  }
  ++making_;
  Ref<> object = from.kind == RecipeKind::kClass ? buildClass(id, from) : build(from);
  --making_;
  if (object && from.kind != RecipeKind::kClass) {
    made_.emplace_back(id, object.clone());
  }
  return object && making_ == 0 && !fillCells() ? nullptr : std::move(object);
}

// Fills cells whose contents were still being made when the cell was.
bool Materializer::fillCells() {
  while (!waiting_.empty()) {
    auto [cell, operand] = std::move(waiting_.back());
    waiting_.pop_back();
    Ref<> content;
    if (!get(operand, content) || PyCell_Set(cell.get(), content.get()) < 0) {
      return false;
    }
  }
  return true;
}

Ref<> Materializer::build(const Recipe& recipe) {
  switch (recipe.kind) {
    case RecipeKind::kTuple:
      return buildTuple(recipe, 0);
    case RecipeKind::kList:
      return buildList(recipe);
    case RecipeKind::kDict:
      return buildDict(recipe);
    case RecipeKind::kSet:
      return buildSet(recipe, false);
    case RecipeKind::kFrozenSet:
      return buildSet(recipe, true);
    case RecipeKind::kSlice:
      return buildSlice(recipe);
    case RecipeKind::kInstance:
      return buildInstance(recipe);
    case RecipeKind::kDictInstance:
      return buildDictInstance(recipe);
    case RecipeKind::kNamedTuple:
      return buildNamedTuple(recipe);
    case RecipeKind::kCell:
      return buildCell(recipe);
    case RecipeKind::kFunction:
      return buildFunction(recipe);
    case RecipeKind::kMethod:
      return buildMethod(recipe);
    case RecipeKind::kSequenceIterator:
      return buildSequenceIterator(recipe);
    case RecipeKind::kIterator:
      return buildIterator(recipe);
    case RecipeKind::kCall:
      return buildCall(recipe);
    case RecipeKind::kGenerator:
      return buildGenerator(recipe);
    case RecipeKind::kCallEx:
      return buildCallEx(recipe);
    case RecipeKind::kException:
      return buildException(recipe);
    case RecipeKind::kTraceback:
      return buildTraceback(recipe);
    case RecipeKind::kClass:
      KINTSUGI_UNREACHABLE("a class has an identity of its own");
  }
  KINTSUGI_UNREACHABLE("recipe kind");
}

Ref<> Materializer::buildTuple(const Recipe& recipe, size_t first) {
  Ref<> tuple = pyapi::steal(PyTuple_New(static_cast<Py_ssize_t>(recipe.parts.size() - first)));
  for (size_t k = first; tuple && k < recipe.parts.size(); ++k) {
    Ref<> part = object(recipe.parts[k]);
    if (!part) {
      return {};
    }
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(k - first), part.release());
  }
  return tuple;
}

Ref<> Materializer::buildList(const Recipe& recipe) {
  Ref<> list = pyapi::steal(PyList_New(static_cast<Py_ssize_t>(recipe.parts.size())));
  for (size_t k = 0; list && k < recipe.parts.size(); ++k) {
    Ref<> part = object(recipe.parts[k]);
    if (!part) {
      return {};
    }
    PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(k), part.release());
  }
  return list;
}

Ref<> Materializer::buildDict(const Recipe& recipe) {
  Ref<> dict = pyapi::steal(PyDict_New());
  for (size_t k = 0; dict && k + 1 < recipe.parts.size(); k += 2) {
    Ref<> key = object(recipe.parts[k]);
    Ref<> value = key ? object(recipe.parts[k + 1]) : nullptr;
    if (!value || PyDict_SetItem(dict.get(), key.get(), value.get()) < 0) {
      return {};
    }
  }
  return dict;
}

Ref<> Materializer::buildSet(const Recipe& recipe, bool frozen) {
  Ref<> tuple = buildTuple(recipe, 0);
  if (!tuple) {
    return {};
  }
  return pyapi::steal(frozen ? PyFrozenSet_New(tuple.get()) : PySet_New(tuple.get()));
}

Ref<> Materializer::buildSlice(const Recipe& recipe) {
  KINTSUGI_CHECK(recipe.parts.size() == 3, "a slice has three parts");
  Ref<> start = object(recipe.parts[0]);
  Ref<> stop = start ? object(recipe.parts[1]) : nullptr;
  Ref<> step = stop ? object(recipe.parts[2]) : nullptr;
  return step ? pyapi::steal(PySlice_New(start.get(), stop.get(), step.get())) : nullptr;
}

PyTypeObject* Materializer::typeOf(const Recipe& recipe) const {
  PyObject* type = recording_.consts[recipe.type].get();
  KINTSUGI_CHECK(PyType_Check(type), "the type of a recipe is no type");
  return reinterpret_cast<PyTypeObject*>(type);
}

bool Materializer::setAttributes(PyObject* instance, const Recipe& recipe, size_t first) {
  for (size_t k = first; k + 1 < recipe.parts.size(); k += 2) {
    Ref<> name = object(recipe.parts[k]);
    Ref<> value = name ? object(recipe.parts[k + 1]) : nullptr;
    if (!value) {
      return false;
    }
    // What was recorded is the instance dict: a `__setattr__` or a descriptor of the same name must not run
    // again. The generic setter keeps the compact form of the dict, which makes reading it faster.
    PyObject* descriptor = pyapi::lookUpInType(Py_TYPE(instance), name.get());
    int status = -1;
    if (PyType_Check(instance)) {
      status = PyObject_SetAttr(instance, name.get(), value.get());
    } else if (descriptor == nullptr || !pyapi::hasDescriptorSet(descriptor) ||
               Py_TYPE(descriptor) == &PyMemberDescr_Type) {
      status = PyObject_GenericSetAttr(instance, name.get(), value.get());
    } else {
      Ref<> dict = pyapi::steal(PyObject_GenericGetDict(instance, nullptr));
      status = dict ? PyDict_SetItem(dict.get(), name.get(), value.get()) : -1;
    }
    if (status < 0) {
      return false;
    }
  }
  return true;
}

namespace {

// The tp_new of classes that have a `__new__` in Python.
newfunc newInPython() {
  static constinit pyapi::Lazy<newfunc> foundSlot;
  const newfunc found = foundSlot.get([] {
    Ref<> cls = pyapi::steal(PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyType_Type), "s(){sO}",
                                                   "Maker", "__new__", Py_None));
    KINTSUGI_CHECK(cls, "a class can't be made");
    return pyapi::newFunctionOf(reinterpret_cast<PyTypeObject*>(cls.get()));
  });
  return found;
}

// The first C `__new__` on the way to object's. Those in Python are skipped: their code was recorded.
newfunc makerOf(PyTypeObject* type) {
  while (pyapi::newFunctionOf(type) == newInPython() && pyapi::baseOf(type) != nullptr) {
    type = pyapi::baseOf(type);
  }
  return pyapi::newFunctionOf(type);
}

}  // namespace

Ref<> Materializer::buildInstance(const Recipe& recipe) {
  const bool made = recipe.type == ir::kNone;  // by the trace
  Ref<> cls = made ? object(recipe.parts.at(0)) : recording_.consts[recipe.type].clone();
  if (!cls) {
    return {};
  }
  KINTSUGI_CHECK(PyType_Check(cls.get()), "the type of a recipe is no type");
  auto* type = reinterpret_cast<PyTypeObject*>(cls.get());
  Ref<> empty = pyapi::steal(PyTuple_New(0));
  Ref<> instance = pyapi::steal(makerOf(type)(type, empty.get(), nullptr));
  return instance && setAttributes(instance.get(), recipe, made ? 1 : 0) ? std::move(instance) : nullptr;
}

Ref<> Materializer::buildDictInstance(const Recipe& recipe) {
  PyTypeObject* type = typeOf(recipe);
  Ref<> empty = pyapi::steal(PyTuple_New(0));
  Ref<> instance = pyapi::steal(makerOf(type)(type, empty.get(), nullptr));
  const size_t count = static_cast<size_t>(recipe.parts.at(0).i);
  for (size_t k = 0; instance && k < count; ++k) {
    Ref<> key = object(recipe.parts.at(1 + 2 * k));
    Ref<> value = key ? object(recipe.parts.at(2 + 2 * k)) : nullptr;
    if (!value) {
      return {};
    }
    // Around any `__setitem__` of the class, but not around the order that an OrderedDict keeps.
    const int status = PyODict_Check(instance.get()) ? PyODict_SetItem(instance.get(), key.get(), value.get())
                                                     : PyDict_SetItem(instance.get(), key.get(), value.get());
    if (status < 0) {
      return {};
    }
  }
  return instance && setAttributes(instance.get(), recipe, 1 + 2 * count) ? std::move(instance) : nullptr;
}

Ref<> Materializer::buildNamedTuple(const Recipe& recipe) {
  PyTypeObject* type = typeOf(recipe);
  Ref<> tuple = buildTuple(recipe, 0);
  if (!tuple) {
    return {};
  }
  // Struct sequences (torch.return_types) have hidden fields and are made by calling the type; other
  // subclasses around their own `__new__`, which takes the fields one by one.
  if (PyDict_GetItemString(pyapi::dictOf(type), "n_sequence_fields") != nullptr) {
    return pyapi::steal(PyObject_CallOneArg(reinterpret_cast<PyObject*>(type), tuple.get()));
  }
  Ref<> args = pyapi::steal(PyTuple_Pack(1, tuple.get()));
  return args ? pyapi::steal(pyapi::newFunctionOf(&PyTuple_Type)(type, args.get(), nullptr)) : nullptr;
}

Ref<> Materializer::buildCell(const Recipe& recipe) {
  Ref<> content;
  if (!recipe.parts.empty() && !get(recipe.parts[0], content)) {
    return {};
  }
  return pyapi::steal(PyCell_New(content.get()));
}

namespace {

// Annotations: a dict, or from CPython 3.14 on the function that makes it when it is asked for.
bool setAnnotations(PyObject* function, PyObject* annotations) {
  if (annotations == Py_None) return true;
  return PyDict_Check(annotations) ? PyFunction_SetAnnotations(function, annotations) == 0
                                   : PyObject_SetAttrString(function, "__annotate__", annotations) == 0;
}

}  // namespace

Ref<> Materializer::buildFunction(const Recipe& recipe) {
  constexpr size_t kBasic = 8, kAll = 11;
  const size_t count = recipe.parts.size();
  KINTSUGI_CHECK(count == kBasic || count == kAll, "a function has eight or eleven parts");
  Ref<> part[kAll];
  for (size_t k = 0; k < count; ++k) {
    part[k] = object(recipe.parts[k]);
    if (!part[k]) {
      return {};
    }
  }
  enum {
    kCode,
    kGlobals,
    kName,
    kQualName,
    kDefaults,
    kKwDefaults,
    kClosure,
    kAnnotations,
    kModule,
    kDoc,
    kDict
  };
  Ref<> function = pyapi::steal(
      PyFunction_NewWithQualName(part[kCode].get(), part[kGlobals].get(), part[kQualName].get()));
  if (!function || PyObject_SetAttrString(function.get(), "__name__", part[kName].get()) < 0) {
    return {};
  }
  PyObject* f = function.get();
  const bool ok =
      (part[kDefaults].get() == Py_None || PyFunction_SetDefaults(f, part[kDefaults].get()) == 0) &&
      (part[kKwDefaults].get() == Py_None || PyFunction_SetKwDefaults(f, part[kKwDefaults].get()) == 0) &&
      (part[kClosure].get() == Py_None || PyFunction_SetClosure(f, part[kClosure].get()) == 0) &&
      setAnnotations(f, part[kAnnotations].get());
  const bool named = !ok || count == kBasic ||
                     (PyObject_SetAttrString(f, "__module__", part[kModule].get()) == 0 &&
                      PyObject_SetAttrString(f, "__doc__", part[kDoc].get()) == 0 &&
                      PyObject_SetAttrString(f, "__dict__", part[kDict].get()) == 0);
  return ok && named ? std::move(function) : nullptr;
}

Ref<> Materializer::buildMethod(const Recipe& recipe) {
  Ref<> function = object(recipe.parts.at(0));
  Ref<> self = function ? object(recipe.parts.at(1)) : nullptr;
  return self ? pyapi::steal(pyapi::bind(function.get(), self.get())) : nullptr;
}

Ref<> Materializer::buildSequenceIterator(const Recipe& recipe) {
  Ref<> container = object(recipe.parts.at(0));
  Ref<> iterator = container ? pyapi::steal(PyObject_GetIter(container.get())) : nullptr;
  pyapi::IteratorState state;
  state.place = recipe.parts.at(1).i;
  return iterator && pyapi::placeIterator(iterator.get(), state) ? std::move(iterator) : nullptr;
}

// Where there are pyapi::kPlaced items, three numbers behind the arguments say where the iterator is.
Ref<> Materializer::buildIterator(const Recipe& recipe) {
  const bool placed = recipe.parts.at(1).i == pyapi::kPlaced;
  pyapi::IteratorState state;
  Recipe without;
  if (placed) {
    KINTSUGI_CHECK(recipe.parts.size() > 5, "an iterator without a place");
    const Operand* numbers = &recipe.parts[recipe.parts.size() - 3];
    state.place = numbers[0].i;
    state.left = numbers[1].i;
    state.expected = numbers[2].i;
    without.parts.assign(recipe.parts.begin(), recipe.parts.end() - 3);
  }
  const Recipe& call = placed ? without : recipe;
  Ref<> callable = object(call.parts.at(0));
  Ref<> args = callable ? buildTuple(call, 2) : nullptr;
  Ref<> made = args ? pyapi::steal(PyObject_CallObject(callable.get(), args.get())) : nullptr;
  Ref<> iterator = made ? pyapi::steal(PyObject_GetIter(made.get())) : nullptr;
  if (iterator && placed) {
    return pyapi::placeIterator(iterator.get(), state) ? std::move(iterator) : nullptr;
  }
  for (int64_t k = 0; iterator && k < recipe.parts.at(1).i; ++k) {
    Ref<> skipped = pyapi::steal(PyIter_Next(iterator.get()));
    if (!skipped) {
      return PyErr_Occurred() != nullptr ? nullptr : std::move(iterator);
    }
  }
  return iterator;
}

// The function is called with dummy arguments, which runs it up to RETURN_GENERATOR; the frame of the object
// is then given the values and the position that it had.
Ref<> Materializer::buildGenerator(const Recipe& recipe) {
  std::vector<Ref<>> slots(recipe.parts.size() - 3);
  Ref<> function = object(recipe.parts.at(0));
  bool ok = function && PyFunction_Check(function.get());
  for (size_t k = 0; ok && k < slots.size(); ++k) {
    ok = get(recipe.parts[k + 3], slots[k]);
  }
  if (!ok) {
    return {};
  }
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function.get()));
  const int localCount = pyapi::localsPlusCount(code);
  const int64_t position = recipe.parts.at(1).i;
  const bool empty = position == ir::kRunning || position == ir::kFinished;
  KINTSUGI_CHECK(empty || recipe.parts.at(2).i == localCount, "a generator with another number of locals");
  std::vector<PyObject*> args(
      static_cast<size_t>(pyapi::argumentCount(code) + pyapi::keywordOnlyCount(code)) + 1, Py_None);
  Ref<> kwNames = pyapi::steal(pyapi::keywordOnlyNames(code));
  Ref<> made = pyapi::steal(PyObject_Vectorcall(
      function.get(), args.data(), static_cast<size_t>(pyapi::argumentCount(code)), kwNames.get()));
  if (!made || !PyGen_CheckExact(made.get())) {
    return {};
  }
  if (empty) {  // the frame that is rebuilt later fills a running one in
    Ref<> closed = position == ir::kFinished ? pyapi::steal(PyObject_CallMethod(made.get(), "close", nullptr))
                                             : pyapi::newRef(Py_None);
    return closed ? std::move(made) : nullptr;
  }
  auto* generator = pyapi::asGenerator(made.get());
  auto* frame = pyapi::frameOf(generator);
  for (int k = 0; k < localCount; ++k) {
    Ref<>& value = slots[static_cast<size_t>(k)];
    PyObject* object = pyapi::localAt(frame, k);
    if (position < 0 && object != nullptr && PyCell_Check(object)) {
      // Free variables are the function's own cells; cell variables hold the parameter.
      if (!pyapi::isFreeVariable(code, static_cast<uint32_t>(k))) {
        PyCell_Set(object, value.get());
      }
      continue;
    }
    Py_XDECREF(pyapi::exchangeLocal(frame, k, value.release()));
  }
  if (position >= 0) {
    KINTSUGI_CHECK(pyapi::stackDepth(frame) == 0, "a new generator with objects on its stack");
    for (size_t k = static_cast<size_t>(localCount); k < slots.size(); ++k) {
      pyapi::pushOn(frame, slots[k].release());
    }
    pyapi::setResumeUnit(frame, static_cast<int32_t>(position) + 1);
    pyapi::markSuspended(generator);
  }
  return made;
}

Ref<> Materializer::buildCall(const Recipe& recipe) {
  Ref<> callable = object(recipe.parts.at(0));
  Ref<> args = callable ? buildTuple(recipe, 1) : nullptr;
  return args ? pyapi::steal(PyObject_CallObject(callable.get(), args.get())) : nullptr;
}

// Skips any __init__ of the class: its code was recorded.
Ref<> Materializer::buildException(const Recipe& recipe) {
  const size_t count = static_cast<size_t>(recipe.parts.at(0).i);
  Recipe args;
  args.parts.assign(recipe.parts.begin() + 1, recipe.parts.begin() + 1 + static_cast<ptrdiff_t>(count));
  Ref<> tuple = buildTuple(args, 0);
  Ref<> exception = tuple ? pyapi::newException(typeOf(recipe), tuple.get()) : nullptr;
  enum { kCause, kContext, kSuppress, kTraceback, kAttributes };
  const size_t first = count + 1;
  Ref<> linked[kAttributes];
  for (size_t k = 0; exception && k < kAttributes; ++k) {
    if (k != kSuppress && !get(recipe.parts.at(first + k), linked[k])) {
      return {};
    }
    if (linked[k].get() == Py_None) {
      linked[k].reset();
    }
  }
  if (!exception) {
    return {};
  }
  pyapi::setLinks(exception.get(), std::move(linked[kCause]), std::move(linked[kContext]),
                  recipe.parts.at(first + kSuppress).i != 0, std::move(linked[kTraceback]));
  return setAttributes(exception.get(), recipe, first + kAttributes) ? std::move(exception) : nullptr;
}

Ref<> Materializer::buildTraceback(const Recipe& recipe) {
  Ref<> next;
  if (!get(recipe.parts.at(0), next)) {
    return {};
  }
  Ref<> code = object(recipe.parts.at(1));
  Ref<> globals = code ? object(recipe.parts.at(2)) : nullptr;
  return globals ? pyapi::newTraceback({next.get() == Py_None ? nullptr : next.get(), code.get(),
                                        globals.get(), static_cast<int32_t>(recipe.parts.at(3).i)})
                 : nullptr;
}

// Parts: name, bases, cell, number n, then name, value ... The first n entries are in the namespace that the
// class is made with. The others are set afterwards, since they may refer to the class.
Ref<> Materializer::buildClass(ir::RecipeId id, const Recipe& recipe) {
  Ref<> name = object(recipe.parts.at(0));
  Ref<> bases = name ? object(recipe.parts.at(1)) : nullptr;
  Ref<> cell = bases ? object(recipe.parts.at(2)) : nullptr;  // type.__new__ fills it
  Ref<> space = cell ? pyapi::steal(PyDict_New()) : nullptr;
  const size_t later = 4 + 2 * static_cast<size_t>(recipe.parts.at(3).i);
  for (size_t k = 4; space && k < later; k += 2) {
    Ref<> key = object(recipe.parts.at(k));
    Ref<> value = key ? object(recipe.parts.at(k + 1)) : nullptr;
    if (!value || PyDict_SetItem(space.get(), key.get(), value.get()) < 0) {
      return {};
    }
  }
  Ref<> cls = space ? pyapi::newClass(name.get(), bases.get(), space.get()) : nullptr;
  if (!cls) {
    return {};
  }
  made_.emplace_back(id, cls.clone());
  return setAttributes(cls.get(), recipe, later) ? std::move(cls) : nullptr;
}

Ref<> Materializer::buildCallEx(const Recipe& recipe) {
  Ref<> callable = object(recipe.parts.at(0));
  Ref<> args = callable ? object(recipe.parts.at(1)) : nullptr;
  Ref<> keywords = args ? object(recipe.parts.at(2)) : nullptr;
  return keywords ? pyapi::steal(PyObject_Call(callable.get(), args.get(), keywords.get())) : nullptr;
}

}  // namespace kintsugi::runtime
