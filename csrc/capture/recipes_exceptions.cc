// Recipes: exceptions and tracebacks.
#include "capture/plain_objects.h"
#include "capture/recipes.h"
#include "pyapi/exception_state.h"
#include "pyapi/lazy.h"
#include "pyapi/plain.h"

namespace kintsugi::capture {

using ir::Operand;
using ir::Recipe;
using ir::RecipeKind;

namespace {

bool isNothing(PyObject* object) { return object == nullptr || object == Py_None; }

}  // namespace

std::vector<PyObject*> linkedObjects(PyObject* exception) {
  const pyapi::ExceptionParts parts = pyapi::partsOf(exception);
  std::vector<PyObject*> linked;
  for (PyObject* object : {parts.cause, parts.context, parts.traceback}) {
    if (!isNothing(object)) linked.push_back(object);
  }
  return linked;
}

Operand Recipes::call(PyObject* callable, std::initializer_list<Operand> args) {
  Recipe recipe;
  recipe.kind = RecipeKind::kCall;
  recipe.parts.push_back(Operand::constant(constId(callable)));
  recipe.parts.insert(recipe.parts.end(), args);
  return Operand::recipe(add(std::move(recipe)));
}

Operand Recipes::handledOutside() {
  static constinit pyapi::Lazy<PyObject*> functionSlot;
  PyObject* function = functionSlot.get([] { return PySys_GetObject("exception"); });
  return call(function, {});
}

bool Recipes::linkedOperand(PyObject* object, Operand& out) {
  if (isNothing(object)) {
    out = Operand::null();
    return true;
  }
  if (object == exceptions_.handledOutside()) {
    out = handledOutside();
    return true;
  }
  auto known = known_.knownObject(object);
  return known && operandOf(*known, object, out);
}

Operand Recipes::tracebackEntry(const pyapi::TracebackEntry& entry, Operand next) {
  Recipe recipe;
  recipe.kind = RecipeKind::kTraceback;
  recipe.parts = {next, Operand::constant(constId(entry.code)), Operand::constant(constId(entry.globals)),
                  Operand::integer(entry.unit)};
  return Operand::recipe(add(std::move(recipe)));
}

Shadow Recipes::tracebackShadow(PyObject* traceback) {
  if (isNothing(traceback)) return Shadow::constant();
  auto known = known_.knownObject(traceback);
  return known ? *known : known_.newVirtual(VirtualKind::kTraceback, traceback);
}

namespace {

bool sameField(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (a == nullptr || b == nullptr || Py_TYPE(a) != Py_TYPE(b)) return false;
  if (PyTuple_CheckExact(a)) {
    if (PyTuple_GET_SIZE(a) != PyTuple_GET_SIZE(b)) return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(a); ++i) {
      if (PyTuple_GET_ITEM(a, i) != PyTuple_GET_ITEM(b, i)) return false;
    }
    return true;
  }
  return pyapi::plainEquals(a, b);
}

}  // namespace

// Fields that C code sets beside the arguments (such as AttributeError.name) and that the constructor does
// not.
bool Recipes::addFields(PyObject* exception, PyObject* args, Recipe& recipe) {
  pyapi::Ref<> made = pyapi::newException(Py_TYPE(exception), args);
  if (!made) {
    PyErr_Clear();
    return false;
  }
  std::vector<PyObject*> theirs;
  pyapi::forEachField(made.get(), [&](PyObject*, PyObject* value) {
    theirs.push_back(value);
    return true;
  });
  size_t at = 0;
  return pyapi::forEachField(exception, [&](PyObject* name, PyObject* value) {
    if (sameField(value, theirs[at++])) return true;
    Operand operand = Operand::null();
    if (value == nullptr) return false;
    if (isPlain(value)) {
      operand = Operand::constant(constId(value));
    } else {
      auto known = known_.knownObject(value);
      if (!known || !operandOf(*known, value, operand)) return false;
    }
    recipe.parts.push_back(Operand::constant(constId(name)));
    recipe.parts.push_back(operand);
    return true;
  });
}

bool Recipes::addAttributes(Virtual& v, PyObject* dict, Recipe& recipe) {
  const Py_ssize_t count = dict != nullptr ? PyDict_GET_SIZE(dict) : 0;
  if (count != PyDict_GET_SIZE(v.attrs.get())) return false;
  PyObject *name, *value;
  Py_ssize_t at = 0;
  while (dict != nullptr && PyDict_Next(dict, &at, &name, &value)) {
    PyObject* encoded = PyDict_GetItemWithError(v.attrs.get(), name);
    Operand operand;
    if (encoded == nullptr || !operandOf(decodeShadow(encoded), value, operand)) {
      PyErr_Clear();
      return false;
    }
    recipe.parts.push_back(Operand::constant(constId(name)));
    recipe.parts.push_back(operand);
  }
  return true;
}

// An exception of a built-in class is rebuilt by a call of its constructor, perhaps with more arguments than
// `args` keeps.
bool Recipes::exceptionParts(Virtual& v, Recipe& recipe) {
  PyObject* object = v.object.get();
  const pyapi::ExceptionParts parts = pyapi::partsOf(object);
  const bool called = !PyType_HasFeature(Py_TYPE(object), Py_TPFLAGS_HEAPTYPE);
  const size_t count = v.parts.size();
  if (!called && static_cast<size_t>(PyTuple_GET_SIZE(parts.args)) != count) return false;
  recipe.kind = RecipeKind::kException;
  recipe.type = constId(reinterpret_cast<PyObject*>(Py_TYPE(object)));
  recipe.parts.push_back(Operand::integer(static_cast<int64_t>(count)));
  pyapi::Ref<> args = pyapi::steal(PyTuple_New(static_cast<Py_ssize_t>(count)));
  if (!args) return false;
  for (size_t i = 0; i < count; ++i) {
    PyObject* real = v.partObjects[i].get();
    if (!called && PyTuple_GET_ITEM(parts.args, static_cast<Py_ssize_t>(i)) != real) return false;
    Operand operand;
    if (!operandOf(v.parts[i], real, operand)) return false;
    recipe.parts.push_back(operand);
    PyTuple_SET_ITEM(args.get(), static_cast<Py_ssize_t>(i), Py_NewRef(real));
  }
  Operand cause, context, traceback = Operand::null();
  if (!linkedOperand(parts.cause, cause) || !linkedOperand(parts.context, context)) return false;
  if (isNothing(parts.context) && v.index == kContextOutside) context = handledOutside();
  if (!isNothing(parts.traceback) &&
      !operandOf(tracebackShadow(parts.traceback), parts.traceback, traceback)) {
    return false;
  }
  recipe.parts.insert(recipe.parts.end(), {cause, context, Operand::boolean(parts.suppress), traceback});
  return addFields(object, args.get(), recipe) && addAttributes(v, parts.dict, recipe);
}

bool Recipes::tracebackParts(Virtual& v, Recipe& recipe) {
  const pyapi::TracebackEntry entry = pyapi::entryOf(v.object.get());
  Operand next = Operand::null();
  if (entry.next != nullptr && !operandOf(tracebackShadow(entry.next), entry.next, next)) return false;
  recipe.kind = RecipeKind::kTraceback;
  recipe.parts = {next, Operand::constant(constId(entry.code)), Operand::constant(constId(entry.globals)),
                  Operand::integer(entry.unit)};
  return true;
}

}  // namespace kintsugi::capture
