// Record handlers: arithmetic, comparison, identity, membership and formatting.
#include <string>
#include <string_view>

#include "capture/attributes.h"
#include "capture/calls/model.h"
#include "capture/calls/numpy.h"
#include "capture/enum_member.h"
#include "capture/numbers.h"
#include "capture/open_values.h"
#include "capture/record/fallback.h"
#include "capture/record/overloads.h"
#include "capture/record/table.h"
#include "capture/shown.h"
#include "capture/tables/pauses.h"
#include "pyapi/code.h"
#include "pyapi/containers.h"
#include "pyapi/known_objects.h"
#include "pyapi/lazy.h"
#include "pyapi/opcodes.h"
#include "pyapi/plain.h"
#include "pyapi/types.h"
#include "torchapi/known_torch.h"

namespace kintsugi::capture {

namespace {

struct OperatorRow {
  const char* function;  // its name in `operator`
  const char* method;    // the special method of the left operand
};
// Indexed by BINARY_OP's argument, as in opcode.h; the in-place operators come last.
constexpr OperatorRow kOperators[] = {
    {"add", "__add__"},           {"and_", "__and__"},
    {"floordiv", "__floordiv__"}, {"lshift", "__lshift__"},
    {"matmul", "__matmul__"},     {"mul", "__mul__"},
    {"mod", "__mod__"},           {"or_", "__or__"},
    {"pow", "__pow__"},           {"rshift", "__rshift__"},
    {"sub", "__sub__"},           {"truediv", "__truediv__"},
    {"xor", "__xor__"},           {"iadd", "__iadd__"},
    {"iand", "__iand__"},         {"ifloordiv", "__ifloordiv__"},
    {"ilshift", "__ilshift__"},   {"imatmul", "__imatmul__"},
    {"imul", "__imul__"},         {"imod", "__imod__"},
    {"ior", "__ior__"},           {"ipow", "__ipow__"},
    {"irshift", "__irshift__"},   {"isub", "__isub__"},
    {"itruediv", "__itruediv__"}, {"ixor", "__ixor__"},
};
constexpr OperatorRow kComparisons[] = {{"lt", "__lt__"}, {"le", "__le__"}, {"eq", "__eq__"},
                                        {"ne", "__ne__"}, {"gt", "__gt__"}, {"ge", "__ge__"}};

bool isSequence(PyObject* o) { return PyTuple_Check(o) || PyList_CheckExact(o); }

// Tuples and torch.Size: C code of torch.Size joins and compares them as tuples do.
bool isTorchSize(PyObject* o) { return pyapi::isA(o, torchapi::Known::kTorchSize); }
bool isTupleLike(PyObject* o) { return PyTuple_CheckExact(o) || isTorchSize(o); }

// `tuple + tuple`, `list + list`, `list * n`: the items keep their shadows.
std::optional<Shadows> concatenated(RecordContext& rec, int nb, Shadow a, PyObject* x, Shadow b,
                                    PyObject* y) {
  bool add = nb == op::NB_ADD || (nb == op::NB_INPLACE_ADD && PyTuple_Check(x));
  const bool alike = isSequence(x) && (Py_TYPE(x) == Py_TYPE(y) || (isTupleLike(x) && isTupleLike(y)));
  if (add && alike) {
    auto left = rec.objects.elementsOf(a, x);
    auto right = left ? rec.objects.elementsOf(b, y) : std::nullopt;
    if (!right) return std::nullopt;
    left->insert(left->end(), right->begin(), right->end());
    return left;
  }
  if (nb == op::NB_MULTIPLY && (isSequence(x) || isSequence(y))) {
    if (isSequence(y)) {
      std::swap(a, b);
      std::swap(x, y);
    }
    if (!PyLong_CheckExact(y) || !rec.guards.pin(b, y)) return std::nullopt;
    auto once = rec.objects.elementsOf(a, x);
    if (!once) return std::nullopt;
    Shadows parts;
    for (int64_t n = PyLong_AsLongLong(y); n > 0; --n) parts.insert(parts.end(), once->begin(), once->end());
    return parts;
  }
  return std::nullopt;
}

// Joining torch.Size objects converts the items to ints. An item that is not an int, such as a bool, becomes
// another object, so it is pinned.
bool pinConverted(RecordContext& rec, PyObject* x, PyObject* y, Shadows& parts) {
  if (!PyTuple_Check(x) || !PyTuple_Check(y)) return true;
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto at = static_cast<Py_ssize_t>(i);
    const Py_ssize_t left = PyTuple_GET_SIZE(x);
    PyObject* part = at < left ? PyTuple_GET_ITEM(x, at) : PyTuple_GET_ITEM(y, at - left);
    if (PyLong_CheckExact(part)) {
      rec.guards.guardType(parts[i], part);
    } else if (!rec.guards.pin(parts[i], part)) {
      return false;
    } else {
      parts[i] = Shadow::constant();
    }
  }
  return rec.live();
}

Shadow describeSequence(RecordContext& rec, PyObject* result, Shadows parts) {
  if (PyTuple_Check(result)) return rec.objects.tupleOf(result, std::move(parts));
  Shadow list = rec.objects.newVirtual(VirtualKind::kList, result);
  rec.objects.virtualOf(list).parts = std::move(parts);
  return list;
}

bool pinnable(RecordContext& rec, Shadow s, PyObject* o) {
  return isPlainDeep(o) && !rec.guards.comesFromStep(s);
}

// Types as in annotations: int, list[int], Callable[[int], str], None, and unions of these.
bool isTypeForm(PyObject* object) {
  return PyType_Check(object) || object == Py_None || PyObject_TypeCheck(object, &Py_GenericAliasType) ||
         pyapi::isA(object, pyapi::Known::kUnionType);
}

// For sets whose elements are known.
Flow setOp(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  Flow flow = rec.execute(act, in);
  if (flow != Flow::kNext || !rec.live()) return flow;
  f.drop(2);
  auto known = rec.objects.knownObject(act.peek(1));  // it was changed in place
  f.push(known ? *known : rec.objects.newVirtual(VirtualKind::kSet, act.peek(1)));
  if (known) rec.objects.noteChange();
  return flow;
}

bool isSetOp(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  if (!PyAnySet_CheckExact(act.peek(2)) || !PyAnySet_CheckExact(act.peek(1))) return false;
  const bool inPlace = in.arg >= op::NB_INPLACE_ADD && PySet_CheckExact(act.peek(2));
  return (!inPlace || f.top(2).isVirtual()) && pinSet(rec, f.top(2), act.peek(2)) &&
         pinSet(rec, f.top(1), act.peek(1));
}

// True if all operands are constant numbers, and at least one of them is numpy's. The result is then a
// constant, too.
bool areConstants(ShadowFrame& f, Activation& act, int count) {
  bool numpy = false;
  for (int i = 1; i <= count; ++i) {
    if (!f.top(i).isConst() || !(isNumpyScalar(act.peek(i)) || isPlain(act.peek(i)))) return false;
    numpy = numpy || isNumpyScalar(act.peek(i));
  }
  return numpy;
}

// True if the operator has no instruction of its own but its result is plain, so that numbers need not be
// pinned.
bool computesPlain(PyObject* x, PyObject* y) {
  const auto isNumber = [](PyObject* o) { return PyLong_Check(o) || PyFloat_Check(o); };
  const bool text = PyUnicode_CheckExact(x) || PyUnicode_CheckExact(y);
  return isPlainDeep(x) && isPlainDeep(y) && (text || (isNumber(x) && isNumber(y)));
}

Flow binaryOp(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  PyObject *x = act.peek(2), *y = act.peek(1);
  Shadow a = f.top(2), b = f.top(1);
  const OperatorRow& row = kOperators[in.arg];
  if (torchapi::isTensor(x) || torchapi::isTensor(y))
    return operatorStep(rec, f, act, in, row.function, 2, true);
  if (areConstants(f, act, 2)) return pinAndRun(rec, f, act, in, 2);
  if (isSetOp(rec, f, act, in)) return setOp(rec, f, act, in);
  if (in.arg >= op::NB_INPLACE_ADD && PySet_CheckExact(x) && !a.isVirtual()) {
    const pyapi::Ref<> set = pyapi::newRef(x);
    const Flow flow = operatorStep(rec, f, act, in, row.function, 2, true);
    if (rec.live()) {  // as behind set.add(): see sets.cc
      Overlay& overlay = rec.objects.makeOverlay(set.get());
      overlay.dirty = overlay.varies = true;
    }
    return flow;
  }
  const auto isPinned = [&rec](Shadow s) {
    return s.isConst() || (s.isSource() && !rec.guards.comesFromStep(s));
  };
  if (in.arg == op::NB_OR && isTypeForm(x) && isTypeForm(y) && isPinned(a) && isPinned(b)) {
    return pinAndRun(rec, f, act, in, 2);
  }
  const Shadow left = promoted(rec, a, x), right = promoted(rec, b, y);
  if (isNumberValue(rec, left) || isNumberValue(rec, right)) {
    if (auto result = numberBinary(rec, static_cast<int>(in.arg), left, x, right, y)) {
      Flow flow = rec.execute(act, in);
      if (flow != Flow::kNext) return flow;
      f.drop(2);
      f.push(*result);
      return flow;
    }
    if (rec.live() && computesPlain(x, y)) {
      return operatorStep(rec, f, act, in, row.function, 2, true, CallKind::kPure);
    }
  } else if (auto parts = concatenated(rec, static_cast<int>(in.arg), a, x, b, y)) {
    const bool size = isTorchSize(x) || isTorchSize(y);
    if (size && !pinConverted(rec, x, y, *parts)) return rec.execute(act, in);
    Flow flow = rec.execute(act, in);
    if (flow != Flow::kNext || !rec.live()) return flow;
    f.drop(2);
    f.push(describeSequence(rec, act.peek(1), std::move(*parts)));
    return flow;
  }
  if (!rec.live()) return rec.execute(act, in);
  if (in.arg == op::NB_INPLACE_ADD && PyList_CheckExact(x)) return extendInPlace(rec, f, act, in);
  if ((isPlainDeep(x) && isPlainDeep(y)) &&
      (isNumberValue(rec, a) || isNumberValue(rec, b) || (pinnable(rec, a, x) && pinnable(rec, b, y)))) {
    return pinAndRun(rec, f, act, in, 2);
  }
  if (PyUnicode_CheckExact(x) && computesPlain(x, y) && variesAsNumber(rec, b, y)) {  // `text % (numbers)`
    return operatorStep(rec, f, act, in, row.function, 2, true, CallKind::kPure);
  }
  if (PyUnicode_CheckExact(x) && pinnable(rec, a, x) && PyTuple_CheckExact(y) && canFold(rec, b, y, true) &&
      rec.guards.tryPinDeep(f.top(1), y)) {
    return pinAndRun(rec, f, act, in, 2);
  }
  if (auto flow = overloadedOperator(rec, f, act, in)) return *flow;
  return operatorStep(rec, f, act, in, row.function, 2, true);
}

Flow unary(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  PyObject* x = act.peek(1);
  const char* function = in.op == op::UNARY_NEGATIVE ? "neg" : in.op == op::UNARY_INVERT ? "invert" : "pos";
  if (torchapi::isTensor(x)) return operatorStep(rec, f, act, in, function, 1, true);
  if (areConstants(f, act, 1)) return pinAndRun(rec, f, act, in, 1);
  const Shadow number = promoted(rec, f.top(), x);
  if (in.op == op::UNARY_NEGATIVE && isNumberValue(rec, number)) {
    if (auto result = numberNegative(rec, number, x)) {
      Flow flow = rec.execute(act, in);
      if (flow == Flow::kNext) f.top() = *result;
      return flow;
    }
  }
  if (isNumberValue(rec, number) && rec.live())
    return operatorStep(rec, f, act, in, function, 1, true, CallKind::kPure);
  if (isPlain(x)) return pinAndRun(rec, f, act, in, 1);
  const std::string special = std::string("__") + function + "__";
  PyObject* method = pythonMethod(x, special.c_str());
  if (method != nullptr && in.op == op::UNARY_INVERT && isPlainFlag(Py_TYPE(x))) {
    const Paused paused(rec.pauses);  // enum's cache of the answer is filled, unseen by the program
    pyapi::Ref<> answer = pyapi::steal(PyObject_CallOneArg(method, x));
    PyErr_Clear();
  }
  if (method != nullptr) return methodStep(rec, f, act, in, method, {1}, true);
  return operatorStep(rec, f, act, in, function, 1, true);
}

// True if `==` compares such objects by identity.
bool comparesByIdentity(PyObject* o) {
  return pyapi::comparesByIdentity(o) || PyType_Check(o) || PyFunction_Check(o) || PyModule_Check(o) ||
         PyCFunction_Check(o);
}

// Can the object be one NaN with another one in some run? Numbers that the trace computes are objects of
// their own.
bool mayBeKnownNan(RecordContext& rec, Shadow shadow, PyObject* number) {
  if (!PyFloat_Check(number)) return false;
  return shadow.isValue() ? rec.guards.isInput(shadow.valueId()) : pyapi::holdsNan(number);
}

// Containers take an object for equal to itself, though a NaN is not. One of the two is a number that varies.
bool guardItemEquality(RecordContext& rec, Shadow s, PyObject* item, Shadow t, PyObject* other, bool equal) {
  if (s.isValue() && t.isValue() && s.valueId() == t.valueId()) return true;
  const bool nan = pyapi::holdsNan(item) || pyapi::holdsNan(other);
  if (!equal || nan) {
    if (mayBeKnownNan(rec, s, item) && mayBeKnownNan(rec, t, other) &&
        !rec.guards.pinIdentity(s, item, t, other))
      return false;
    if (equal) return true;  // it is the same object in each run
  }
  auto truth = numberCompare(rec, Py_EQ, s, item, t, other);
  return truth && rec.guards.guardTruth(truth->valueId(), equal);
}

// `==` and `!=` of tuples or lists that hold numbers of the trace, or the same objects. The comparison of
// each pair of items is guarded, not the numbers themselves. False: it is another comparison, or the
// recording has ended.
bool guardEquality(RecordContext& rec, Shadow a, PyObject* x, Shadow b, PyObject* y) {
  const bool tuples = isTupleLike(x) && isTupleLike(y);
  if (!tuples && !(PyList_CheckExact(x) && PyList_CheckExact(y))) return false;
  auto left = rec.objects.elementsOf(a, x);
  auto right = left ? rec.objects.elementsOf(b, y) : std::nullopt;
  if (!right) return false;
  if (left->size() != right->size()) return true;
  for (size_t i = 0; i < left->size(); ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(x, static_cast<Py_ssize_t>(i));
    PyObject* other = PySequence_Fast_GET_ITEM(y, static_cast<Py_ssize_t>(i));
    Shadow &s = (*left)[i], &t = (*right)[i];
    if (item == other && !isPlain(item)) {  // C code does not compare an object with itself
      if (s.isValue() || t.isValue() || !rec.guards.pinIdentity(s, item, t, other)) return false;
      continue;
    }
    if (!isPlain(item) || !isPlain(other)) return false;
    const int equal = PyObject_RichCompareBool(item, other, Py_EQ);
    if (isNumberValue(rec, s) || isNumberValue(rec, t)) {
      if (!guardItemEquality(rec, s, item, t, other, equal == 1)) return false;
    } else if (!rec.guards.pin(s, item) || !rec.guards.pin(t, other)) {
      return false;
    }
    if (equal != 1) return true;
  }
  return true;
}

// Does C code that orders tuples ask methods in Python of what they hold?
bool holdsPythonMethods(PyObject* tuple, const char* method) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
    PyObject* item = PyTuple_GET_ITEM(tuple, i);
    if (PyTuple_CheckExact(item) && holdsPythonMethods(item, method)) return true;
    if (pythonMethod(item, "__eq__") != nullptr || pythonMethod(item, method) != nullptr) return true;
  }
  return false;
}

