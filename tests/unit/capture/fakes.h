// Fakes of what a part of the recorder asks of others (capture/roles.h): each notes what it was asked for.
//
// Example: a Snapshots over fakes is made by `Fixture` of snapshots_test.cc.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "capture/roles.h"
#include "capture/tables/constant_pool.h"
#include "capture/tables/current_instruction.h"
#include "capture/tables/frame_stack.h"
#include "capture/tables/known_sources.h"
#include "pyapi/code.h"
#include "pyapi/frame.h"
#include "unit/capture/python_objects.h"

namespace kintsugi::capture::test {

struct FakeBreaks final : BreakSink {
  bool live = true;
  bool strict = false;
  std::vector<diag::Code> ends;
  std::vector<std::string> reasons;  // the first argument of each end
  std::vector<diag::Code> noted;

  bool isLive() const override { return live; }
  void abort(diag::Code code, std::vector<std::string> args) override {
    live = false;
    ends.push_back(code);
    reasons.push_back(args.empty() ? "" : args[0]);
  }
  void noteBreak(diag::Code code, std::vector<std::string>) override { noted.push_back(code); }
  bool isStrict() const override { return strict; }
};

// Constants by identity, as in a recording.
struct FakeConstants final : ConstantIds {
  ConstantPool pool;
  ir::ConstId constId(PyObject* object) override { return pool.add(object).id; }
};

// Knows the virtual objects of a table, and those that a test names.
struct FakeObjects final : KnownObjects {
  explicit FakeObjects(VirtualTable& table) : virtuals(table) {}
  VirtualTable& virtuals;
  std::vector<std::pair<PyObject*, Shadow>> known;

  std::optional<Shadow> knownObject(PyObject* object) override {
    for (const auto& [other, shadow] : known) {
      if (other == object) return shadow;
    }
    const auto made = virtuals.find(object);
    return made ? std::optional(Shadow::virt(*made)) : std::nullopt;
  }
  Shadow newVirtual(VirtualKind kind, PyObject* object) override { return virtuals.add(kind, object); }
};

// Appends to a trace and keeps what was written.
struct FakeWriter final : TraceWriter {
  explicit FakeWriter(ir::Trace& trace) : trace(trace) {}
  struct Written {
    ir::Op op;
    std::vector<ir::Operand> operands;
    ir::StateId snap;
  };
  ir::Trace& trace;
  std::vector<Written> written;

  size_t emit(ir::Op op, const std::vector<ir::Operand>& operands, const std::vector<ir::Type>& results,
              ir::StateId snap) override {
    written.push_back({op, operands, snap});
    return trace.append(op, operands, results, snap);
  }
};

// Runs `call`, which has to reach `grab()` in a Python function, and calls `body` there with a shadow of this
// function's frame: locals are the real ones, with null shadows, and the stack is empty.
inline void inFrame(const char* call, const std::function<void(ShadowFrame&)>& body) {
  static const std::function<void(ShadowFrame&)>* now = nullptr;
  static PyMethodDef definition = {
      "grab",
      [](PyObject*, PyObject*) {
        Activation act{};
        act.tstate = PyThreadState_Get();
        act.frame = pyapi::currentFrame(act.tstate);
        act.sp = pyapi::stackBase(act.frame);
        ShadowFrame frame;
        frame.act = &act;
        frame.code = pyapi::codeOf(act.frame);
        frame.function = pyapi::newRef(reinterpret_cast<PyObject*>(pyapi::functionOf(act.frame)));
        frame.functionShadow = Shadow::constant();
        frame.locals.resize(static_cast<size_t>(pyapi::localsPlusCount(frame.code)));
        (*now)(frame);
        return Py_NewRef(Py_None);
      },
      METH_NOARGS, nullptr};
  const pyapi::Ref<> grab = pyapi::steal(PyCFunction_New(&definition, nullptr));
  PyDict_SetItemString(names(), "grab", grab.get());
  now = &body;
  value(call);
}

// The object of a local variable of the frame; borrowed.
inline PyObject* localOf(const ShadowFrame& frame, int index) {
  return pyapi::localAt(frame.act->frame, index);
}

}  // namespace kintsugi::capture::test
