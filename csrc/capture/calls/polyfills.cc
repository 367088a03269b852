// Models: builtins that call back, or that compare tensors to decide. A polyfill takes the C function's place
// on the value stack and is recorded like any other function. So the trace can be left, and can go on, in the
// middle of it.
#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_set>

#include "capture/callee.h"
#include "capture/calls/argument_iterator.h"
#include "capture/calls/function_modes.h"
#include "capture/calls/group_uses.h"
#include "capture/calls/lazy.h"
#include "capture/calls/model.h"
#include "capture/calls/numpy.h"
#include "capture/calls/open_lists.h"
#include "capture/calls/table.h"
#include "capture/hashes.h"
#include "capture/nested_frames.h"
#include "capture/shown.h"
#include "pyapi/code.h"
#include "pyapi/containers.h"
#include "pyapi/exception_state.h"
#include "pyapi/imports.h"
#include "pyapi/known_objects.h"
#include "pyapi/lazy.h"
#include "pyapi/opcodes.h"
#include "support/check.h"
#include "torchapi/global_state.h"

namespace kintsugi::capture {

namespace {

Flow redirect(CallContext& ctx, const char* name, Shadow& result) {
  PyObject* function = polyfill(name);
  return function != nullptr ? callInstead(ctx, function, result) : opaqueModel(ctx, result);
}

// The value of a keyword argument, or null.
PyObject* keyword(const CallContext& ctx, std::string_view name) {
  auto at = ctx.keyword(name);
  return at ? ctx.args.any(*at) : nullptr;
}

bool onlyKeywords(const CallContext& ctx, std::initializer_list<std::string_view> names) {
  const auto given = static_cast<size_t>(
      std::count_if(names.begin(), names.end(), [&](auto name) { return keyword(ctx, name) != nullptr; }));
  return given == ctx.total() - ctx.positional;
}

bool hasKey(const CallContext& ctx) {
  PyObject* key = keyword(ctx, "key");
  return key != nullptr && key != Py_None;
}

// True if Python code makes the items of the argument.
bool isDriven(CallContext& ctx, size_t argument) {
  Shadow shadow = ctx.shadows[argument];
  if (shadow.isVirtual() && ctx.rec.objects.virtualOf(shadow).kind == VirtualKind::kGenerator) return true;
  if (isLazyIterator(ctx.rec, shadow)) return true;
  return !shadow.isValue() && pythonMethod(ctx.args[argument], "__iter__") != nullptr;
}

// True if the callable itself is on the value stack, not a bound method or a partial of it.
bool isDirect(const CallContext& ctx) {
  const int popped = static_cast<int>(ctx.popped);
  if (popped < 2) return false;
  return ctx.act.peek(calleeDepth(ctx.act, popped)) == ctx.callable;
}

Flow byKey(CallContext& ctx, const char* name, int op, Shadow& result) {
  if (auto flow = consumeOpen(ctx, result)) return *flow;
  const bool one = ctx.positional == 1;
  const bool simple = ctx.positional > 0 && onlyKeywords(ctx, {"key", "default"}) &&
                      (one || keyword(ctx, "default") == nullptr);
  if (hasKey(ctx) && simple) return redirect(ctx, name, result);
  const bool items =
      !hasKey(ctx) && simple && one && keyword(ctx, "key") == nullptr && isDirect(ctx) && makesFrames(ctx, 0);
  if (items) return redirect(ctx, op == Py_GT ? "max_of" : "min_of", result);
  return extremeModel(ctx, result, op);
}
Flow maxModel(CallContext& ctx, Shadow& result) { return byKey(ctx, "max_by", Py_GT, result); }
Flow minModel(CallContext& ctx, Shadow& result) { return byKey(ctx, "min_by", Py_LT, result); }

Flow truthModel(CallContext& ctx, const char* name, Shadow& result) {
  if (auto flow = consumeOpen(ctx, result)) return *flow;
  const bool one = ctx.total() == 1 && ctx.kwnames == nullptr;
  return one && isDriven(ctx, 0) ? redirect(ctx, name, result) : reduceModel(ctx, result);
}
Flow anyModel(CallContext& ctx, Shadow& result) { return truthModel(ctx, "any_", result); }
Flow allModel(CallContext& ctx, Shadow& result) { return truthModel(ctx, "all_", result); }

// The result of sorted() for known items is known, so no keys are asked for.
Flow sortedModel(CallContext& ctx, Shadow& result) {
  const bool fromHere = pyapi::isPolyfill(ctx.frame.code) && hasKey(ctx);  // the polyfill's own last resort
  if (ctx.positional != 1 || !onlyKeywords(ctx, {"key", "reverse"}) || fromHere)
    return opaqueModel(ctx, result);
  if (!hasKey(ctx)) {
    if (auto flow = consumeOpen(ctx, result)) return *flow;
    if (auto flow = sortOpenList(ctx, result)) return *flow;
  }
  Shadow values = ctx.shadows[0];
  PyObject* reverse = keyword(ctx, "reverse");
  const bool foldable = !hasKey(ctx) && (reverse == nullptr || PyBool_Check(reverse)) &&
                        canFold(ctx.rec, values, ctx.args[0]) &&
                        ctx.rec.guards.canPinDeep(values, ctx.args[0]);
  if (!foldable) return redirect(ctx, "sorted_", result);
  for (size_t i = 0; i < ctx.total(); ++i) {
    Shadow shadow = ctx.shadows.any(i);
    if (!ctx.rec.guards.pinDeep(shadow, ctx.args.any(i))) return run(ctx);
  }
  const ArgumentObjects given(ctx);
  Flow flow = runVirtual(ctx, VirtualKind::kList, result);
  if (flow != Flow::kNext || !ctx.rec.live()) return flow;
  PyObject* made = ctx.act.peek(1);
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(made); ++i)
    ctx.rec.objects.virtualOf(result).parts.push_back(given.shadowOf(PyList_GET_ITEM(made, i)));
  return flow;
}

Flow listSortModel(CallContext& ctx, Shadow& result) {
  const bool simple =
      ctx.positional == 1 && PyList_CheckExact(ctx.args[0]) && onlyKeywords(ctx, {"key", "reverse"});
  return simple ? redirect(ctx, "list_sort", result) : opaqueModel(ctx, result);
}

// `kintsugi._polyfills.order(keys, reverse)`: known keys are sorted while recording, as CPython would.
Flow orderModel(CallContext& ctx, Shadow& result) {
  RecordContext& rec = ctx.rec;
  const bool known = ctx.total() == 2 && PyList_CheckExact(ctx.args[0]) &&
                     canFold(rec, ctx.shadows[0], ctx.args[0]) &&
                     rec.guards.canPinDeep(ctx.shadows[0], ctx.args[0]) &&
                     rec.guards.canPinDeep(ctx.shadows[1], ctx.args[1]);
  if (!known) return inlineFunction(ctx, result);
  Shadow keys = ctx.shadows[0], reverse = ctx.shadows[1];
  if (!rec.guards.pinDeep(keys, ctx.args[0]) || !rec.guards.pinDeep(reverse, ctx.args[1])) return run(ctx);
  pyapi::Ref<> builtins = pyapi::steal(pyapi::importModule("builtins"));
  pyapi::Ref<> get = pyapi::steal(PyObject_GetAttrString(ctx.args[0], "__getitem__"));
  pyapi::Ref<> sorted = pyapi::steal(PyObject_GetAttrString(builtins.get(), "sorted"));
  pyapi::Ref<> range = pyapi::steal(
      PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyRange_Type), "n", PyList_GET_SIZE(ctx.args[0])));
  pyapi::Ref<> args = pyapi::steal(PyTuple_Pack(1, range.get()));
  pyapi::Ref<> options = pyapi::steal(Py_BuildValue("{sOsO}", "key", get.get(), "reverse", ctx.args[1]));
  pyapi::Ref<> made = pyapi::steal(PyObject_Call(sorted.get(), args.get(), options.get()));
  if (!made) {  // keys that can't be compared: the real call raises in the right place
    PyErr_Clear();
    return inlineFunction(ctx, result);
  }
  result = rec.objects.newVirtual(VirtualKind::kList, made.get());
  rec.objects.virtualOf(result).parts.assign(static_cast<size_t>(PyList_GET_SIZE(made.get())),
                                             Shadow::constant());
  return rec.steps.replaceCall(ctx, std::move(made));
}