// Such tuples are compared by a polyfill, item by item. Nothing: they are other operands.
std::optional<Flow> compareItems(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  PyObject *x = act.peek(2), *y = act.peek(1);
  const char* method = kComparisons[in.arg].method;
  if (!PyTuple_CheckExact(x) || !PyTuple_CheckExact(y) || rec.guards.comesFromStep(f.top(2)) ||
      rec.guards.comesFromStep(f.top(1)) || !(holdsPythonMethods(x, method) || holdsPythonMethods(y, method)))
    return std::nullopt;
  if (in.op == op::COMPARE_AND_TEST) return testComparison(rec, f, act, in);
  PyObject* function = polyfill("compare_tuples");
  PyObject* order = polyfill((std::string("order_") + kComparisons[in.arg].function).c_str());
  if (function == nullptr || order == nullptr) return std::nullopt;
  rec.guards.guardType(f.top(2), x);
  rec.guards.guardType(f.top(1), y);
  PyObject* unequal = in.arg == Py_EQ ? Py_False : in.arg == Py_NE ? Py_True : Py_None;
  return rec.callees.callInPlace(f, act, in, function, 2, {order, unequal});
}

// For a comparison whose result may be any object.
// A set of plain members: comparing it runs C code alone, which keeps nothing.
bool isPlainSet(PyObject* object) {
  if (!PyAnySet_CheckExact(object)) return false;
  PyObject* item = nullptr;
  for (Py_ssize_t at = 0; pyapi::nextSetItem(object, &at, &item);) {
    if (!isPlainDeep(item)) return false;
  }
  return true;
}

