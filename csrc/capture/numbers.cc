// Arithmetic on numbers that are known only at run time.
#include "capture/numbers.h"

#include "capture/recorder_tables.h"

#include "pyapi/number.h"
#include "pyapi/opcodes.h"
#include "support/python_power.h"

namespace kintsugi::capture {

using ir::Op;
using ir::Operand;
using ir::TypeKind;

namespace {

struct Number {
  Operand operand;
  TypeKind kind = TypeKind::kNone;
};

std::optional<Number> numberOf(RecordContext& rec, Shadow& shadow, PyObject* object) {
  Number n;
  if (shadow.isValue()) {
    n.operand = Operand::value(shadow.valueId());
    n.kind = rec.trace().values[shadow.valueId()].kind;
  } else if (PyLong_CheckExact(object)) {
    int overflow = 0;
    int64_t v = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (overflow != 0 || !rec.guards.pin(shadow, object)) return std::nullopt;
    n = {Operand::integer(v), TypeKind::kInt};
  } else if (PyFloat_CheckExact(object)) {
    if (!rec.guards.pin(shadow, object)) return std::nullopt;
    n = {Operand::number(PyFloat_AS_DOUBLE(object)), TypeKind::kFloat};
  }
  if (n.kind != TypeKind::kInt && n.kind != TypeKind::kFloat) return std::nullopt;
  return n;
}

}  // namespace

Shadow numberInput(RecordContext& rec, ir::SourceId id, PyObject* object) {
  rec.guards.guard(guard::GuardKind::kType, id,
                   rec.guards.constId(reinterpret_cast<PyObject*>(Py_TYPE(object))));
  if (PyLong_CheckExact(object)) rec.guards.guard(guard::GuardKind::kFits, id);
  const ir::Type type{PyLong_CheckExact(object) ? TypeKind::kInt : TypeKind::kFloat, ir::kNone};
  const size_t at = rec.steps.emit(Op::kInput, {Operand::source(id)}, {type}, ir::kNone);
  return Shadow::value(rec.trace().code[at].firstResult);
}

Shadow promoted(RecordContext& rec, Shadow shadow, PyObject* object) {
  if (!shadow.isSource() || rec.tables.blocks.isPending()) return shadow;
  if (rec.tables.document.sources.nodes[shadow.sourceId()].kind != guard::SourceKind::kValue) return shadow;
  if (!PyFloat_CheckExact(object) && !(PyLong_CheckExact(object) && pyapi::fitsInt64(object))) return shadow;
  if (!rec.tables.sources.shadowOf(shadow.sourceId()).isValue()) {
    const Shadow value = numberInput(rec, shadow.sourceId(), object);
    rec.tables.sources.setShadow(shadow.sourceId(), value);
  }
  return rec.tables.sources.shadowOf(shadow.sourceId());
}

bool isNumberValue(RecordContext& rec, Shadow shadow) {
  if (!shadow.isValue()) return false;
  const TypeKind kind = rec.trace().values[shadow.valueId()].kind;
  return kind == TypeKind::kInt || kind == TypeKind::kFloat || kind == TypeKind::kBool;
}

bool variesAsNumber(RecordContext& rec, Shadow shadow, PyObject* object) {
  if (shadow.isVirtual() && PyTuple_Check(object)) {
    const Shadows parts = rec.objects.virtualOf(shadow).parts;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (variesAsNumber(rec, parts[i], PyTuple_GET_ITEM(object, static_cast<Py_ssize_t>(i)))) return true;
    }
    return false;
  }
  return isNumberValue(rec, promoted(rec, shadow, object));
}

namespace {

struct BinaryRow {
  int nb;
  Op ints;
  Op floats;
};
// kRet stands for "no such operation".
constexpr BinaryRow kBinary[] = {
    {op::NB_ADD, Op::kIntAdd, Op::kFloatAdd},
    {op::NB_SUBTRACT, Op::kIntSub, Op::kFloatSub},
    {op::NB_MULTIPLY, Op::kIntMul, Op::kFloatMul},
    {op::NB_TRUE_DIVIDE, Op::kFloatTrueDiv, Op::kFloatTrueDiv},
    {op::NB_FLOOR_DIVIDE, Op::kIntFloorDiv, Op::kRet},
    {op::NB_REMAINDER, Op::kIntMod, Op::kRet},
    {op::NB_POWER, Op::kRet, Op::kFloatPow},
};
bool divides(Op op) { return op == Op::kFloatTrueDiv || op == Op::kIntFloorDiv || op == Op::kIntMod; }

// No instruction raises ZeroDivisionError, so a zero divisor is pinned and the division is left to Python.
bool isZero(PyObject* o) { return PyFloat_Check(o) ? PyFloat_AS_DOUBLE(o) == 0.0 : PyObject_IsTrue(o) == 0; }

// True if the power is a float. Where it is complex or overflows, an instruction would exit in each run.
bool isFloatPower(PyObject* x, PyObject* y) {
  const double base = PyFloat_AsDouble(x), exponent = PyFloat_AsDouble(y);
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    return false;
  }
  return pythonPower(base, exponent).has_value();
}

