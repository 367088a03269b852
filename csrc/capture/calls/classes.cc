// Models: class statements, type(name, bases, dict), and the descriptors of a class body.
//
// A class statement calls back into Python for its body, for `__set_name__` and for `__init_subclass__`. The
// model makes these calls one by one, as C code does, so that each frame is recorded. The result is a virtual
// class (classes.h).
#include "capture/classes.h"

#include <algorithm>
#include <string_view>

#include "capture/calls/model.h"
#include "capture/calls/table.h"
#include "capture/enum_member.h"
#include "capture/tables/pauses.h"
#include "pyapi/classes.h"
#include "pyapi/code.h"
#include "pyapi/containers.h"
#include "pyapi/types.h"

namespace kintsugi::capture {

namespace {

// A class statement under way.
struct ClassStatement {
  CallContext& ctx;
  pyapi::Ref<> name;
  pyapi::Ref<> bases;
  Shadows baseShadows;
  pyapi::Ref<> space;    // the namespace that the class is made with
  pyapi::Ref<> entries;  // name -> encoded shadow
  pyapi::Ref<> cell;     // `__class__`, or nothing
  Shadow cellShadow;
  pyapi::Ref<> body;  // the code of the body, or nothing
  size_t firstKeyword = 0;
};

// True if instances of the class have no state of C code.
bool isPlainBase(PyObject* base) {
  if (!PyType_Check(base) || Py_TYPE(base) != &PyType_Type) return false;
  for (auto* type = reinterpret_cast<PyTypeObject*>(base); type != nullptr; type = pyapi::baseOf(type)) {
    if (type == &PyBaseObject_Type) return true;
    PyObject* make = specialMethod(type, "__new__");
    const bool python = make != nullptr && Py_TYPE(make) == &PyStaticMethod_Type;
    if (!PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) ||
        (!python && !pyapi::makesLike(type, &PyBaseObject_Type))) {
      return false;
    }
  }
  return false;
}

// Pins the base classes. False: one of them is not known, or the recording has ended.
bool pinBases(RecordContext& rec, PyObject* const* bases, Shadows& shadows) {
  for (size_t i = 0; i < shadows.size(); ++i) {
    if (!isPlainBase(bases[i]) || shadows[i].isValue()) return false;
  }
  for (size_t i = 0; i < shadows.size(); ++i) {
    if (shadows[i].isSource() && !rec.guards.pin(shadows[i], bases[i])) return false;
    shadows[i] = virtualShadowOf(rec, shadows[i], bases[i]);
    rec.guards.guardTypeVersion(reinterpret_cast<PyTypeObject*>(bases[i]));
  }
  return rec.live();
}

Flow raised(CallContext& ctx) {
  ctx.rec.instruction.setExecuted(true);
  ctx.act.kwnames = nullptr;
  return Flow::kRaise;
}

// Runs the body, in a frame whose locals are the namespace. False: it has raised.
bool runBody(ClassStatement& made) {
  RecordContext& rec = made.ctx.rec;
  PyObject* function = made.ctx.args[0];
  made.space = pyapi::steal(PyDict_New());
  made.body = pyapi::newRef(PyFunction_GET_CODE(function));
  if (!made.space) return false;
  const Shadow space = rec.objects.newVirtual(VirtualKind::kDict, made.space.get());
  PendingFrame pending;
  pending.code = made.body.get();
  pending.function = pyapi::newRef(function);
  pending.functionShadow = made.ctx.shadows[0];
  pending.rebuildable = false;
  rec.callees.expectFrame(std::move(pending));
  rec.instruction.setExecuted(true);
  pyapi::Ref<> result = pyapi::steal(PyEval_EvalCodeEx(made.body.get(), PyFunction_GET_GLOBALS(function),
                                                       made.space.get(), nullptr, 0, nullptr, 0, nullptr, 0,
                                                       nullptr, PyFunction_GET_CLOSURE(function)));
  if (!result) return false;
  if (rec.live()) {
    made.cellShadow = rec.callees.returned();
    made.entries = pyapi::steal(PyDict_Copy(rec.objects.virtualOf(space).entries.get()));
  }
  if (PyCell_Check(result.get())) made.cell = std::move(result);
  made.space = pyapi::steal(PyDict_Copy(made.space.get()));  // the body may have handed out the original
  return static_cast<bool>(made.space);
}

// Functions and other descriptors in the namespace have to be constants or objects of the trace, since
// look-up hands them out unguarded. False: one is known only at run time.
bool pinFunctions(ClassStatement& made) {
  RecordContext& rec = made.ctx.rec;
  PyObject *key, *value;
  Py_ssize_t at = 0;
  while (PyDict_Next(made.space.get(), &at, &key, &value)) {
    PyObject* encoded = PyDict_GetItemWithError(made.entries.get(), key);
    Shadow shadow = encoded != nullptr ? decodeShadow(encoded) : Shadow::constant();
    if (!pyapi::hasDescriptorGet(value) || shadow.isConst() || shadow.isVirtual()) continue;
    if (rec.guards.comesFromStep(shadow) || !rec.guards.pin(shadow, value)) return false;
    pyapi::Ref<> pinned = pyapi::steal(encodeShadow(shadow));
    PyDict_SetItem(made.entries.get(), key, pinned.get());
  }
  return true;
}

// Makes the class a virtual object. Its shadows are those of the namespace.
Shadow describeClass(ClassStatement& made, PyObject* cls) {
  RecordContext& rec = made.ctx.rec;
  const Shadow shadow = rec.objects.newVirtual(VirtualKind::kClass, cls);
  Virtual& v = rec.objects.virtualOf(shadow);
  v.parts = made.baseShadows;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(made.bases.get()); ++i)
    v.partObjects.push_back(pyapi::newRef(PyTuple_GET_ITEM(made.bases.get(), i)));
  const bool celled = made.cell && made.cellShadow.isVirtual();
  v.parts.push_back(celled ? made.cellShadow : Shadow::null());
  v.partObjects.push_back(made.cell ? made.cell.clone() : pyapi::Ref<>());
  v.partObjects.push_back(made.space.clone());
  v.partObjects.push_back(made.body ? made.body.clone() : pyapi::Ref<>());
  v.entries = made.entries.clone();
  v.index = PyDict_GET_SIZE(made.space.get());
  rec.objects.addClass(shadow);
  if ((made.cell && !celled) || !pinFunctions(made))
    refuseClass(rec, pyapi::typeName(reinterpret_cast<PyTypeObject*>(cls)));
  if (celled) {
    rec.objects.virtualOf(made.cellShadow).parts[0] = shadow;
    rec.objects.noteChange();
  }
  return shadow;
}