Flow compareAny(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  if (in.op == op::COMPARE_AND_TEST) return testComparison(rec, f, act, in);
  const bool pure = isPlainSet(act.peek(2)) && isPlainSet(act.peek(1));
  return operatorStep(rec, f, act, in, kComparisons[in.arg].function, 2, true,
                      pure ? std::optional(CallKind::kPure) : std::nullopt);
}

// COMPARE_OP and COMPARE_AND_TEST.
Flow compareOp(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  PyObject *x = act.peek(2), *y = act.peek(1);
  Shadow a = f.top(2), b = f.top(1);
  const OperatorRow& row = kComparisons[in.arg];
  if (torchapi::isTensor(x) || torchapi::isTensor(y)) return compareAny(rec, f, act, in);
  const Shadow left = promoted(rec, a, x), right = promoted(rec, b, y);
  if (isNumberValue(rec, left) || isNumberValue(rec, right)) {
    if (auto result = numberCompare(rec, static_cast<int>(in.arg), left, x, right, y)) {
      Flow flow = rec.execute(act, in);
      if (flow != Flow::kNext) return flow;
      f.drop(2);
      f.push(*result);
      return flow;
    }
    return rec.live() ? pinAndRun(rec, f, act, in, 2) : rec.execute(act, in);
  }
  if ((isVaryingText(rec, a, x) && isPlain(y)) || (isVaryingText(rec, b, y) && isPlain(x))) {
    rec.guards.guardType(a, x);
    rec.guards.guardType(b, y);
    return operatorStep(rec, f, act, in, row.function, 2, true, CallKind::kPure);
  }
  if (auto flow = overloadedComparison(rec, f, act, in)) return *flow;
  for (int i : {2, 1}) {
    if (pythonMethod(act.peek(i), row.method) != nullptr) return compareAny(rec, f, act, in);
  }
  const bool equality = in.arg == Py_EQ || in.arg == Py_NE;
  const auto decided = [&] {
    Flow flow = rec.execute(act, in);
    if (flow != Flow::kNext) return flow;
    f.drop(2);
    f.push(Shadow::constant());
    return flow;
  };
  if (equality && (rec.guards.comesFromStep(a) || rec.guards.comesFromStep(b)) &&
      guardEquality(rec, a, x, b, y))
    return decided();
  if (!rec.live()) return rec.execute(act, in);
  bool simple = true;
  for (int i : {2, 1}) {
    PyObject* o = act.peek(i);
    simple = simple && (isPlain(o) || isSequence(o) || comparesByIdentity(o) || f.top(i).isConst() ||
                        isEnumMember(o) || (!rec.guards.comesFromStep(f.top(i)) && isIdentityValue(o)));
  }
  if (simple && rec.guards.tryPinDeep(f.top(2), x) && rec.guards.tryPinDeep(f.top(1), y))
    return pinAndRun(rec, f, act, in, 2);
  if (rec.live()) {
    if (auto flow = compareItems(rec, f, act, in)) return *flow;
  }
  if (rec.live() && equality && guardEquality(rec, a, x, b, y)) return decided();
  return rec.live() ? compareAny(rec, f, act, in) : rec.execute(act, in);
}