Flow joinModel(CallContext& ctx, Shadow& result) {
  if (ctx.total() == 2) {
    if (auto flow = iterateInstead(ctx, "join", result)) return *flow;
  }
  return foldModel(ctx, result);
}

Flow functionReduceModel(CallContext& ctx, Shadow& result) {
  const bool simple = ctx.kwnames == nullptr && (ctx.positional == 2 || ctx.positional == 3);
  return simple ? redirect(ctx, "reduce", result) : opaqueModel(ctx, result);
}

Flow literalOrKnown(CallContext& ctx, Shadow& result) {
  auto flow = literalTensorModel(ctx, result);
  return flow ? *flow : knownModel(ctx, result);
}

// torch.tensor(number) becomes an operator, so that it is part of a segment and its metadata is known.
Flow tensorModel(CallContext& ctx, Shadow& result) {
  // A mode has to see this call, not the operators in its place.
  if (torchapi::hasModes()) {
    auto flow = torchapi::hasFunctionModes() ? underFunctionModes(ctx, result) : std::nullopt;
    return flow ? *flow : opaqueModel(ctx, result);
  }
  PyObject* data = ctx.positional == 1 ? ctx.args[0] : nullptr;
  const bool number =
      data != nullptr && (PyFloat_CheckExact(data) || PyLong_CheckExact(data) || PyBool_Check(data));
  PyObject* function = polyfill("tensor");
  const bool lastResort = function != nullptr &&
                          PyFunction_GET_CODE(function) == reinterpret_cast<const PyObject*>(ctx.frame.code);
  return number && onlyKeywords(ctx, {"dtype", "device"}) && !lastResort ? redirect(ctx, "tensor", result)
                                                                         : literalOrKnown(ctx, result);
}

