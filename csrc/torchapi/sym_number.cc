#include "torchapi/sym_number.h"

#include <ATen/ScalarOps.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/python_symnode.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "support/check.h"
#include "torchapi/boxed_args.h"
#include "torchapi/sym_node.h"

namespace kintsugi::torchapi {

namespace {

// A number of the trace, or a comparison of such numbers. Bindings rarely compute with numbers, so arithmetic
// pins its operands and returns a constant. A comparison pins its operands only if its answer is needed. A
// binding that only asks whether the answer is known takes its general path.
class TraceNode final : public c10::SymNodeImpl {
 public:
  TraceNode(NumberSink* sink, TraceNumber number) : sink_(sink), number_(number) {}
  TraceNode(NumberSink* sink, std::function<bool()> question)
      : sink_(sink), number_{ir::kNone, ir::TypeKind::kBool, 0, 0}, question_(std::move(question)) {}

  const TraceNumber& number() const { return number_; }
  bool isInt() const { return number_.kind == ir::TypeKind::kInt; }
  bool isFloat() const { return number_.kind == ir::TypeKind::kFloat; }

  bool is_int() override { return isInt(); }
  bool is_float() override { return isFloat(); }
  bool is_bool() override { return number_.kind == ir::TypeKind::kBool; }
  bool has_hint() override { return true; }
  bool is_constant() override { return number_.value == ir::kNone && !number_.hidden && !question_; }
  bool is_symbolic() override { return !is_constant(); }
  std::optional<int64_t> maybe_as_int() override {
    return is_constant() && isInt() ? std::optional(number_.i) : std::nullopt;
  }
  std::optional<int64_t> constant_int() override { return maybe_as_int(); }
  std::optional<bool> constant_bool() override {
    return is_constant() && is_bool() ? std::optional(number_.i != 0) : std::nullopt;
  }

  int64_t guard_int(const char*, int64_t) override { return pinned().i; }
  double guard_float(const char*, int64_t) override { return real(); }
  bool guard_bool(const char*, int64_t) override { return pinned().i != 0; }
  bool guard_size_oblivious(const char* file, int64_t line) override { return guard_bool(file, line); }
  bool guard_or_false(const char* file, int64_t line) override { return guard_bool(file, line); }
  bool guard_or_true(const char* file, int64_t line) override { return guard_bool(file, line); }
  bool statically_known_true(const char*, int64_t) override { return is_constant() && number_.i != 0; }
  bool expect_true(const char* file, int64_t line) override { return guard_bool(file, line); }
  int64_t int_() override { return pinned().i; }
  bool bool_() override { return pinned().i != 0; }

  std::string str() override { return isFloat() ? std::to_string(number_.f) : std::to_string(number_.i); }
  std::string _graph_repr() override { return str(); }
  c10::SymNode clone() override {
    return question_ ? c10::make_intrusive<TraceNode>(sink_, question_)
                     : c10::make_intrusive<TraceNode>(sink_, number_);
  }
  c10::SymNode wrap_int(int64_t n) override { return constant(n); }
  c10::SymNode wrap_float(double n) override { return constant(n); }
  c10::SymNode wrap_bool(bool b) override { return truth(b); }