// True if the identity has to be asked in each run: a step has returned one object, and the other is one that
// the trace has made and handed out.
bool mayBeSame(RecordContext& rec, Shadow step, Shadow other, PyObject* object) {
  if (!step.isSource() || !rec.guards.comesFromStep(step) || object == Py_None) return false;
  return other.isVirtual() ? rec.objects.virtualOf(other).value != ir::kNone
                           : other.isValue() && torchapi::isTensor(object);
}

Flow isOp(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  if (mayBeSame(rec, f.top(2), f.top(1), act.peek(1)) || mayBeSame(rec, f.top(1), f.top(2), act.peek(2))) {
    ir::Operand left, right;
    const bool known = rec.snapshots.operandOf(f.top(2), act.peek(2), left) &&
                       rec.snapshots.operandOf(f.top(1), act.peek(1), right);
    if (!known) rec.abort(diag::Code::KTG0302, {pyapi::typeNameOf(act.peek(2))});
    if (!known ||
        !rec.guards.pinAnswer("is_", {left, right}, act.peek(2) == act.peek(1) ? Py_True : Py_False))
      return rec.execute(act, in);
  }
  if (!rec.guards.pinIdentity(f.top(2), act.peek(2), f.top(1), act.peek(1))) return rec.execute(act, in);
  Flow flow = rec.execute(act, in);
  f.drop(2);
  f.push(Shadow::constant());
  return flow;
}