// Calls a hook: as a frame if it is Python code; C code is called unseen.
pyapi::Ref<> callHook(RecordContext& rec, PyObject* function, const PooledVector<PyObject*>& args,
                      Shadows shadows, size_t positional, PyObject* kwnames) {
  if (!PyFunction_Check(function)) {
    refuseClass(rec, "a hook of C code");
  } else if (rec.live()) {
    PendingFrame pending = rec.callees.methodFrame(function, shadows[0], args[0]);
    pending.args = args;
    pending.shadows = std::move(shadows);
    pending.positional = positional;
    pending.kwnames = kwnames;
    pending.rebuildable = false;
    rec.callees.expectFrame(std::move(pending));
  }
  return pyapi::steal(PyObject_Vectorcall(function, args.data(), positional, kwnames));
}

// Raises RuntimeError("Error calling __set_name__ ..."), with the pending exception as its cause.
void raiseSetNameError(PyObject* value, PyObject* key, PyObject* cls) {
  PyObject *type, *error, *traceback;
  PyErr_Fetch(&type, &error, &traceback);
  PyErr_NormalizeException(&type, &error, &traceback);
  if (traceback != nullptr) PyException_SetTraceback(error, traceback);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  PyErr_Format(PyExc_RuntimeError, "Error calling __set_name__ on '%.100s' instance %R in '%.100s'",
               pyapi::typeNameOf(value), key, pyapi::typeName(reinterpret_cast<PyTypeObject*>(cls)));
  PyObject *outerType, *outer, *outerTraceback;
  PyErr_Fetch(&outerType, &outer, &outerTraceback);
  PyErr_NormalizeException(&outerType, &outer, &outerTraceback);
  PyException_SetCause(outer, Py_NewRef(error));
  PyException_SetContext(outer, error);
  PyErr_Restore(outerType, outer, outerTraceback);
}