// An int that does not fit 64 bits is no value of a trace: the operation that gives one is a step. Both
// operands fit, as values and constants of a trace do.
bool overflows(Op op, PyObject* x, PyObject* y) {
  if (op != Op::kIntAdd && op != Op::kIntSub && op != Op::kIntMul && op != Op::kIntFloorDiv) return false;
  const int64_t a = PyLong_AsLongLong(x), b = PyLong_AsLongLong(y);
  int64_t result = 0;
  if (op == Op::kIntAdd) return __builtin_add_overflow(a, b, &result);
  if (op == Op::kIntSub) return __builtin_sub_overflow(a, b, &result);
  if (op == Op::kIntMul) return __builtin_mul_overflow(a, b, &result);
  return b == -1 && __builtin_sub_overflow(int64_t{0}, a, &result);
}

// The same for int(float), of a finite float.
bool isTooLarge(PyObject* o) {
  return PyFloat_Check(o) && !(PyFloat_AS_DOUBLE(o) >= -0x1p63 && PyFloat_AS_DOUBLE(o) < 0x1p63);
}

constexpr Op kCompare[] = {Op::kNumLt, Op::kNumLe, Op::kNumEq, Op::kNumNe, Op::kNumGt, Op::kNumGe};

}  // namespace

std::optional<Shadow> numberBinary(RecordContext& rec, int nb, Shadow a, PyObject* x, Shadow b, PyObject* y) {
  if (nb >= op::NB_INPLACE_ADD) nb -= op::NB_INPLACE_ADD;
  for (const BinaryRow& row : kBinary) {
    if (row.nb != nb) continue;
    auto left = numberOf(rec, a, x);
    auto right = left ? numberOf(rec, b, y) : std::nullopt;
    if (!right) return std::nullopt;
    bool ints = left->kind == TypeKind::kInt && right->kind == TypeKind::kInt;
    Op op = ints ? row.ints : row.floats;
    if (op == Op::kRet || (divides(op) && isZero(y)) || overflows(op, x, y)) return std::nullopt;
    if (op == Op::kFloatPow && !isFloatPower(x, y)) return std::nullopt;
    TypeKind result = ints && nb != op::NB_TRUE_DIVIDE ? TypeKind::kInt : TypeKind::kFloat;
    bool exits = (ir::opInfo(op).flags & ir::kExit) != 0;
    ir::StateId snap = exits ? rec.snapshots.stateBefore() : ir::kNone;
    if (exits && !rec.trace().states[snap].rebuildable) return std::nullopt;
    size_t at = rec.steps.emit(op, {left->operand, right->operand}, {{result, ir::kNone}}, snap);
    return Shadow::value(rec.trace().code[at].firstResult);
  }
  return std::nullopt;
}

std::optional<Shadow> numberCompare(RecordContext& rec, int op, Shadow a, PyObject* x, Shadow b,
                                    PyObject* y) {
  auto left = numberOf(rec, a, x);
  auto right = left ? numberOf(rec, b, y) : std::nullopt;
  if (!right) return std::nullopt;
  size_t at = rec.steps.emit(kCompare[op], {left->operand, right->operand}, {{TypeKind::kBool, ir::kNone}},
                             ir::kNone);
  return Shadow::value(rec.trace().code[at].firstResult);
}

std::optional<Shadow> numberNegative(RecordContext& rec, Shadow a, PyObject* x) {
  auto n = numberOf(rec, a, x);
  if (!n) return std::nullopt;
  bool isInt = n->kind == TypeKind::kInt;
  if (isInt && PyLong_AsLongLong(x) == INT64_MIN) return std::nullopt;
  ir::StateId snap = isInt ? rec.snapshots.stateBefore() : ir::kNone;
  if (isInt && !rec.trace().states[snap].rebuildable) return std::nullopt;
  size_t at = rec.steps.emit(isInt ? Op::kIntNeg : Op::kFloatNeg, {n->operand}, {{n->kind, ir::kNone}}, snap);
  return Shadow::value(rec.trace().code[at].firstResult);
}

std::optional<Shadow> numberConvert(RecordContext& rec, TypeKind to, Shadow a, PyObject* x) {
  TypeKind from = rec.trace().values[a.valueId()].kind;
  if (from == to) return a;
  if (to == TypeKind::kInt && isTooLarge(x)) return std::nullopt;
  if (from != TypeKind::kInt && from != TypeKind::kFloat && from != TypeKind::kBool) return std::nullopt;
  Op op = to == TypeKind::kInt ? Op::kToInt : to == TypeKind::kFloat ? Op::kToFloat : Op::kToBool;
  ir::StateId snap = op == Op::kToBool ? ir::kNone : rec.snapshots.stateBefore();
  if (snap != ir::kNone && !rec.trace().states[snap].rebuildable) return std::nullopt;
  size_t at = rec.steps.emit(op, {Operand::value(a.valueId())}, {{to, ir::kNone}}, snap);
  return Shadow::value(rec.trace().code[at].firstResult);
}

}  // namespace kintsugi::capture