// True if C code alone searches the container for a string, so that its keys need not be guarded.
bool holdsPlain(RecordContext& rec, Shadow shadow, PyObject* container) {
  if (shadow.isConst()) return isPlainDeep(container);
  if (!PyUnicode_CheckExact(container) && !PyDict_CheckExact(container)) return false;
  rec.guards.guardType(shadow, container);
  return shadow.isSource();
}

Flow containsOp(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  PyObject *item = act.peek(2), *container = act.peek(1);
  Shadow a = f.top(2), b = f.top(1);
  auto finish = [&](Shadow result) {
    Flow flow = rec.execute(act, in);
    if (flow != Flow::kNext || !rec.live()) return flow;
    f.drop(2);
    f.push(result);
    return flow;
  };
  const bool ownSet =
      b.isVirtual() && rec.objects.virtualOf(b).kind == VirtualKind::kSet && PyAnySet_CheckExact(container);
  if (ownSet && isMemberByIdentity(a, item)) {
    a = memberShadow(rec, a, item);
    if (!rec.live() || !pinMember(rec, a, item, b)) return rec.execute(act, in);
    const Paused paused(rec.pauses);
    return finish(Shadow::constant());
  }
  // An older object that is compared by identity can't be an object that the trace has made.
  if (ownSet && a.isSource() && !rec.guards.comesFromStep(a) && !torchapi::isTensor(item) &&
      hashesByIdentity(item) && rec.guards.tryPinDeep(f.top(2), item)) {
    return finish(Shadow::constant());
  }
  if (torchapi::isTensor(container) || torchapi::isTensor(item)) return fallbackContains(rec, f, act, in);
  if (b.isConst() && rec.guards.isFrozen(container) && rec.guards.tryPinDeep(a, item))
    return finish(Shadow::constant());
  const bool texts = PyUnicode_CheckExact(item) && isVaryingText(rec, b, container);
  if (texts || (isVaryingText(rec, a, item) && holdsPlain(rec, b, container))) {
    rec.guards.guardType(a, item);
    rec.guards.guardType(b, container);
    return fallbackContains(rec, f, act, in);
  }
  if (b.isSource() && PyDict_CheckExact(container) && a.isValue() && isVaryingKey(rec, a, item)) {
    rec.guards.guardType(b, container);
    return fallbackContains(rec, f, act, in);
  }
  if (PyDict_Check(container) && !b.isValue() && rec.objects.plainMembership(container)) {
    if ((!isPlainDeep(item) && !isIdentityValue(item)) || pyapi::needsProgram(container, item))
      return fallbackContains(rec, f, act, in);
    if (!rec.guards.pin(a, item)) return rec.execute(act, in);
    PyObject* value = PyDict_GetItemWithError(container, item);
    PyErr_Clear();
    if (value != nullptr) {
      rec.objects.dictEntry(b, container, item, value);
    } else {
      rec.heap.lacksKey(b, container, item);
    }
    return finish(Shadow::constant());
  }
  if (pythonMethod(container, "__contains__") != nullptr && !b.isValue())
    return rec.callees.callInPlace(f, act, in, polyfill(in.arg == 1 ? "says_it_lacks" : "says_it_has"), 2);
  const bool asked =
      specialMethod(Py_TYPE(container), "__contains__") == nullptr &&
      (pythonMethod(container, "__iter__") != nullptr || pythonMethod(container, "__getitem__") != nullptr);
  if (PyObject* function = asked ? polyfill(in.arg == 1 ? "lacks_item" : "has_item") : nullptr) {
    rec.guards.guardType(b, container);
    rec.guards.guardTypeVersion(Py_TYPE(container));
    return rec.callees.callInPlace(f, act, in, function, 2);
  }
  bool simple = isSequence(container) || PyUnicode_CheckExact(container) || PyAnySet_CheckExact(container) ||
                PyDictViewSet_Check(container) || PyRange_Check(container);
  const bool varies =
      simple && isNumberValue(rec, promoted(rec, a, item)) && !variesAsNumber(rec, b, container);
  if (varies && rec.live() && rec.guards.pinContainer(f.top(1), container))
    return fallbackContains(rec, f, act, in);
  if (simple && rec.live() && !pyapi::holdsNan(item) && rec.guards.tryPinDeep(f.top(2), item) &&
      rec.guards.pinMembership(f.top(1), container, item)) {
    return finish(Shadow::constant());
  }
  if (!rec.live()) return rec.execute(act, in);
  return fallbackContains(rec, f, act, in);
}

