// Operators whose special methods are Python code. Polyfills call these methods in CPython's order, so that
// each method is a frame like any other and may return NotImplemented.
#include <array>
#include <string>
#include <string_view>

#include "capture/calls/model.h"
#include "capture/record/overloads.h"
#include "pyapi/opcodes.h"
#include "pyapi/types.h"

namespace kintsugi::capture {

namespace {

constexpr std::array<const char*, 13> kNames = {"add", "and", "floordiv", "lshift", "matmul",  "mul", "mod",
                                                "or",  "pow", "rshift",   "sub",    "truediv", "xor"};
constexpr std::array<const char*, 13> kSymbols = {"+", "&",  "//", "<<", "@", "*", "%",
                                                  "|", "**", ">>", "-",  "/", "^"};
constexpr std::array<const char*, 6> kComparisons = {"lt", "le", "eq", "ne", "gt", "ge"};
constexpr std::array<const char*, 6> kComparisonSymbols = {"<", "<=", "==", "!=", ">", ">="};
constexpr std::array<int, 6> kSwapped = {Py_GT, Py_GE, Py_EQ, Py_NE, Py_LT, Py_LE};
constexpr size_t kPower = 8;

PyObject* method(PyObject* object, const char* prefix, const char* name) {
  return specialMethod(Py_TYPE(object), (std::string(prefix) + name + "__").c_str());
}
bool isPython(PyObject* method) { return method != nullptr && PyFunction_Check(method); }
PyObject* orNone(PyObject* object) { return object != nullptr ? object : Py_None; }
PyObject* truth(bool value) { return value ? Py_True : Py_False; }

bool isNumber(PyObject* o) { return PyLong_Check(o) || PyFloat_Check(o) || PyComplex_Check(o); }
// True for types whose C code handles only numbers, and returns NotImplemented for any other operand.
bool isExactNumber(PyObject* o) {
  return o == Py_None || PyLong_CheckExact(o) || PyBool_Check(o) || PyFloat_CheckExact(o) ||
         PyComplex_CheckExact(o);
}
bool isPlainData(PyObject* o) {
  return isNumber(o) || PyUnicode_Check(o) || PyBytes_Check(o) || PyByteArray_Check(o) || PyTuple_Check(o);
}

// If no number method applies, CPython asks the sequence methods in C: those of the left operand for a sum,
// of either operand for a product.
bool isSequenceOp(uint32_t base, PyObject* x, PyObject* y) {
  const std::string_view name = kNames[base];
  if (name == "add") return pyapi::concatenates(x);
  return name == "mul" && (pyapi::repeats(x) || pyapi::repeatsInPlace(x) || pyapi::repeats(y));
}

bool isProperSubtype(PyObject* y, PyObject* x) {
  return Py_TYPE(y) != Py_TYPE(x) && PyType_IsSubtype(Py_TYPE(y), Py_TYPE(x));
}

bool guardOperands(RecordContext& rec, ShadowFrame& f, PyObject* x, PyObject* y) {
  if (f.top(1).isValue() && !torchapi::isTensor(y) && !rec.guards.pin(f.top(1), y)) return false;
  if (f.top(2).isValue() && !torchapi::isTensor(x) && !rec.guards.pin(f.top(2), x)) return false;
  rec.guards.guardType(f.top(2), x);
  rec.guards.guardType(f.top(1), y);
  rec.guards.guardTypeVersion(Py_TYPE(x));
  rec.guards.guardTypeVersion(Py_TYPE(y));
  return rec.live();
}

}  // namespace

std::optional<Flow> overloadedOperator(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  PyObject *x = act.peek(2), *y = act.peek(1), *function = polyfill("operate");
  const bool inPlace = in.arg >= op::NB_INPLACE_ADD;
  const uint32_t base = inPlace ? in.arg - op::NB_INPLACE_ADD : in.arg;
  PyObject* own = inPlace ? method(x, "__i", kNames[base]) : nullptr;
  PyObject* left = method(x, "__", kNames[base]);
  PyObject* right = Py_TYPE(x) != Py_TYPE(y) ? method(y, "__r", kNames[base]) : nullptr;
  if (function == nullptr || isSequenceOp(base, x, y)) return std::nullopt;
  if (isExactNumber(x) && isPython(right) && !isNumber(y)) {
    left = own = nullptr;
  } else if (!isPython(own) && !isPython(left) && !(left == nullptr && own == nullptr && isPython(right))) {
    return std::nullopt;
  }
  if (isExactNumber(y) && !isNumber(x)) right = nullptr;
  const bool rightFirst =
      right != nullptr && isProperSubtype(y, x) && method(x, "__r", kNames[base]) != right;
  const std::string symbol = std::string(kSymbols[base]) + (inPlace          ? "="
                                                            : base == kPower ? " or pow()"
                                                                             : "");
  pyapi::Ref<> problem =
      pyapi::steal(PyUnicode_FromFormat("unsupported operand type(s) for %s: '%.100s' and '%.100s'",
                                        symbol.c_str(), pyapi::typeNameOf(x), pyapi::typeNameOf(y)));
  if (!guardOperands(rec, f, x, y)) return rec.execute(act, in);
  return rec.callees.callInPlace(
      f, act, in, function, 2, {orNone(own), orNone(left), orNone(right), truth(rightFirst), problem.get()});
}

namespace {

// The method that compares. `negated`: its answer has to be inverted, since object.__ne__ inverts `__eq__`.
PyObject* comparison(PyObject* object, int op, bool& negated) {
  PyObject* found = method(object, "__", kComparisons[static_cast<size_t>(op)]);
  PyObject* inherited = specialMethod(
      &PyBaseObject_Type, (std::string("__") + kComparisons[static_cast<size_t>(op)] + "__").c_str());
  negated = false;
  if (found != inherited) return found;
  if (op != Py_NE) return nullptr;  // object's method compares identities or returns NotImplemented
  PyObject* equal = method(object, "__", "eq");
  negated = isPython(equal);
  return negated ? equal : nullptr;
}

}  // namespace

std::optional<Flow> overloadedComparison(RecordContext& rec, ShadowFrame& f, Activation& act,
                                         const Instr& in) {
  PyObject *x = act.peek(2), *y = act.peek(1), *function = polyfill("compare");
  const int op = static_cast<int>(in.arg);
  bool negateLeft = false, negateRight = false;
  PyObject* left = comparison(x, op, negateLeft);
  PyObject* right = comparison(y, kSwapped[in.arg], negateRight);
  if (function == nullptr || (!isPython(left) && !isPython(right))) return std::nullopt;
  // A method in C of something plain says nothing of other objects. Of an instance of a class that extends
  // plain data it may, where the method in Python says nothing.
  if (left != nullptr && !isPython(left)) {
    if (!isPlain(x)) return std::nullopt;
    if (!isPlainData(y)) left = nullptr;
  }
  if (right != nullptr && !isPython(right)) {
    if (!isPlain(y)) return std::nullopt;
    if (!isPlainData(x)) right = nullptr;
  }
  if (in.op == op::COMPARE_AND_TEST) return testComparison(rec, f, act, in);
  pyapi::Ref<> problem = pyapi::steal(
      PyUnicode_FromFormat("'%s' not supported between instances of '%.100s' and '%.100s'",
                           kComparisonSymbols[in.arg], pyapi::typeNameOf(x), pyapi::typeNameOf(y)));
  PyObject* identity = op == Py_EQ || op == Py_NE ? truth(op == Py_EQ) : Py_None;
  if (!guardOperands(rec, f, x, y)) return rec.execute(act, in);
  return rec.callees.callInPlace(
      f, act, in, function, 2,
      {orNone(left), orNone(right), truth(right != nullptr && isProperSubtype(y, x)), truth(negateLeft),
       truth(negateRight), identity, problem.get()});
}

Flow testComparison(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in) {
  const std::string name = std::string("test_") + kComparisons[in.arg];
  return rec.callees.callInPlace(f, act, in, polyfill(name.c_str()), 2);
}

}  // namespace kintsugi::capture