bool isDeque(PyObject* type) { return pyapi::isKnown(type, pyapi::Known::kDeque); }

// For `deque(x, maxlen=0)`, which only consumes an iterator.
bool isConsumedByDeque(CallContext& ctx, const CodeInfo& info, const Instr& after) {
  const Instr* next = &after;
  while (next->op == op::KW_NAMES || next->op == op::PRECALL) next = &info.at(next->next);
  if (next->op == op::LOAD_CONST && info.at(next->next).op == op::CALL_KW) next = &info.at(next->next);
  const int lower = static_cast<int>(ctx.popped) + 2;
  return (next->op == op::CALL || next->op == op::CALL_KW) && next->arg == 2 &&
         ctx.act.stackDepth() >= lower && !callsMethod(ctx.act, lower) &&
         isDeque(ctx.act.peek(calleeDepth(ctx.act, lower)));
}

// Callables that take the items of an argument, so that nobody else ever sees that object. `lazy`: they take
// an item when they are asked for one themselves. `alone`: only with a single argument.
struct Consumer {
  const char* name;
  bool lazy = false;
  bool alone = false;
};
constexpr Consumer kBuiltinConsumers[] = {
    {"list"},
    {"tuple"},
    {"sum"},
    {"next"},
    {"any"},
    {"all"},
    {"set"},
    {"frozenset"},
    {"sorted"},
    {"dict"},
    {"max", false, true},
    {"min", false, true},
    {"enumerate"},
    {"zip", true},
    {"map", true},
    {"filter", true},
};
constexpr Consumer kIteratorConsumers[] = {
    {"islice", true},    {"chain", true},     {"zip_longest", true}, {"starmap", true},  {"pairwise", true},
    {"takewhile", true}, {"dropwhile", true}, {"filterfalse", true}, {"compress", true}, {"accumulate", true},
};

const Consumer* consumerOf(PyObject* callable) {
  PyObject* builtins = PyEval_GetBuiltins();
  for (const Consumer& consumer : kBuiltinConsumers) {
    if (PyDict_GetItemString(builtins, consumer.name) == callable) return &consumer;
  }
  PyObject* itertools = pyapi::loadedNamespace("itertools");
  for (const Consumer& consumer : kIteratorConsumers) {
    if (itertools != nullptr && PyDict_GetItemString(itertools, consumer.name) == callable) return &consumer;
  }
  return nullptr;
}

// True if the instruction only computes with values pushed since. `depth` counts these values.
bool computesAbove(const Instr& in, int& depth) {
  int popped = 0;
  switch (in.op) {
    case op::LOAD_CONST:
    case op::LOAD_SMALL_INT:
    case op::LOAD_FAST:
    case op::LOAD_DEREF:
      break;
    case op::LOAD_FAST_LOAD_FAST:
      depth += 2;
      return true;
    case op::LOAD_GLOBAL:
      if ((in.arg & 1) != 0) return false;  // the callable of a call
      break;
    case op::LOAD_ATTR:
    case op::UNARY_NEGATIVE:
      popped = 1;
      break;
    case op::BINARY_OP:
    case op::BINARY_SUBSCR:
      popped = 2;
      break;
    case op::BUILD_TUPLE:
    case op::BUILD_LIST:
      popped = static_cast<int>(in.arg);
      break;
    default:
      return false;
  }
  if (popped > depth) return false;
  depth += 1 - popped;
  return true;
}

// The `replaced` topmost stack entries are about to become one object. True if the code from `next` on takes
// its items at once.
bool isConsumedFrom(CallContext& ctx, const CodeInfo& info, const Instr* next, int replaced) {
  if (next->op == op::GET_ITER || next->op == op::UNPACK_SEQUENCE) return true;
  int loads = 0;
  for (; computesAbove(*next, loads); next = &info.at(next->next)) {
  }
  while (next->op == op::PRECALL) next = &info.at(next->next);
  const int before = static_cast<int>(next->arg) - loads - 1;  // arguments below it
  if (next->op != op::CALL || before < 0) return false;
  if (replaced + before + 2 > ctx.act.stackDepth()) return false;
  static constinit pyapi::Lazy<PyObject*> joinSlot;
  PyObject* join = joinSlot.get(
      [] { return PyObject_GetAttrString(reinterpret_cast<PyObject*>(&PyUnicode_Type), "join"); });
  const int lower = replaced + before + 2;
  PyObject* callable = ctx.act.peek(calleeDepth(ctx.act, lower));
  if (callsMethod(ctx.act, lower)) return callable == join && next->arg == 1;
  const Consumer* consumer = consumerOf(callable);
  if (consumer == nullptr || (consumer->alone && next->arg != 1)) return false;
  return !consumer->lazy || isConsumedFrom(ctx, info, &info.at(next->next), lower);
}