  c10::SymNode add(const c10::SymNode& o) override {
    return arith(o, [](auto a, auto b) { return a + b; });
  }
  c10::SymNode sub(const c10::SymNode& o) override {
    return arith(o, [](auto a, auto b) { return a - b; });
  }
  c10::SymNode mul(const c10::SymNode& o) override {
    return arith(o, [](auto a, auto b) { return a * b; });
  }
  c10::SymNode truediv(const c10::SymNode& o) override { return constant(real() / of(o).real()); }
  c10::SymNode float_truediv(const c10::SymNode& o) override { return truediv(o); }
  c10::SymNode int_truediv(const c10::SymNode& o) override { return truediv(o); }
  c10::SymNode floordiv(const c10::SymNode& o) override {
    const int64_t a = pinned().i, b = of(o).pinned().i;
    KINTSUGI_CHECK(b != 0, "a binding divides by zero");
    return constant(a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0));
  }
  c10::SymNode int_floordiv(const c10::SymNode& o) override { return floordiv(o); }
  c10::SymNode mod(const c10::SymNode& o) override {
    const int64_t a = pinned().i, b = of(o).pinned().i;
    KINTSUGI_CHECK(b != 0, "a binding divides by zero");
    const int64_t r = a % b;
    return constant(r != 0 && (r < 0) != (b < 0) ? r + b : r);
  }
  c10::SymNode neg() override { return isFloat() ? constant(-real()) : constant(-pinned().i); }
  c10::SymNode sym_float() override { return constant(real()); }
  c10::SymNode floor() override { return constant(static_cast<int64_t>(std::floor(real()))); }
  c10::SymNode ceil() override { return constant(static_cast<int64_t>(std::ceil(real()))); }
  c10::SymNode sym_min(const c10::SymNode& o) override {
    return arith(o, [](auto a, auto b) { return b < a ? b : a; });
  }
  c10::SymNode sym_max(const c10::SymNode& o) override {
    return arith(o, [](auto a, auto b) { return a < b ? b : a; });
  }
  c10::SymNode eq(const c10::SymNode& o) override {
    return compare(o, [](auto a, auto b) { return a == b; });
  }
  c10::SymNode ne(const c10::SymNode& o) override {
    return compare(o, [](auto a, auto b) { return a != b; });
  }
  c10::SymNode lt(const c10::SymNode& o) override {
    return compare(o, [](auto a, auto b) { return a < b; });
  }
  c10::SymNode le(const c10::SymNode& o) override {
    return compare(o, [](auto a, auto b) { return a <= b; });
  }
  c10::SymNode gt(const c10::SymNode& o) override {
    return compare(o, [](auto a, auto b) { return a > b; });
  }
  c10::SymNode ge(const c10::SymNode& o) override {
    return compare(o, [](auto a, auto b) { return a >= b; });
  }
  c10::SymNode sym_and(const c10::SymNode& o) override {
    return ask(o, [](TraceNode& a, TraceNode& b) { return a.bool_() && b.bool_(); });
  }
  c10::SymNode sym_or(const c10::SymNode& o) override {
    return ask(o, [](TraceNode& a, TraceNode& b) { return a.bool_() || b.bool_(); });
  }
  c10::SymNode sym_not() override {
    return ask(truth(true), [](TraceNode& a, TraceNode&) { return !a.bool_(); });
  }

 private:
  static TraceNode& of(const c10::SymNode& node) {
    auto* ours = dynamic_cast<TraceNode*>(node.get());
    KINTSUGI_CHECK(ours != nullptr, "a symbolic number of somebody else");
    return *ours;
  }
  const TraceNumber& pinned() {
    if (question_) {
      number_.i = std::exchange(question_, nullptr)() ? 1 : 0;
    } else if (number_.value != ir::kNone) {
      sink_->pinNumber(number_.value);
    }
    return number_;
  }
  double real() { return isFloat() ? pinned().f : static_cast<double>(pinned().i); }

  c10::SymNode constant(int64_t n) {
    return c10::make_intrusive<TraceNode>(sink_, TraceNumber{ir::kNone, ir::TypeKind::kInt, n, 0});
  }
  c10::SymNode constant(double n) {
    return c10::make_intrusive<TraceNode>(sink_, TraceNumber{ir::kNone, ir::TypeKind::kFloat, 0, n});
  }
  c10::SymNode truth(bool b) {
    return c10::make_intrusive<TraceNode>(sink_, TraceNumber{ir::kNone, ir::TypeKind::kBool, b ? 1 : 0, 0});
  }
  // A constant: pins both numbers.
  template <typename F>
  c10::SymNode arith(const c10::SymNode& o, F f) {
    TraceNode& other = of(o);
    if (isFloat() || other.isFloat()) {
      return constant(f(real(), other.real()));
    }
    return constant(f(pinned().i, other.pinned().i));
  }
  template <typename F>
  c10::SymNode compare(const c10::SymNode& o, F f) {
    return ask(o, [f](TraceNode& a, TraceNode& b) {
      return a.isFloat() || b.isFloat() ? f(a.real(), b.real()) : f(a.pinned().i, b.pinned().i);
    });
  }
  // A bool: known if both numbers are; otherwise computed when its answer is needed.
  template <typename F>
  c10::SymNode ask(const c10::SymNode& o, F question) {
    TraceNode& other = of(o);
    if (is_constant() && other.is_constant()) {
      return truth(question(*this, other));
    }
    auto self = c10::intrusive_ptr<TraceNode>::reclaim_copy(this);
    auto right = c10::intrusive_ptr<TraceNode>::reclaim_copy(&other);
    return c10::make_intrusive<TraceNode>(
        sink_, std::function<bool()>([self, right, question] { return question(*self, *right); }));
  }