// Calls `__set_name__` of the values in the namespace. False: an exception.
bool callSetName(ClassStatement& made, PyObject* cls, Shadow shadow) {
  RecordContext& rec = made.ctx.rec;
  pyapi::Ref<> items = pyapi::steal(PyDict_Items(made.space.get()));
  for (Py_ssize_t i = 0; items && i < PyList_GET_SIZE(items.get()); ++i) {
    PyObject* key = PyTuple_GET_ITEM(PyList_GET_ITEM(items.get(), i), 0);
    PyObject* value = PyTuple_GET_ITEM(PyList_GET_ITEM(items.get(), i), 1);
    PyObject* hook = pyapi::nameHook(value);
    if (hook == nullptr) continue;
    auto known = rec.live() ? rec.objects.entryOf(rec.objects.virtualOf(shadow), key) : std::nullopt;
    pyapi::Ref<> done =
        callHook(rec, hook, {value, cls, key},
                 {known.value_or(Shadow::constant()), shadow, Shadow::constant()}, 3, nullptr);
    if (!done) {
      raiseSetNameError(value, key, cls);
      return false;
    }
  }
  return static_cast<bool>(items);
}

// Calls `__init_subclass__` of the bases with the keywords of the class statement. False: an exception.
bool callInitSubclass(ClassStatement& made, PyObject* cls, Shadow shadow) {
  CallContext& ctx = made.ctx;
  PyObject* hook = pyapi::subclassHook(reinterpret_cast<PyTypeObject*>(cls));
  const bool keywords = ctx.total() > made.firstKeyword;
  if (hook == nullptr && !keywords) return true;
  PooledVector<PyObject*> args = {cls};
  Shadows shadows = {shadow};
  args.insert(args.end(), ctx.args.begin() + made.firstKeyword, ctx.args.end());
  shadows.insert(shadows.end(), ctx.shadows.begin() + made.firstKeyword, ctx.shadows.end());
  PyObject* names = keywords ? ctx.kwnames : nullptr;
  pyapi::Ref<> function;
  if (hook != nullptr && Py_TYPE(hook) == &PyClassMethod_Type)
    function = pyapi::steal(PyObject_GetAttrString(hook, "__func__"));
  PyErr_Clear();
  if (function && PyFunction_Check(function.get()))
    return static_cast<bool>(callHook(ctx.rec, function.get(), args, std::move(shadows), 1, names));
  refuseClass(ctx.rec, "__init_subclass__");
  pyapi::Ref<> super = pyapi::steal(
      PyObject_CallFunctionObjArgs(reinterpret_cast<PyObject*>(&PySuper_Type), cls, cls, nullptr));
  pyapi::Ref<> bound =
      pyapi::steal(super ? PyObject_GetAttrString(super.get(), "__init_subclass__") : nullptr);
  return bound && pyapi::steal(PyObject_Vectorcall(bound.get(), args.data() + 1, 0, names));
}

Flow finishClass(ClassStatement& made, Shadow& result) {
  CallContext& ctx = made.ctx;
  pyapi::Ref<> cls = pyapi::newClass(made.name.get(), made.bases.get(), made.space.get());
  if (!cls) return raised(ctx);
  Shadow shadow = Shadow::constant();
  if (ctx.rec.live()) {
    // type.__new__ adds `__module__`, which follows from the frame that calls it.
    static PyObject* module = PyUnicode_InternFromString("__module__");
    PyObject* added =
        PyDict_GetItemWithError(pyapi::dictOf(reinterpret_cast<PyTypeObject*>(cls.get())), module);
    if (added != nullptr && PyDict_Contains(made.space.get(), module) == 0) {
      pyapi::Ref<> constant = pyapi::steal(encodeShadow(Shadow::constant()));
      PyDict_SetItem(made.space.get(), module, added);
      PyDict_SetItem(made.entries.get(), module, constant.get());
    }
    shadow = describeClass(made, cls.get());
  }
  if (!callSetName(made, cls.get(), shadow) || !callInitSubclass(made, cls.get(), shadow)) return raised(ctx);
  result = shadow;
  return ctx.rec.steps.replaceCall(ctx, std::move(cls));
}

// `__build_class__(function, name, *bases, **keywords)`.
Flow buildClassModel(CallContext& ctx, Shadow& result) {
  RecordContext& rec = ctx.rec;
  const bool simple = ctx.positional >= 2 && PyFunction_Check(ctx.args[0]) &&
                      PyUnicode_CheckExact(ctx.args[1]) && ctx.shadows[1].isConst() &&
                      !ctx.keyword("metaclass") && (ctx.shadows[0].isVirtual() || ctx.shadows[0].isConst()) &&
                      !rec.callees.isOpaqueCode(PyFunction_GET_CODE(ctx.args[0]));
  if (!simple) return opaqueModel(ctx, result);
  const auto given = ctx.shadows.slice(2, ctx.positional);
  Shadows bases(given.begin(), given.end());
  if (!pinBases(rec, ctx.args.begin() + 2, bases)) return rec.live() ? opaqueModel(ctx, result) : run(ctx);
  ClassStatement made{ctx};
  made.name = pyapi::newRef(ctx.args[1]);
  made.bases = pyapi::steal(PyTuple_New(static_cast<Py_ssize_t>(bases.size())));
  for (size_t i = 0; made.bases && i < bases.size(); ++i)
    PyTuple_SET_ITEM(made.bases.get(), static_cast<Py_ssize_t>(i), Py_NewRef(ctx.args[2 + i]));
  made.baseShadows = std::move(bases);
  made.firstKeyword = ctx.positional;
  if (!made.bases || !runBody(made)) return raised(ctx);
  return finishClass(made, result);
}

