#include "capture/record/comptime.h"

#include <utility>

#include "capture/calls/model.h"
#include "capture/tables/pauses.h"
#include "guard/document.h"
#include "pyapi/code.h"
#include "pyapi/functions.h"
#include "pyapi/known_objects.h"
#include "pyapi/text.h"

namespace kintsugi::capture {

using pyapi::Ref;

namespace {

thread_local const CallContext* activeCall = nullptr;  // the comptime call under way

// A number that differs from run to run.
bool varies(Shadow shadow, PyObject* object) {
  return shadow.isValue() &&
         (PyLong_CheckExact(object) || PyFloat_CheckExact(object) || PyBool_Check(object));
}

std::string describeShadow(RecordContext& rec, Shadow shadow) {
  switch (shadow.kind()) {
    case ShadowKind::kNull:
      return "unbound";
    case ShadowKind::kConst:
      return "constant";
    case ShadowKind::kSource:
      return "source " + rec.document().sources.path(shadow.sourceId(), rec.document().trace.constTexts);
    case ShadowKind::kValue:
      return "value %" + std::to_string(shadow.valueId());
    case ShadowKind::kVirtual:
      return "made here";
  }
  return "";
}

Ref<> pairOf(RecordContext& rec, Shadow shadow, PyObject* object) {
  return pyapi::steal(
      Py_BuildValue("(Os)", object != nullptr ? object : Py_None, describeShadow(rec, shadow).c_str()));
}

bool set(PyObject* dict, const char* name, Ref<> value) {
  return value && PyDict_SetItemString(dict, name, value.get()) == 0;
}

// The variables that have a value. For a cell, the value is its content.
Ref<> localsOf(RecordContext& rec, const ShadowFrame& frame) {
  Ref<> locals = pyapi::steal(PyDict_New());
  for (size_t i = 0; locals && i < frame.locals.size(); ++i) {
    PyObject* object = pyapi::localAt(frame.act->frame, static_cast<int>(i));
    if (object == nullptr || frame.locals[i].isNull()) continue;
    PyObject* inner = PyCell_Check(object) ? PyCell_GET(object) : object;
    Ref<> pair = pairOf(rec, frame.locals[i], inner);
    PyObject* name = pyapi::variableName(frame.code, static_cast<uint32_t>(i));
    if (!pair || PyDict_SetItem(locals.get(), name, pair.get()) < 0) return {};
  }
  return locals;
}

Ref<> stackOf(RecordContext& rec, const ShadowFrame& frame) {
  Ref<> list = pyapi::steal(PyList_New(0));
  const int depth = frame.act->stackDepth();
  for (int i = 0; list && i < depth && static_cast<size_t>(i) < frame.stack.size(); ++i) {
    Ref<> pair = pairOf(rec, frame.stack[static_cast<size_t>(i)], frame.act->peek(depth - i));
    if (!pair || PyList_Append(list.get(), pair.get()) < 0) return {};
  }
  return list;
}

Ref<> describeFrame(RecordContext& rec, const ShadowFrame& frame) {
  Ref<> dict = pyapi::steal(PyDict_New());
  const int32_t unit = std::max(pyapi::runningUnit(frame.act->frame), 0);
  auto* code = reinterpret_cast<PyObject*>(frame.code);
  const bool ok = dict && set(dict.get(), "code", pyapi::newRef(code)) &&
                  set(dict.get(), "offset", pyapi::steal(PyLong_FromLong(unit * 2))) &&
                  set(dict.get(), "file", pyapi::newRef(pyapi::fileOf(frame.code))) &&
                  set(dict.get(), "function", pyapi::newRef(pyapi::nameOf(frame.code))) &&
                  set(dict.get(), "line", pyapi::steal(PyLong_FromLong(pyapi::lineAt(frame.code, unit)))) &&
                  set(dict.get(), "locals", localsOf(rec, frame)) &&
                  set(dict.get(), "stack", stackOf(rec, frame));
  return ok ? std::move(dict) : Ref<>();
}

Ref<> framesOf(RecordContext& rec, const ShadowFrame* frame) {
  Ref<> list = pyapi::steal(PyList_New(0));
  for (; list && frame != nullptr; frame = frame->caller) {
    if (frame->act == nullptr || frame->act->frame == nullptr) continue;  // a suspended generator
    Ref<> described = describeFrame(rec, *frame);
    if (!described || PyList_Append(list.get(), described.get()) < 0) return {};
  }
  return list;
}

Ref<> textOf(const std::string& text) {
  return pyapi::steal(PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size())));
}

}  // namespace

bool isComptime(PyObject* function) {
  static PyObject* name = PyUnicode_InternFromString("_kintsugi_comptime");
  PyObject* dict = pyapi::attributesOf(pyapi::asFunction(function));
  return dict != nullptr && PyDict_GET_SIZE(dict) > 0 && PyDict_GetItemWithError(dict, name) == Py_True;
}

Flow comptimeCall(CallContext& ctx, Shadow& result) {
  RecordContext& rec = ctx.rec;
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(ctx.callable));
  const bool forces = pyapi::isKnownCode(code, pyapi::CodeFamily::kForcesStatic);
  const bool asserts = pyapi::isKnownCode(code, pyapi::CodeFamily::kAssertsStatic);
  for (size_t i = 0; i < ctx.total(); ++i) {
    Shadow shadow = ctx.shadows.any(i);
    if (!varies(shadow, ctx.args.any(i))) continue;
    if (forces && !rec.guards.pinDeep(shadow, ctx.args.any(i))) return run(ctx);
    if (asserts)
      return rec.breaks.raiseAssertion("kintsugi: comptime.assert_static() was given a number of the run");
  }
  Flow flow;
  const CallContext* outer = std::exchange(activeCall, &ctx);
  {
    const Paused paused(rec.pauses);
    flow = run(ctx);
  }
  activeCall = outer;
  if (flow == Flow::kRaise && rec.live()) rec.abort(diag::Code::KTG0111, {"an exception of comptime code"});
  result = Shadow::constant();
  return flow;
}

PyObject* describeRecording() {
  if (activeCall == nullptr) Py_RETURN_NONE;
  RecordContext& rec = activeCall->rec;
  Ref<> dict = pyapi::steal(PyDict_New());
  Ref<> guards = pyapi::steal(PyList_New(0));
  for (const guard::Guard& g : rec.document().guards.guards) {
    Ref<> text = textOf(guard::print(rec.document(), g));
    if (!guards || !text || PyList_Append(guards.get(), text.get()) < 0) return nullptr;
  }
  const bool ok = dict && set(dict.get(), "guards", std::move(guards)) &&
                  set(dict.get(), "frames", framesOf(rec, &activeCall->frame)) &&
                  set(dict.get(), "trace", textOf(guard::print(rec.document())));
  return ok ? dict.release() : nullptr;
}

}  // namespace kintsugi::capture