  NumberSink* sink_;
  TraceNumber number_;
  std::function<bool()> question_;  // of a comparison (or and, or, not): computes the answer
};

using TraceNodePtr = c10::intrusive_ptr<TraceNode>;

TraceNodePtr oursOf(const c10::SymNode& node) {
  if (auto* direct = dynamic_cast<TraceNode*>(node.get())) {
    return TraceNodePtr::reclaim_copy(direct);
  }
  // torch wraps a SymFloat of ours in the Python object that it was passed as.
  auto* python = dynamic_cast<torch::impl::PythonSymNodeImpl*>(node.get());
  if (python == nullptr) {
    return {};
  }
  py::gil_scoped_acquire gil;
  py::handle object = python->getPyObj();
  return py::isinstance<c10::SymNodeImpl>(object) ? oursOf(py::cast<c10::SymNode>(object)) : TraceNodePtr();
}

TraceNodePtr nodeOf(const c10::IValue& number) {
  if (number.isSymInt()) {
    return oursOf(number.toSymInt().toSymNode());
  }
  return number.isSymFloat() ? oursOf(number.toScalar().toSymFloat().toSymNodeImpl()) : TraceNodePtr();
}

c10::IValue concreteOf(const TraceNode& node) {
  return node.isFloat() ? c10::IValue(node.number().f) : c10::IValue(node.number().i);
}

PyObject* wrappedName() {
  static PyObject* name = PyUnicode_InternFromString("_wrapped_number");
  return name;
}

// True for a Scalar[], as foreach operators take it, that has a symbolic number in it.
bool isNumberList(const c10::IValue& argument) {
  if (!argument.isList() || argument.toList().elementType()->kind() != c10::TypeKind::NumberType) {
    return false;
  }
  const auto elements = argument.toListRef();
  return std::any_of(elements.begin(), elements.end(),
                     [](const c10::IValue& element) { return element.isSymInt() || element.isSymFloat(); });
}

// The node of a tensor that stands for a symbolic number. The binding has stored the number as an attribute
// of the tensor.
TraceNodePtr nodeOfWrapped(const at::Tensor& tensor) {
  const at::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (!tensor.defined() || !impl->is_wrapped_number() || impl->pyobj_slot()->load_pyobj() == nullptr) {
    return {};
  }
  py::gil_scoped_acquire gil;
  pyapi::Ref<> object = pyapi::steal(THPVariable_Wrap(tensor));
  pyapi::Ref<> number = object ? pyapi::steal(PyObject_GetAttr(object.get(), wrappedName())) : pyapi::Ref<>();
  pyapi::Ref<> node = number ? pyapi::steal(PyObject_GetAttrString(number.get(), "node")) : pyapi::Ref<>();
  PyErr_Clear();
  if (!node || !py::isinstance<c10::SymNodeImpl>(py::handle(node.get()))) {
    return {};
  }
  return oursOf(py::cast<c10::SymNode>(py::handle(node.get())));
}

}  // namespace

pyapi::Ref<> makeSymNumber(NumberSink& sink, const TraceNumber& number) {
  try {
    c10::SymNode node = c10::make_intrusive<TraceNode>(&sink, number);
    py::handle type =
        number.kind == ir::TypeKind::kFloat ? torch::get_symfloat_class() : torch::get_symint_class();
    py::object made = type(py::cast(node));
    return pyapi::steal(made.release().ptr());
  } catch (py::error_already_set& error) {
    error.restore();
    return {};
  }
}