// True if the code after this call takes the items of its result, so that nobody else ever sees the object.
bool consumedAtOnce(CallContext& ctx) {
  const CodeInfo* info = CodeInfo::of(ctx.frame.code);
  const Instr* next = &info->at(ctx.instr.next);
  if (next->op == op::LOAD_CONST && isConsumedByDeque(ctx, *info, info->at(next->next))) return true;
  return isConsumedFrom(ctx, *info, next, static_cast<int>(ctx.popped));
}

// Calls the polyfill if the result is consumed at once. Otherwise the program would see an object of another
// type.
Flow lazyModel(CallContext& ctx, const char* name, Shadow& result) {
  return ctx.kwnames == nullptr && consumedAtOnce(ctx) ? redirect(ctx, name, result)
                                                       : opaqueModel(ctx, result);
}
Flow mapModel(CallContext& ctx, Shadow& result) {
  if (ctx.positional < 2) return opaqueModel(ctx, result);
  if (!consumedAtOnce(ctx)) {
    if (auto flow = lazyIteratorModel(ctx, result)) return *flow;
  }
  return ctx.rec.live() ? lazyModel(ctx, ctx.positional == 2 ? "map_one" : "map_many", result) : run(ctx);
}
Flow filterModel(CallContext& ctx, Shadow& result) {
  if (ctx.positional != 2) return opaqueModel(ctx, result);
  if (!consumedAtOnce(ctx)) {
    if (auto flow = lazyIteratorModel(ctx, result)) return *flow;
  }
  return ctx.rec.live() ? lazyModel(ctx, "filter_", result) : run(ctx);
}
Flow chainModel(CallContext& ctx, Shadow& result) { return lazyModel(ctx, "chain", result); }

// True if C code accepts the arguments that it checks when it makes the iterator. Their types are guarded;
// the polyfills ask for their values.
bool acceptsBounds(CallContext& ctx, std::string_view name) {
  const auto isCount = [&](size_t i) {
    ctx.rec.guards.guardType(ctx.shadows.any(i), ctx.args.any(i));
    return PyLong_CheckExact(ctx.args.any(i)) && !pyapi::isNegativeInt(ctx.args.any(i));
  };
  if (name == "islice") {
    for (size_t i = 1; i < ctx.total(); ++i) {
      const bool positive = i < 3 || PyObject_IsTrue(ctx.args.any(i)) == 1;
      if (!(isCount(i) && positive) && ctx.args.any(i) != Py_None) return false;
    }
    return ctx.kwnames == nullptr && ctx.total() >= 2 && ctx.total() <= 4;
  }
  if (name == "product" || name == "zip_longest") {
    const bool known = onlyKeywords(ctx, {name == "product" ? "repeat" : "fillvalue"});
    return known && (name != "product" || ctx.kwnames == nullptr || isCount(ctx.positional));
  }
  if (name == "accumulate")
    return ctx.positional >= 1 && ctx.positional <= 2 && onlyKeywords(ctx, {"initial"});
  if (name == "groupby") return ctx.positional >= 1 && ctx.positional <= 2 && onlyKeywords(ctx, {"key"});
  if (name == "pairwise" || name == "cycle") return ctx.kwnames == nullptr && ctx.positional == 1;
  if (name == "count") {
    for (size_t i = 0; i < ctx.total(); ++i) {
      ctx.rec.guards.guardType(ctx.shadows.any(i), ctx.args.any(i));
      if (!PyLong_CheckExact(ctx.args.any(i))) return false;
    }
    return ctx.kwnames == nullptr && ctx.positional <= 2;
  }
  if (name == "permutations") {
    const bool fine = ctx.positional < 2 || isCount(1) || ctx.args[1] == Py_None;
    return ctx.kwnames == nullptr && ctx.positional >= 1 && ctx.positional <= 2 && fine;
  }
  const bool counted = name == "repeat" || name.starts_with("combinations");
  return ctx.kwnames == nullptr && ctx.positional == 2 && (!counted || isCount(1));
}

// `[*islice(x, 2)]`.
bool isUnpacked(CallContext& ctx) {
  return CodeInfo::of(ctx.frame.code)->at(ctx.instr.next).op == op::LIST_EXTEND;
}