// property() and the like in a class body: rebuilt from their arguments.
Flow descriptorModel(CallContext& ctx, Shadow& result) {
  const bool functions = ctx.kwnames == nullptr && ctx.positional >= 1 &&
                         std::all_of(ctx.args.begin(), ctx.args.begin() + ctx.positional,
                                     [](PyObject* arg) { return PyFunction_Check(arg) || arg == Py_None; });
  if (!functions) return knownModel(ctx, result);
  Refs objects;
  for (size_t i = 0; i < ctx.positional; ++i) objects.push_back(pyapi::newRef(ctx.args.any(i)));
  Shadows parts(ctx.shadows.begin(), ctx.shadows.begin() + ctx.positional);
  objects.push_back(pyapi::steal(PyDict_New()));  // no keywords
  Flow flow = runVirtual(ctx, VirtualKind::kPartial, result);
  if (flow != Flow::kNext || !ctx.rec.live()) return flow;
  ctx.rec.objects.virtualOf(result).parts = std::move(parts);
  ctx.rec.objects.virtualOf(result).partObjects = std::move(objects);
  return flow;
}

// `property.setter(function)` and the like: a property with one function replaced.
Flow withAccessor(CallContext& ctx, size_t which, Shadow& result) {
  RecordContext& rec = ctx.rec;
  const bool ours = ctx.total() == 2 && ctx.kwnames == nullptr && Py_TYPE(ctx.args[0]) == &PyProperty_Type &&
                    ctx.shadows[0].isVirtual() &&
                    rec.objects.virtualOf(ctx.shadows[0]).kind == VirtualKind::kPartial &&
                    rec.objects.virtualOf(ctx.shadows[0]).parts.size() <= 3 && PyFunction_Check(ctx.args[1]);
  if (!ours) return knownModel(ctx, result);
  const Virtual& old = rec.objects.virtualOf(ctx.shadows[0]);
  Shadows parts = old.parts;
  Refs objects;
  for (size_t i = 0; i < parts.size(); ++i) objects.push_back(old.partObjects[i].clone());
  while (parts.size() <= which) {
    parts.push_back(Shadow::constant());
    objects.push_back(pyapi::newRef(Py_None));
  }
  parts[which] = ctx.shadows[1];
  objects[which] = pyapi::newRef(ctx.args[1]);
  objects.push_back(pyapi::steal(PyDict_New()));
  Flow flow = runVirtual(ctx, VirtualKind::kPartial, result);
  if (flow != Flow::kNext || !rec.live()) return flow;
  rec.objects.virtualOf(result).parts = std::move(parts);
  rec.objects.virtualOf(result).partObjects = std::move(objects);
  return flow;
}
Flow getterModel(CallContext& ctx, Shadow& result) { return withAccessor(ctx, 0, result); }
Flow setterModel(CallContext& ctx, Shadow& result) { return withAccessor(ctx, 1, result); }
Flow deleterModel(CallContext& ctx, Shadow& result) { return withAccessor(ctx, 2, result); }

// `class.__subclasses__()`: its result includes classes of the trace, so these are built.
Flow subclassesModel(CallContext& ctx, Shadow& result) {
  const std::vector<uint32_t> classes = ctx.rec.objects.classes();
  for (uint32_t id : classes) {
    Shadow cls = Shadow::virt(id);
    if (!ctx.rec.snapshots.escape(cls, ctx.rec.objects.virtualOf(cls).object.get())) return run(ctx);
  }
  return knownModel(ctx, result);
}