// FORMAT_VALUE, and CONVERT_VALUE, which only applies str(), repr() or ascii().
Flow formatValue(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  bool withSpec = in.op == op::FORMAT_VALUE && (in.arg & FVS_MASK) == FVS_HAVE_SPEC;
  int popped = withSpec ? 2 : 1;
  PyObject* value = act.peek(popped);
  Shadow shadow = f.top(popped);
  Shadow spec = withSpec ? f.top(1) : Shadow::constant();
  bool specOk = !withSpec || rec.guards.pin(spec, act.peek(1));
  if (!specOk) return rec.execute(act, in);
  if (pinText(rec, shadow, value)) {
    Flow flow = rec.execute(act, in);
    if (flow != Flow::kNext) return flow;
    f.drop(popped);
    f.push(Shadow::constant());
    return flow;
  }
  if (pinnable(rec, shadow, value) && !shadow.isValue()) return pinAndRun(rec, f, act, in, popped);
  uint32_t conversion = in.arg & FVC_MASK;
  static const char* names[] = {"format", "str", "repr", "ascii"};
  static const char* both[] = {"", "format_str", "format_repr", "format_ascii"};
  PyObject* callable = conversion != 0 && withSpec
                           ? polyfill(both[conversion])
                           : PyDict_GetItemString(PyEval_GetBuiltins(), names[conversion]);
  PyObject* args[] = {value, withSpec ? act.peek(1) : nullptr};
  Shadow shadows[] = {shadow, Shadow::constant()};
  CallContext ctx(rec, f, act, in);
  ctx.of(callable, Shadow::constant(), args, shadows, static_cast<size_t>(popped));
  Shadow result;
  Flow flow = rec.steps.callStep(ctx, rec.steps.stepKind(value), nullptr, result);
  if (flow != Flow::kNext || !rec.live()) return flow;
  f.drop(popped);
  f.push(result);
  return flow;
}