// The polyfill of each of these C callables; it has the same name and the same arguments.
const char* polyfillOf(PyObject* callable) {
  static constinit pyapi::Lazy<const std::unordered_map<PyObject*, const char*>*> namesSlot;
  const auto* names = namesSlot.get([] {
    struct Module {
      const char* name;
      std::vector<const char*> callables;
    };
    const Module modules[] = {
        {"itertools",
         {"product", "combinations", "combinations_with_replacement", "islice", "zip_longest", "accumulate",
          "takewhile", "dropwhile", "filterfalse", "starmap", "pairwise", "repeat", "count", "cycle",
          "permutations", "compress", "groupby"}},
        {"_heapq",
         {"heappush", "heappop", "heapreplace", "heappushpop", "heapify", "_heapify_max", "_heappop_max",
          "_heapreplace_max"}},
        {"_bisect", {"bisect_left", "bisect_right"}},
        {"_operator",
         {"iadd", "iand", "ifloordiv", "ilshift", "imatmul", "imod", "imul", "ior", "ipow", "irshift", "isub",
          "itruediv", "ixor", "setitem", "delitem", "call"}},
    };
    auto* found = new std::unordered_map<PyObject*, const char*>();
    for (const Module& row : modules) {
      PyObject* module = PyDict_GetItemString(PyImport_GetModuleDict(), row.name);
      for (const char* name : row.callables) {
        // Asking the module for a name that it lacks would run Python code for the message.
        PyObject* object = module != nullptr ? PyDict_GetItemString(PyModule_GetDict(module), name) : nullptr;
        if (object != nullptr) found->emplace(Py_NewRef(object), name);  // never freed
      }
    }
    return found;
  });
  const auto it = names->find(callable);
  KINTSUGI_CHECK(it != names->end(), "a row without a polyfill");
  return it->second;
}

Flow itertoolsModel(CallContext& ctx, Shadow& result) {
  const std::string_view name = polyfillOf(ctx.callable);
  const bool unseen = name == "groupby" ? groupsDoNotEscape(ctx) : isUnpacked(ctx) || consumedAtOnce(ctx);
  const bool simple = isDirect(ctx) && acceptsBounds(ctx, name) && unseen;
  return simple ? redirect(ctx, polyfillOf(ctx.callable), result) : opaqueModel(ctx, result);
}

// A class method, so the class is the first argument.
Flow chainedModel(CallContext& ctx, Shadow& result) {
  PyObject* function = polyfill("chain_from_iterable");
  const int popped = static_cast<int>(ctx.popped);
  const bool simple = function != nullptr && ctx.total() == 2 && popped == 3 &&
                      !callsMethod(ctx.act, popped) && consumedAtOnce(ctx);
  if (!simple) return opaqueModel(ctx, result);
  pyapi::Ref<> bound =
      pyapi::steal(std::exchange(ctx.act.peek(calleeDepth(ctx.act, popped)), Py_NewRef(function)));
  CallContext inner = ctx;
  inner.of(function, ctx.callableShadow, ctx.args.slice(1, 2).data(), ctx.shadows.slice(1, 2).data(), 1);
  return inlineFunction(inner, result);
}

// For larger lists CPython visits the elements in another order.
Flow heapModel(CallContext& ctx, Shadow& result) {
  constexpr Py_ssize_t kSameOrder = 2500;
  const bool simple = ctx.kwnames == nullptr && ctx.total() >= 1 && PyList_CheckExact(ctx.args[0]) &&
                      PyList_GET_SIZE(ctx.args[0]) <= kSameOrder && isDirect(ctx);
  const std::string_view name = polyfillOf(ctx.callable);
  const bool ofOne =
      name == "heapify" || name == "heappop" || name == "_heapify_max" || name == "_heappop_max";
  const size_t expected = ofOne ? 1 : 2;
  return simple && ctx.total() == expected ? redirect(ctx, polyfillOf(ctx.callable), result)
                                           : opaqueModel(ctx, result);
}

Flow moveToEndModel(CallContext& ctx, Shadow& result) {
  // The polyfill asks for the truth of `last` first, so that must not raise.
  const bool asked = ctx.total() < 3 || PyBool_Check(ctx.args.any(2)) || PyLong_CheckExact(ctx.args.any(2));
  const bool simple = ctx.positional >= 1 && ctx.total() >= 2 && ctx.total() <= 3 && asked &&
                      Py_TYPE(ctx.args[0]) == &PyODict_Type && isDirect(ctx) && !ctx.shadows[0].isValue();
  return simple ? redirect(ctx, "move_to_end", result) : opaqueModel(ctx, result);
}

// True for a dict with a key that the program hashes.
bool hasKeyHashedInPython(PyObject* dict) {
  PyObject* key = nullptr;
  for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &key, nullptr) != 0;) {
    if (isHashedInPython(key)) return true;
  }
  return false;
}

// Recorded as single deletions. C code does not hash the keys again.
Flow deletingModel(CallContext& ctx, const char* name, Shadow& result) {
  PyObject* dict = ctx.args[0];
  const bool exact =
      (Py_TYPE(dict) == &PyODict_Type || PyDict_CheckExact(dict)) && !hasKeyHashedInPython(dict);
  return exact && isDirect(ctx) && !ctx.shadows[0].isValue() ? redirect(ctx, name, result)
                                                             : opaqueModel(ctx, result);
}
Flow clearDictModel(CallContext& ctx, Shadow& result) { return deletingModel(ctx, "clear_dict", result); }
Flow orderedPopitemModel(CallContext& ctx, Shadow& result) { return deletingModel(ctx, "pop_item", result); }