// `Flags(value)`: the enum class caches a combination when it is first asked for. A program sees nothing of
// that.
Flow flagModel(CallContext& ctx, Shadow& result) {
  static PyObject* mapName = PyUnicode_InternFromString("_value2member_map_");
  RecordContext& rec = ctx.rec;
  const bool simple = ctx.total() == 2 && ctx.kwnames == nullptr && PyType_Check(ctx.args[0]) &&
                      (ctx.shadows[0].isConst() || ctx.shadows[0].isSource()) &&
                      PyLong_CheckExact(ctx.args[1]) && !ctx.shadows[1].isValue() &&
                      isPlainFlag(reinterpret_cast<PyTypeObject*>(ctx.args[0]));
  if (!simple) return inlineFunction(ctx, result);
  auto* type = reinterpret_cast<PyTypeObject*>(ctx.args[0]);
  Shadow cls = ctx.shadows[0], value = ctx.shadows[1];
  pyapi::Ref<> map = pyapi::newRef(PyDict_GetItemWithError(pyapi::dictOf(type), mapName));
  if (!map || !PyDict_CheckExact(map.get())) return inlineFunction(ctx, result);
  if (!rec.guards.pin(cls, ctx.args[0]) || !rec.guards.pin(value, ctx.args[1])) return run(ctx);
  rec.guards.guardTypeVersion(type);
  pyapi::Ref<> key = pyapi::newRef(ctx.args[1]);
  Flow flow;
  {
    const Paused paused(rec.pauses);
    flow = run(ctx);
  }
  result = Shadow::constant();
  if (flow != Flow::kNext || !rec.live() || isPlain(ctx.act.peek(1))) return flow;
  PyObject* member = PyDict_GetItemWithError(map.get(), key.get());
  if (member != ctx.act.peek(1)) {
    rec.abort(diag::Code::KTG0302, {pyapi::typeName(type)});
    return flow;
  }
  Shadow entry = rec.objects.dictEntry(rec.guards.pinnedRoot(map.get()), map.get(), key.get(), member);
  if (rec.live()) rec.guards.pin(entry, member);
  return flow;
}

constexpr ModelRow kRows[] = {
    {"builtins.__build_class__", buildClassModel,
     gives("any: a class, of whatever metaclass").raises(kFromFunction)},
    {"builtins.property", descriptorModel, gives("property")},
    {"builtins.staticmethod", descriptorModel, gives("staticmethod")},
    {"builtins.classmethod", descriptorModel, gives("classmethod")},
    {"builtins.property.getter", getterModel, gives("property")},
    {"builtins.property.setter", setterModel, gives("property")},
    {"builtins.property.deleter", deleterModel, gives("property")},
    {"builtins.type.__subclasses__", subclassesModel, gives("list").runsNoPython()},
    {"enum.EnumType.__call__", flagModel, gives(kItsObject).raises("AttributeError ValueError")},
};

}  // namespace

Flow newTypeModel(CallContext& ctx, Shadow& result) {
  RecordContext& rec = ctx.rec;
  const bool simple = ctx.total() == 3 && ctx.kwnames == nullptr && PyUnicode_CheckExact(ctx.args[0]) &&
                      PyTuple_CheckExact(ctx.args[1]) && PyDict_CheckExact(ctx.args[2]) &&
                      !ctx.shadows[0].isValue() && !ctx.shadows[1].isValue() && !ctx.shadows[2].isValue();
  if (!simple) return opaqueModel(ctx, result);
  Shadow name = ctx.shadows[0];
  auto bases = rec.objects.elementsOf(ctx.shadows[1], ctx.args[1]);
  auto values = rec.live() && bases ? rec.objects.dictParts(ctx.shadows[2], ctx.args[2], 1) : std::nullopt;
  const bool known =
      values && rec.guards.pin(name, ctx.args[0]) && pinBases(rec, pyapi::tupleItems(ctx.args[1]), *bases);
  if (!known) return rec.live() ? opaqueModel(ctx, result) : run(ctx);
  ClassStatement made{ctx};
  made.name = pyapi::newRef(ctx.args[0]);
  made.bases = pyapi::newRef(ctx.args[1]);
  made.baseShadows = std::move(*bases);
  made.space = pyapi::steal(PyDict_Copy(ctx.args[2]));
  made.entries = pyapi::steal(PyDict_New());
  PyObject *key, *value;
  Py_ssize_t at = 0;
  for (size_t i = 0; made.space && i < values->size() && PyDict_Next(made.space.get(), &at, &key, &value);
       ++i) {
    pyapi::Ref<> encoded = pyapi::steal(encodeShadow((*values)[i]));
    PyDict_SetItem(made.entries.get(), key, encoded.get());
  }
  made.firstKeyword = 3;
  return finishClass(made, result);
}

void registerClassModels() { addTable<kRows>(); }

}  // namespace kintsugi::capture