Flow buildString(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  int n = static_cast<int>(in.arg);
  bool constant = true;
  for (int i = 1; i <= n; ++i) constant = constant && !rec.guards.comesFromStep(f.top(i));
  if (constant) return pinAndRun(rec, f, act, in, n);
  static constinit pyapi::Lazy<PyObject*> joinSlot;
  PyObject* join = joinSlot.get([] { return PyObject_GetAttrString(PyUnicode_FromString(""), "join"); });
  pyapi::Ref<> pieces = pyapi::steal(PyTuple_New(n));
  Shadows parts;
  for (int i = n; i >= 1; --i) {
    PyTuple_SET_ITEM(pieces.get(), n - i, Py_NewRef(act.peek(i)));
    parts.push_back(f.top(i));
  }
  PyObject* args[] = {pieces.get()};
  Shadow shadows[] = {rec.objects.tupleOf(pieces.get(), std::move(parts))};
  CallContext ctx(rec, f, act, in);
  ctx.of(join, Shadow::constant(), args, shadows, 1);
  Shadow result;
  Flow flow = rec.steps.callStep(ctx, CallKind::kKnown, nullptr, result);
  if (flow != Flow::kNext || !rec.live()) return flow;
  f.drop(n);
  f.push(result);
  return flow;
}

}  // namespace

void registerOperatorRecords(RecordTable& t) {
  t[op::BINARY_OP] = binaryOp;
  t[op::UNARY_NEGATIVE] = t[op::UNARY_INVERT] = t[op::UNARY_POSITIVE] = unary;
  t[op::COMPARE_OP] = t[op::COMPARE_AND_TEST] = compareOp;
  t[op::IS_OP] = isOp;
  t[op::CONTAINS_OP] = containsOp;
  t[op::FORMAT_VALUE] = t[op::CONVERT_VALUE] = formatValue;
  t[op::BUILD_STRING] = buildString;
}

}  // namespace kintsugi::capture
