// Models: functions that look at their caller's frame, and functions that write output in its name (warnings,
// logging). The latter are steps, during which a replay shows the trace's frames (runtime/visible_frames.h).
#include "capture/attributes.h"
#include "capture/calls/model.h"
#include "capture/calls/table.h"
#include "capture/exceptions.h"
#include "capture/tables/pauses.h"
#include "pyapi/code.h"
#include "pyapi/frame.h"
#include "pyapi/imports.h"
#include "pyapi/lazy.h"
#include "pyapi/opcodes.h"
#include "pyapi/text.h"
#include "pyapi/types.h"

namespace kintsugi::capture {

// Looks at its caller's frame, which a replay does not have. The recording ends, and the function that calls
// it is a step the next time.
Flow frameModel(CallContext& ctx, Shadow& result) {
  ctx.rec.abort(diag::Code::KTG0103, {"a function that looks at its caller's frame"});
  result = Shadow::constant();
  return run(ctx);
}

namespace {

// Logger.isEnabledFor() fills a cache that nothing else reads. Each run asks it again, and the rest of the
// logger's state is not guarded.
Flow enabledModel(CallContext& ctx, Shadow& result) {
  static constinit pyapi::Lazy<PyObject*> loggerSlot;
  PyObject* logger =
      loggerSlot.get([] { return PyObject_GetAttrString(pyapi::importModule("logging"), "Logger"); });
  static constinit pyapi::Lazy<PyObject*> rootSlot;
  PyObject* root =
      rootSlot.get([] { return PyObject_GetAttrString(pyapi::importModule("logging"), "RootLogger"); });
  auto* type = reinterpret_cast<PyObject*>(Py_TYPE(ctx.args[0]));
  if (type != logger && type != root) return outputModel(ctx, result);
  ctx.rec.guards.guardType(ctx.shadows[0], ctx.args[0]);
  return knownModel(ctx, result);
}

Flow globalsModel(CallContext& ctx, Shadow& result) {
  result = ctx.rec.guards.pinnedRoot(pyapi::globalsOf(ctx.act.frame));
  return run(ctx);
}

// True if the function asks for its locals only once. Then nobody can tell that a rebuilt frame would return
// another dict.
bool asksOnce(PyCodeObject* code) {
  const CodeInfo* info = CodeInfo::of(code);
  int asked = 0;
  for (int32_t at = 0; info != nullptr && at < info->size(); at = info->at(at).next) {
    const Instr& in = info->at(at);
    if (in.target >= 0 && in.target <= in.index) return false;  // a loop
    if (in.op != op::LOAD_GLOBAL) continue;
    PyObject* name = pyapi::nameAt(code, in.arg >> 1);
    for (const char* asks : {"locals", "vars", "dir", "eval", "exec", "sys"}) {
      asked += PyUnicode_CompareWithASCIIString(name, asks) == 0 ? 1 : 0;
    }
  }
  return asked == 1;
}

// locals(): a dict that belongs to the frame.
Flow localsModel(CallContext& ctx, Shadow& result) {
  RecordContext& rec = ctx.rec;
  ShadowFrame& frame = ctx.frame;
  if (pyapi::localsDictOf(ctx.act.frame) != nullptr) return frameModel(ctx, result);
  Flow flow = runVirtual(ctx, VirtualKind::kDict, result);
  if (flow != Flow::kNext || !rec.live()) return flow;
  PyObject* dict = ctx.act.peek(1);
  for (int i = 0; i < pyapi::localsPlusCount(frame.code); ++i) {
    PyObject* name = pyapi::variableName(frame.code, i);
    if (PyDict_Contains(dict, name) != 1) continue;
    Shadow shadow = frame.locals[i];
    PyObject* object = pyapi::localAt(ctx.act.frame, i);
    if (object != nullptr && PyCell_Check(object)) {
      bool known = shadow.isVirtual() && rec.objects.virtualOf(shadow).kind == VirtualKind::kCell;
      if (!known) {
        rec.abort(diag::Code::KTG0303, {"cell"});
        return flow;
      }
      shadow = rec.objects.virtualOf(shadow).parts[0];
    }
    rec.objects.setEntry(rec.objects.virtualOf(result), name, shadow);
  }
  if (!asksOnce(frame.code)) frame.rebuildable = false;
  return flow;
}

// vars(object): the object's `__dict__`.
Flow varsModel(CallContext& ctx, Shadow& result) {
  static PyObject* name = PyUnicode_InternFromString("__dict__");
  if (ctx.total() != 1) return frameModel(ctx, result);
  return readByPlan(ctx, planAttribute(ctx.rec, ctx.shadows[0], ctx.args[0], name), false, result);
}

Flow dirModel(CallContext& ctx, Shadow& result) {
  if (ctx.total() != 1) return frameModel(ctx, result);
  PyTypeObject* type = Py_TYPE(ctx.args[0]);
  if (!PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) && pyapi::hasNoInstanceDict(type) &&
      specialMethod(type, "__dir__") ==
          specialMethod(&PyBaseObject_Type, "__dir__")) {  // the class alone decides it, for good
    ctx.rec.guards.guardType(ctx.shadows[0], ctx.args[0]);
    Flow flow = runVirtual(ctx, VirtualKind::kList, result);
    if (flow == Flow::kNext && ctx.rec.live())
      ctx.rec.objects.virtualOf(result).parts.assign(PyList_GET_SIZE(ctx.act.peek(1)), Shadow::constant());
    return flow;
  }
  return pythonMethod(ctx.args[0], "__dir__") != nullptr ? opaqueModel(ctx, result) : knownModel(ctx, result);
}

// True for an expression without names, such as `1 + 1`: its value is the same anywhere.
bool isConstantExpression(PyObject* text) {
  const std::string source = pyapi::encoded(text);
  if (source.find('\0') != std::string::npos) return false;
  pyapi::Ref<> code = pyapi::steal(Py_CompileString(source.c_str(), "<string>", Py_eval_input));
  PyErr_Clear();
  return code && PyTuple_GET_SIZE(pyapi::namesOf(reinterpret_cast<PyCodeObject*>(code.get()))) == 0 &&
         pyapi::localsPlusCount(reinterpret_cast<PyCodeObject*>(code.get())) == 0;
}

// eval() and exec(). If they get a namespace, they do not look at the frame.
Flow evalModel(CallContext& ctx, Shadow& result) {
  if (ctx.kwnames == nullptr && ctx.total() >= 2 && ctx.args[1] != Py_None) return opaqueModel(ctx, result);
  Shadow text = ctx.shadows[0];
  if (ctx.total() != 1 || !PyUnicode_CheckExact(ctx.args[0]) || !isConstantExpression(ctx.args[0])) {
    return frameModel(ctx, result);
  }
  if (!ctx.rec.guards.pin(text, ctx.args[0])) return run(ctx);
  const Paused paused(ctx.rec.pauses);
  Flow flow = run(ctx);
  if (flow == Flow::kNext && !isPlainDeep(ctx.act.peek(1))) {
    ctx.rec.abort(diag::Code::KTG0302, {pyapi::typeNameOf(ctx.act.peek(1))});
  }
  result = Shadow::constant();
  return flow;
}

// sys.exc_info(), sys.exception(): the exception that a handler of the trace handles.
Flow handledModel(CallContext& ctx, Shadow& result) {
  RecordContext& rec = ctx.rec;
  ShadowFrame* frame = handlingFrame(rec);
  if (frame == nullptr) return knownModel(ctx, result);
  Shadow exception = frame->handled;
  if (!exception.isVirtual() || rec.objects.virtualOf(exception).value != ir::kNone)
    return opaqueModel(ctx, result);
  Flow flow = run(ctx);
  if (flow != Flow::kNext) return flow;
  PyObject* object = ctx.act.peek(1);
  result = exception;
  if (PyTuple_Check(object)) {
    Shadow traceback = tracebackShadow(rec, PyTuple_GET_ITEM(object, 2));
    result = rec.objects.tupleOf(object, {Shadow::constant(), exception, traceback});
  }
  return flow;
}

constexpr ModelRow kRows[] = {
    {"sys.exc_info", handledModel, gives("tuple").runsNoPython()},
    {"sys.exception", handledModel, gives("None").runsNoPython()},
    {"builtins.locals", localsModel, gives("dict")},
    {"builtins.globals", globalsModel, gives("dict").runsNoPython()},
    {"builtins.vars", varsModel, gives("dict mappingproxy")},
    {"builtins.dir", dirModel, gives("list")},
    {"builtins.eval", evalModel, kWritesProcess.runsAnyPython().gives(kOfFunction).raises(kFromFunction)},
    {"builtins.exec", evalModel, kWritesProcess.runsAnyPython().gives("None").raises(kFromFunction)},
    {"sys._getframe", frameModel, gives("frame").raises("OverflowError")},
    {"_warnings.warn", outputModel, kWritesProcess.runsAnyPython().gives("None")},
    {"_warnings.warn_explicit", outputModel, kWritesProcess.runsAnyPython().gives("None")},
    {"logging.Logger._log", outputModel,
     kWritesProcess.runsAnyPython().gives("None").raises("AttributeError")},
    {"logging.Logger.isEnabledFor", enabledModel, gives("bool").raises("AttributeError")},
    {"logging.Manager._clear_cache", outputModel, gives("None").raises("AttributeError")},
};

}  // namespace

void registerFrameModels() { addTable<kRows>(); }

}  // namespace kintsugi::capture