// True for items whose class has a `__hash__` in Python. C code calls it once for each item, the polyfill
// would call it twice.
bool hasHashInPython(PyObject* items) {
  if (!PyList_CheckExact(items) && !PyTuple_CheckExact(items)) return false;
  PyObject** all = PySequence_Fast_ITEMS(items);
  return std::any_of(all, all + Py_SIZE(items), isHashedInPython);
}

// Counter.update(): the polyfill counts one item after the other.
Flow countModel(CallContext& ctx, Shadow& result) {
  if (ctx.total() == 2 && hasHashInPython(ctx.args[1])) return opaqueModel(ctx, result);
  const bool simple = ctx.kwnames == nullptr && ctx.total() == 2 && PyDict_Check(ctx.args[0]) &&
                      isDirect(ctx) && pythonMethod(ctx.args[0], "__setitem__") == nullptr &&
                      pythonMethod(ctx.args[0], "get") == nullptr;
  return simple ? redirect(ctx, "count_elements", result) : opaqueModel(ctx, result);
}

Flow bisectModel(CallContext& ctx, Shadow& result) {
  const bool simple = ctx.positional == 2 && onlyKeywords(ctx, {"key"}) &&
                      (PyList_CheckExact(ctx.args[0]) || PyTuple_CheckExact(ctx.args[0])) && isDirect(ctx);
  return simple ? redirect(ctx, polyfillOf(ctx.callable), result) : opaqueModel(ctx, result);
}

constexpr ModelRow kRows[] = {
    {"builtins.sorted", sortedModel, gives("list").raises("RuntimeError")},
    {"builtins.list.sort", listSortModel, gives("None")},
    {"torch.tensor", tensorModel, gives("torch.Tensor").raises("RuntimeError ValueError")},
    {"kintsugi._polyfills.order", orderModel, gives(kOfFunction).raises(kFromFunction)},
    {"builtins.min", minModel, gives(kAnItem).raises("NotImplementedError RuntimeError ValueError")},
    {"builtins.max", maxModel, gives(kAnItem).raises("NotImplementedError RuntimeError ValueError")},
    {"builtins.str.join", joinModel, gives("str")},
    {"builtins.any", anyModel, gives("bool").raises("RuntimeError")},
    {"builtins.all", allModel, gives("bool").raises("RuntimeError")},
    {"_functools.reduce", functionReduceModel, gives(kOfFunction).raises(kFromFunction)},
    {"builtins.map", mapModel, gives("map").raises(kFromFunction)},
    {"builtins.filter", filterModel, gives("filter")},
    {"itertools.chain", chainModel, gives("itertools.chain")},
    {"itertools.chain.from_iterable", chainedModel, gives("itertools.chain")},
    {"itertools.product", itertoolsModel, gives("itertools.product")},
    {"itertools.combinations", itertoolsModel, gives("itertools.combinations").raises("ValueError")},
    {"itertools.combinations_with_replacement", itertoolsModel,
     gives("itertools.combinations_with_replacement").raises("ValueError")},
    {"itertools.islice", itertoolsModel, gives("itertools.islice").raises("ValueError")},
    {"itertools.zip_longest", itertoolsModel, gives("itertools.zip_longest")},
    {"itertools.accumulate", itertoolsModel, gives("itertools.accumulate")},
    {"itertools.takewhile", itertoolsModel, gives("itertools.takewhile")},
    {"itertools.dropwhile", itertoolsModel, gives("itertools.dropwhile")},
    {"itertools.filterfalse", itertoolsModel, gives("itertools.filterfalse")},
    {"itertools.starmap", itertoolsModel, gives("itertools.starmap")},
    {"itertools.pairwise", itertoolsModel, gives("itertools.pairwise")},
    {"itertools.repeat", itertoolsModel, gives("itertools.repeat")},
    {"itertools.count", itertoolsModel, gives("itertools.count")},
    {"itertools.cycle", itertoolsModel, gives("itertools.cycle")},
    {"itertools.permutations", itertoolsModel, gives("itertools.permutations").raises("ValueError")},
    {"itertools.compress", itertoolsModel, gives("itertools.compress")},
    {"itertools.groupby", itertoolsModel, gives("itertools.groupby")},
    {"collections.OrderedDict.move_to_end", moveToEndModel, gives("None").raises("KeyError RuntimeError")},
    {"collections.OrderedDict.popitem", orderedPopitemModel,
     gives("tuple").raises("RuntimeError ValueError")},
    {"collections.OrderedDict.clear", clearDictModel, gives("None")},
    {"builtins.dict.clear", clearDictModel, gives("None").runsNoPython()},
    {"_heapq.heappush", heapModel, gives("None").raises("RuntimeError")},
    {"_heapq.heappop", heapModel, gives(kAnItem).raises("IndexError")},
    {"_heapq.heapreplace", heapModel, gives(kAnItem).raises("IndexError")},
    {"_heapq.heappushpop", heapModel, gives(kAnItem).raises("ValueError")},
    {"_heapq.heapify", heapModel, gives("None")},
    {"_heapq._heapify_max", heapModel, gives("None")},
    {"_heapq._heappop_max", heapModel, gives(kAnItem).raises("IndexError")},
    {"_heapq._heapreplace_max", heapModel, gives(kAnItem).raises("IndexError")},
    {"_collections._count_elements", countModel, gives("None").raises("AttributeError")},
    {"_bisect.bisect_left", bisectModel, gives("int").raises("IndexError KeyError RuntimeError ValueError")},
    {"_bisect.bisect_right", bisectModel, gives("int").raises("IndexError KeyError RuntimeError ValueError")},
};