namespace {

// The plain number; null if the object is no symbolic number.
pyapi::Ref<> plainNumber(PyObject* object) {
  const py::handle handle(object);
  if (torch::is_symint(handle)) {
    const c10::SymInt number = handle.cast<c10::SymInt>();
    const TraceNodePtr node = number.is_heap_allocated() ? oursOf(number.toSymNode()) : TraceNodePtr();
    return pyapi::steal(PyLong_FromLongLong(node ? node->number().i : number.guard_int(__FILE__, __LINE__)));
  }
  if (torch::is_symfloat(handle)) {
    const c10::SymFloat number = handle.cast<c10::SymFloat>();
    const TraceNodePtr node = number.is_symbolic() ? oursOf(number.toSymNodeImpl()) : TraceNodePtr();
    return pyapi::steal(PyFloat_FromDouble(node ? node->number().f : number.guard_float(__FILE__, __LINE__)));
  }
  if (torch::is_symbool(handle)) {
    return pyapi::steal(PyBool_FromLong(handle.cast<c10::SymBool>().guard_bool(__FILE__, __LINE__)));
  }
  return {};
}

pyapi::Ref<> plainTuple(PyObject* tuple) {
  pyapi::Ref<> made;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
    pyapi::Ref<> item = withoutSymNumbers(PyTuple_GET_ITEM(tuple, i));
    if (!item) {
      continue;
    }
    if (!made) {
      made = pyapi::steal(PySequence_List(tuple));
    }
    if (!made || PyList_SetItem(made.get(), i, item.release()) < 0) {
      return {};
    }
  }
  if (!made) {
    return {};
  }
  if (PyTuple_CheckExact(tuple)) {
    return pyapi::steal(PyList_AsTuple(made.get()));
  }
  return pyapi::steal(PyObject_CallOneArg(reinterpret_cast<PyObject*>(Py_TYPE(tuple)), made.get()));
}

}  // namespace

pyapi::Ref<> withoutSymNumbers(PyObject* object) {
  try {
    if (PyTuple_Check(object)) {
      return plainTuple(object);
    }
    if (PyList_CheckExact(object)) {  // the list is new: nobody else has it yet
      bool any = false;
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(object); ++i) {
        pyapi::Ref<> item = withoutSymNumbers(PyList_GET_ITEM(object, i));
        any = any || item;
        if (item) {
          PyList_SetItem(object, i, item.release());
        }
      }
      return any ? pyapi::newRef(object) : pyapi::Ref<>();
    }
    if (PyDict_CheckExact(object)) {
      PyObject *key, *value;
      Py_ssize_t at = 0;
      bool any = false;
      while (PyDict_Next(object, &at, &key, &value) != 0) {
        pyapi::Ref<> plain = withoutSymNumbers(value);
        any = any || plain;
        if (plain && PyDict_SetItem(object, key, plain.get()) < 0) {
          return {};
        }
      }
      return any ? pyapi::newRef(object) : pyapi::Ref<>();
    }
    return plainNumber(object);
  } catch (py::error_already_set& error) {
    error.restore();
    return {};
  }
}

std::optional<ir::ValueId> traceValueOf(const c10::IValue& number) {
  const TraceNodePtr node = nodeOf(number);
  return !node || node->number().value == ir::kNone ? std::nullopt : std::optional(node->number().value);
}

std::optional<int64_t> hiddenConstantOf(const c10::IValue& number) {
  const TraceNodePtr node = nodeOf(number);
  return !node || !node->number().hidden ? std::nullopt : std::optional(node->number().i);
}

std::optional<ir::ValueId> traceValueOf(const at::Tensor& wrapped) {
  const TraceNodePtr ours = nodeOfWrapped(wrapped);
  return !ours || ours->number().value == ir::kNone ? std::nullopt : std::optional(ours->number().value);
}

void makeConcrete(c10::IValue& argument) {
  if (const TraceNodePtr node = nodeOf(argument)) {
    argument = concreteOf(*node);
  } else if (argument.isSymIntList()) {
    c10::List<int64_t> numbers;
    for (const c10::SymInt& element : argument.toSymIntVector()) {
      const TraceNodePtr node = element.is_heap_allocated() ? oursOf(element.toSymNode()) : TraceNodePtr();
      numbers.push_back(node ? node->number().i : element.guard_int(__FILE__, __LINE__));
    }
    argument = std::move(numbers);
  } else if (isNumberList(argument)) {
    c10::List<at::Scalar> numbers;
    for (c10::IValue element : argument.toListRef()) {
      makeConcrete(element);
      numbers.push_back(element.toScalar());
    }
    argument = std::move(numbers);
  } else if (argument.isTensor()) {
    if (const TraceNodePtr ours = nodeOfWrapped(argument.toTensor())) {
      argument = wrappedNumber(concreteOf(*ours).toScalar());
    }
  }
}

}  // namespace kintsugi::torchapi
