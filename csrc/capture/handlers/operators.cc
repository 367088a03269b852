// Unary, binary and comparison operators, subscripts.
#include "capture/handlers/common.h"
#include "pyapi/number.h"
#include "pyapi/opcodes.h"
#include "pyapi/order.h"

namespace kintsugi::capture::handlers {

namespace {

using UnaryFunction = PyObject* (*)(PyObject*);
using BinaryFunction = PyObject* (*)(PyObject*, PyObject*);

Flow applyUnary(Activation& act, UnaryFunction function) {
  auto operand = popRef(act);
  return pushResult(act, function(operand.get()));
}

PyObject* power(PyObject* base, PyObject* exponent) { return PyNumber_Power(base, exponent, Py_None); }
PyObject* inPlacePower(PyObject* base, PyObject* exponent) {
  return PyNumber_InPlacePower(base, exponent, Py_None);
}

// Ordered by BINARY_OP's argument (NB_ADD, NB_AND, ...).
constexpr BinaryFunction kBinaryFunctions[] = {
    PyNumber_Add,
    PyNumber_And,
    PyNumber_FloorDivide,
    PyNumber_Lshift,
    PyNumber_MatrixMultiply,
    PyNumber_Multiply,
    PyNumber_Remainder,
    PyNumber_Or,
    power,
    PyNumber_Rshift,
    PyNumber_Subtract,
    PyNumber_TrueDivide,
    PyNumber_Xor,
    PyNumber_InPlaceAdd,
    PyNumber_InPlaceAnd,
    PyNumber_InPlaceFloorDivide,
    PyNumber_InPlaceLshift,
    PyNumber_InPlaceMatrixMultiply,
    PyNumber_InPlaceMultiply,
    PyNumber_InPlaceRemainder,
    PyNumber_InPlaceOr,
    inPlacePower,
    PyNumber_InPlaceRshift,
    PyNumber_InPlaceSubtract,
    PyNumber_InPlaceTrueDivide,
    PyNumber_InPlaceXor,
};
static_assert(op::NB_ADD == 0 && op::NB_POWER == 8 && op::NB_INPLACE_ADD == 13 && op::NB_INPLACE_XOR == 25);

bool isAdd(uint32_t op) { return op == op::NB_ADD || op == op::NB_INPLACE_ADD; }

// `s = s + t` and `s += t` grow a string in place if only the variable holds it. Without this, building a
// string in a loop would take quadratic time. Sets `*done` if it applies; then the work of the STORE_FAST
// that follows is done too.
Flow appendToLocal(Activation& act, bool* done) {
  const Instr& next = act.code->at(act.pc);
  if (act.observed || next.op != op::STORE_FAST || act.local(next.arg) != second(act)) {
    return Flow::kNext;
  }
  *done = true;
  auto right = popRef(act);
  Py_DECREF(pop(act));  // the local keeps it alive
  PyObject* text = pyapi::exchangeLocal(act.frame, static_cast<int>(next.arg), nullptr);
  PyUnicode_Append(&text, right.get());
  pyapi::exchangeLocal(act.frame, static_cast<int>(next.arg), text);
  if (text == nullptr) {
    return Flow::kRaise;
  }
  act.pc = next.next;
  return Flow::kNext;
}

// Drops two operands: the last one first, or the first one, as this CPython does.
void dropBoth(PyObject* first, PyObject* last) {
  const bool reversed = pyapi::dropsLastFirst();
  Py_DECREF(reversed ? last : first);
  Py_DECREF(reversed ? first : last);
}

// Takes the two operands on top of the stack and returns a slice of them; null: an exception is pending.
pyapi::Ref<> takeSlice(Activation& act) {
  auto stop = popRef(act);
  auto start = popRef(act);
  return pyapi::steal(PySlice_New(start.get(), stop.get(), nullptr));
}

}  // namespace

Flow unaryPositive(Activation& act, const Instr&) { return applyUnary(act, PyNumber_Positive); }
Flow unaryNegative(Activation& act, const Instr&) { return applyUnary(act, PyNumber_Negative); }
Flow unaryInvert(Activation& act, const Instr&) { return applyUnary(act, PyNumber_Invert); }

Flow unaryNot(Activation& act, const Instr&) {
  auto operand = popRef(act);
  const int truth = PyObject_IsTrue(operand.get());
  return truth < 0 ? Flow::kRaise : pushBool(act, truth == 0);
}

Flow binaryOp(Activation& act, const Instr& instr) {
  PyObject* right = top(act);
  PyObject* left = second(act);
  PyObject* result = nullptr;
  if (Py_TYPE(left) == Py_TYPE(right)) {
    if (PyFloat_CheckExact(left)) {
      result = pyapi::fastFloatOp(instr.arg, left, right);
    } else if (PyLong_CheckExact(left)) {
      result = pyapi::fastIntOp(instr.arg, left, right);
    } else if (PyUnicode_CheckExact(left) && isAdd(instr.arg)) {
      bool done = false;
      const Flow flow = appendToLocal(act, &done);
      if (done) {
        return flow;
      }
    }
  }
  if (result == nullptr) {
    result = kBinaryFunctions[instr.arg](left, right);
  }
  act.sp -= 2;
  Py_DECREF(left);
  Py_DECREF(right);
  return pushResult(act, result);
}

Flow compareOp(Activation& act, const Instr& instr) {
  PyObject* right = top(act);
  PyObject* left = second(act);
  PyObject* result = nullptr;
  if (Py_TYPE(left) == Py_TYPE(right)) {
    if (PyLong_CheckExact(left)) {
      result = pyapi::fastIntCompare(instr.arg, left, right);
    } else if (PyFloat_CheckExact(left)) {
      result = pyapi::fastFloatCompare(instr.arg, left, right);
    }
  }
  if (result == nullptr) {
    result = PyObject_RichCompare(left, right, static_cast<int>(instr.arg));
  }
  act.sp -= 2;
  dropBoth(left, right);
  return pushResult(act, result);
}

Flow toBool(Activation& act, const Instr&) {
  PyObject* operand = top(act);
  if (operand == Py_True || operand == Py_False) [[likely]] {
    return Flow::kNext;
  }
  auto owned = popRef(act);
  const int truth = PyObject_IsTrue(owned.get());
  return truth < 0 ? Flow::kRaise : pushBool(act, truth != 0);
}

Flow compareAndTest(Activation& act, const Instr& instr) {
  const Flow flow = compareOp(act, instr);
  return flow == Flow::kNext ? toBool(act, instr) : flow;
}

Flow isOp(Activation& act, const Instr& instr) {
  PyObject* right = pop(act);
  PyObject* left = pop(act);
  const bool same = left == right;
  dropBoth(left, right);
  return pushBool(act, same != (instr.arg != 0));
}

Flow containsOp(Activation& act, const Instr& instr) {
  PyObject* right = pop(act);
  PyObject* left = pop(act);
  const int found = PySequence_Contains(right, left);
  dropBoth(left, right);
  return found < 0 ? Flow::kRaise : pushBool(act, (found != 0) != (instr.arg != 0));
}

Flow binarySubscr(Activation& act, const Instr&) {
  PyObject* key = top(act);
  PyObject* container = second(act);
  PyObject* result = pyapi::fastItem(container, key);
  if (result == nullptr) {
    result = PyObject_GetItem(container, key);
  }
  act.sp -= 2;
  Py_DECREF(container);
  Py_DECREF(key);
  return pushResult(act, result);
}

Flow storeSubscr(Activation& act, const Instr&) {
  PyObject* key = act.peek(1);
  PyObject* container = act.peek(2);
  PyObject* value = act.peek(3);
  act.sp -= 3;
  const int error = PyObject_SetItem(container, key, value);
  const bool reversed = pyapi::dropsLastFirst();
  Py_DECREF(reversed ? key : value);
  Py_DECREF(container);
  Py_DECREF(reversed ? value : key);
  return error == 0 ? Flow::kNext : Flow::kRaise;
}

// The slice goes before the container, unlike the key of a subscript.
Flow binarySlice(Activation& act, const Instr&) {
  pyapi::Ref<> slice = takeSlice(act);
  const pyapi::Ref<> container = popRef(act);
  PyObject* result = slice ? PyObject_GetItem(container.get(), slice.get()) : nullptr;
  slice.reset();
  return pushResult(act, result);
}

Flow storeSlice(Activation& act, const Instr&) {
  pyapi::Ref<> slice = takeSlice(act);
  PyObject* container = pop(act);
  PyObject* value = pop(act);
  const int error = slice ? PyObject_SetItem(container, slice.get(), value) : -1;
  slice.reset();
  dropBoth(value, container);
  return error == 0 ? Flow::kNext : Flow::kRaise;
}

Flow deleteSubscr(Activation& act, const Instr&) {
  PyObject* key = act.peek(1);
  PyObject* container = act.peek(2);
  act.sp -= 2;
  const int error = PyObject_DelItem(container, key);
  dropBoth(container, key);
  return error == 0 ? Flow::kNext : Flow::kRaise;
}

}  // namespace kintsugi::capture::handlers