// What iterateInstead() has to know of a C function that takes items.
struct Iteration {
  std::string_view polyfill;
  size_t first = 0;         // the argument whose items it asks for
  bool all = false;         // and the items of all arguments after it
  bool asksLength = false;  // it asks for a length first
  bool lazy = false;        // it takes items one by one, when they are needed
  bool objects = false;     // also for an argument whose `__iter__` in Python returns another object
};
constexpr Iteration kIterations[] = {
    {.polyfill = "sum_", .objects = true},
    {.polyfill = "set_", .objects = true},
    {.polyfill = "deque_"},
    {.polyfill = "list_", .asksLength = true},
    {.polyfill = "tuple_", .asksLength = true},
    {.polyfill = "extend", .first = 1, .asksLength = true},
    {.polyfill = "join", .first = 1, .asksLength = true},
    {.polyfill = "enumerate_", .lazy = true},
    {.polyfill = "zip_", .all = true, .lazy = true},
};

bool asksPythonForLength(PyObject* object) {
  return pythonMethod(object, "__len__") != nullptr || pythonMethod(object, "__length_hint__") != nullptr;
}

}  // namespace

bool makesFrames(CallContext& ctx, size_t argument) {
  Shadow shadow = ctx.shadows[argument];
  if (shadow.isVirtual() && ctx.rec.objects.virtualOf(shadow).kind == VirtualKind::kGenerator) return true;
  if (isLazyIterator(ctx.rec, shadow)) return true;
  if (shadow.isValue()) return false;
  if (pythonMethod(ctx.args[argument], "__next__") != nullptr) return true;
  PyObject* iter = pythonMethod(ctx.args[argument], "__iter__");
  return iter != nullptr &&
         (pyapi::flagsOf(reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(iter))) & CO_GENERATOR) != 0;
}

std::optional<Flow> iterateInstead(CallContext& ctx, const char* name, Shadow& result) {
  if (!ctx.rec.live() || !isDirect(ctx) || polyfill(name) == nullptr) return std::nullopt;
  const auto* call = std::find_if(std::begin(kIterations), std::end(kIterations),
                                  [name](const Iteration& row) { return row.polyfill == name; });
  KINTSUGI_CHECK(call != std::end(kIterations), "no row for the polyfill ", name);
  if (!call->lazy) {
    if (auto flow = consumeOpen(ctx, result)) return flow;
  }
  if (call->lazy && (!consumedAtOnce(ctx) || (call->all && !onlyKeywords(ctx, {"strict"}))))
    return std::nullopt;
  const auto isDriven = [&](size_t i) {
    const bool open = hasOpenLength(ctx.rec, ctx.shadows.any(i), ctx.args.any(i));
    // Its `__iter__` may return any object, whose `__next__` may be Python code.
    const bool python = !ctx.shadows.any(i).isValue() && !torchapi::isTensor(ctx.args.any(i)) &&
                        pythonMethod(ctx.args.any(i), "__iter__") != nullptr;
    // Nothing of an array's contents is guarded: each item is a step.
    const bool array = ctx.shadows.any(i).isSource() && isArray(ctx.args.any(i));
    if (call->lazy && (open || python || array)) return true;
    return ((call->objects && python) || makesFrames(ctx, i)) &&
           !(call->asksLength && asksPythonForLength(ctx.args.any(i)));
  };
  const size_t end = call->all ? ctx.positional : std::min(ctx.positional, call->first + 1);
  const bool asked = call->polyfill == "extend" && ctx.total() == 2 && torchapi::isTensor(ctx.args.any(1));
  if (asked) return redirect(ctx, "extend_by_tensor", result);
  for (size_t i = call->first; i < end; ++i) {
    if (isDriven(i)) return redirect(ctx, name, result);
  }
  return std::nullopt;
}

Flow iterUntilModel(CallContext& ctx, Shadow& result) {
  return PyCallable_Check(ctx.args[0]) == 1 ? lazyModel(ctx, "iterate_until", result)
                                            : opaqueModel(ctx, result);
}

Flow reversedObject(CallContext& ctx, Shadow& result) {
  PyObject* method = ctx.total() == 1 ? pythonMethod(ctx.args[0], "__reversed__") : nullptr;
  if (method != nullptr && isDirect(ctx)) {  // reversed() returns its result unchanged
    ctx.rec.guards.guardType(ctx.shadows[0], ctx.args[0]);
    if (!torchapi::isTensor(ctx.args[0])) ctx.rec.guards.guardTypeVersion(Py_TYPE(ctx.args[0]));
    return callInstead(ctx, method, result);
  }
  const bool sequence = ctx.total() == 1 && !ctx.shadows[0].isValue() &&
                        pythonMethod(ctx.args[0], "__len__") != nullptr &&
                        pythonMethod(ctx.args[0], "__getitem__") != nullptr &&
                        specialMethod(Py_TYPE(ctx.args[0]), "__reversed__") == nullptr;
  // reversed() asks for the length at once, and again when its result is asked for a length. So only a loop
  // may follow.
  const bool loop = CodeInfo::of(ctx.frame.code)->at(ctx.instr.next).op == op::GET_ITER;
  return sequence && loop ? lazyModel(ctx, "reversed_", result) : opaqueModel(ctx, result);
}

PyObject* polyfill(const char* name) {
  PyObject* polyfills = pyapi::loadedNamespace("kintsugi._polyfills");
  return polyfills != nullptr ? PyDict_GetItemString(polyfills, name) : nullptr;  // borrowed from the module
}

Flow callReplacement(CallContext& ctx, const Replacement& call, Shadow& result) {
  RecordContext& rec = ctx.rec;
  PendingFrame pending = rec.callees.methodFrame(call.function, call.shadows[0], call.args[0]);
  pending.args = call.args;
  pending.shadows = call.shadows;
  pending.positional = call.positional;
  pending.kwnames = call.names;
  pending.site = rec.snapshots.callSite(ctx.instr, ctx.popped, {},
                                        ctx.pushes ? ir::ReturnAction::kPush : ir::ReturnAction::kDiscard);
  rec.callees.expectFrame(std::move(pending));
  pyapi::Ref<> made;
  {
    const NestedFrames nested(rec);
    made = pyapi::steal(PyObject_Vectorcall(call.function, call.args.data(), call.positional, call.names));
  }
  if (made && rec.live()) result = rec.callees.frameResult(made.get());
  const Flow flow = rec.steps.replaceCall(ctx, std::move(made));
  if (flow == Flow::kNext && !ctx.pushes) Py_DECREF(*--ctx.act.sp);
  return flow;
}

Flow callPolyfill(CallContext& ctx, const char* name, Shadow& result) {
  PyObject* function = polyfill(name);
  if (function == nullptr || ctx.positional == 0) return opaqueModel(ctx, result);
  return callReplacement(ctx,
                         {function,
                          {ctx.args.begin(), ctx.args.end()},
                          {ctx.shadows.begin(), ctx.shadows.end()},
                          ctx.positional,
                          ctx.kwnames},
                         result);
}

std::optional<Flow> enterPolyfill(CallContext& ctx, const char* name, Shadow& result) {
  return isDirect(ctx) ? std::optional<Flow>(redirect(ctx, name, result)) : std::nullopt;
}

std::optional<Flow> enterClassPolyfill(CallContext& ctx, const char* name, Shadow& result) {
  PyObject* function = polyfill(name);
  if (function == nullptr || ctx.popped < 2 || ctx.positional == 0) return std::nullopt;
  PyObject*& slot = ctx.act.peek(calleeDepth(ctx.act, static_cast<int>(ctx.popped)));
  if (slot == nullptr || !PyCFunction_Check(slot) || PyCFunction_GET_SELF(slot) != ctx.args[0])
    return std::nullopt;
  const pyapi::Ref<> kept = pyapi::steal(std::exchange(slot, PyMethod_New(function, ctx.args[0])));
  CallContext inner = ctx;
  inner.of(function, Shadow::constant(), ctx.args.begin(), ctx.shadows.begin(), ctx.positional, ctx.kwnames);
  return inlineFunction(inner, result);
}

// `operator.iadd(list, more)`, `operator.setitem(dict, key, value)`: does what the statement does.
Flow operatorModel(CallContext& ctx, Shadow& result) {
  const bool tensor = ctx.total() > 0 && torchapi::isTensor(ctx.args[0]);
  const bool plain = ctx.total() == 2 && isPlain(ctx.args[0]) && isPlain(ctx.args[1]);
  const std::string name = polyfillOf(ctx.callable);
  if ((tensor || plain) && name != "call") return arithmeticModel(ctx, result);
  if (auto flow = enterPolyfill(ctx, ("operator_" + name).c_str(), result)) return *flow;
  return opaqueModel(ctx, result);
}

void registerPolyfillModels() { addTable<kRows>(); }

}  // namespace kintsugi::capture
