#include "pyapi/exception_state.h"

#include <frameobject.h>
#include <structmember.h>

#include <string_view>

#include "pyapi/code.h"
#include "pyapi/frame.h"
#include "pyapi/known_objects.h"

namespace kintsugi::pyapi {

PyObject* handledException() {
  const _PyErr_StackItem* item = PyThreadState_Get()->exc_info;
  const auto empty = [](PyObject* value) { return value == nullptr || value == Py_None; };
  while (empty(item->exc_value) && item->previous_item != nullptr) item = item->previous_item;
  return empty(item->exc_value) ? nullptr : item->exc_value;
}

Ref<> exchangeHandled(Ref<> exception) {
  return steal(exchangeHandled(PyThreadState_Get(), exception.release()));
}

TracebackEntry entryOf(PyObject* traceback) {
  auto* tb = reinterpret_cast<PyTracebackObject*>(traceback);
  _PyInterpreterFrame* frame = tb->tb_frame->f_frame;
  return {reinterpret_cast<PyObject*>(tb->tb_next), reinterpret_cast<PyObject*>(codeOf(frame)),
          frame->f_globals, tb->tb_lasti / static_cast<int32_t>(sizeof(_Py_CODEUNIT))};
}

void forEachVariableOfFinishedFrames(PyObject* traceback, const std::function<void(PyObject*)>& visit) {
  for (; traceback != nullptr && PyTraceBack_Check(traceback);
       traceback = reinterpret_cast<PyObject*>(reinterpret_cast<PyTracebackObject*>(traceback)->tb_next)) {
    _PyInterpreterFrame* frame = reinterpret_cast<PyTracebackObject*>(traceback)->tb_frame->f_frame;
    if (frame->owner != FRAME_OWNED_BY_FRAME_OBJECT) continue;
    for (int k = 0; k < codeOf(frame)->co_nlocalsplus; ++k) {
      if (PyObject* object = localAt(frame, k)) visit(object);
    }
  }
}

Ref<> newTraceback(const TracebackEntry& entry) {
  auto* code = reinterpret_cast<PyCodeObject*>(entry.code);
  auto frame =
      steal(reinterpret_cast<PyObject*>(PyFrame_New(PyThreadState_Get(), code, entry.globals, nullptr)));
  if (!frame) {
    return {};
  }
  _PyInterpreterFrame* inner = reinterpret_cast<PyFrameObject*>(frame.get())->f_frame;
  setRunningUnit(inner, entry.unit);
  // CPython reads cells of free variables without checking that they exist.
  for (int k = code->co_nlocalsplus - code->co_nfreevars; k < code->co_nlocalsplus; ++k) {
    if (localAt(inner, k) == nullptr) {
      exchangeLocal(inner, k, PyCell_New(nullptr));
    }
  }
  return steal(PyObject_CallFunction(
      reinterpret_cast<PyObject*>(&PyTraceBack_Type), "OOii", entry.next != nullptr ? entry.next : Py_None,
      frame.get(), entry.unit * static_cast<int>(sizeof(_Py_CODEUNIT)), lineAt(code, entry.unit)));
}

bool isPolyfill(const PyCodeObject* code) { return isKnownCode(code, CodeFamily::kPolyfills); }

void dropPolyfillEntry(const PyCodeObject* code) {
  if (!isPolyfill(code)) {
    return;
  }
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (traceback != nullptr) {
    const TracebackEntry entry = entryOf(traceback);
    if (entry.code == reinterpret_cast<const PyObject*>(code)) {
      Py_SETREF(traceback, Py_XNewRef(entry.next));
      // Since CPython 3.14 PyErr_Restore() leaves the exception's own traceback if it is given none.
      if (traceback == nullptr && value != nullptr && PyExceptionInstance_Check(value))
        PyException_SetTraceback(value, Py_None);
    }
  }
  PyErr_Restore(type, value, traceback);
}

PyTypeObject* exceptionBase(PyTypeObject* type) {
  while (PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE)) {
    type = type->tp_base;
  }
  return type;
}

Ref<> newException(PyTypeObject* type, PyObject* args) {
  PyTypeObject* base = exceptionBase(type);
  if (base == type) {
    return steal(PyObject_Call(reinterpret_cast<PyObject*>(type), args, nullptr));
  }
  Ref<> made = steal(base->tp_new(type, args, nullptr));
  if (made && type->tp_init == base->tp_init && base->tp_init(made.get(), args, nullptr) < 0) {
    return {};
  }
  return made;
}

bool forEachField(PyObject* exception, const std::function<bool(PyObject* name, PyObject* value)>& visit) {
  auto* root = reinterpret_cast<PyTypeObject*>(PyExc_BaseException);
  for (PyTypeObject* type = exceptionBase(Py_TYPE(exception)); type != nullptr && type != root;
       type = type->tp_base) {
    for (PyMemberDef* member = type->tp_members; member != nullptr && member->name != nullptr; ++member) {
      if (member->type != T_OBJECT && member->type != T_OBJECT_EX) {
        continue;
      }
      Ref<> name = steal(PyUnicode_InternFromString(member->name));
      PyObject* value = *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(exception) + member->offset);
      if (!name || !visit(name.get(), value)) {
        return false;
      }
    }
  }
  return true;
}

ExceptionParts partsOf(PyObject* exception) {
  auto* e = reinterpret_cast<PyBaseExceptionObject*>(exception);
  auto present = [](PyObject* object) { return object == Py_None ? nullptr : object; };
  return {e->args, present(e->cause),       present(e->context), present(e->traceback),
          e->dict, e->suppress_context != 0};
}

void setLinks(PyObject* exception, Ref<> cause, Ref<> context, bool suppress, Ref<> traceback) {
  PyException_SetCause(exception, cause.release());
  PyException_SetContext(exception, context.release());
  reinterpret_cast<PyBaseExceptionObject*>(exception)->suppress_context = suppress;
  PyException_SetTraceback(exception, traceback ? traceback.get() : Py_None);
}

void addContext(PyObject* exception, PyObject* handled, PyObject* outside) {
  if (handled == exception || !PyExceptionInstance_Check(exception)) {
    return;
  }
  PyObject* last = exception;
  for (int length = 0; length < 1000; ++length) {  // the program may have made a cycle of contexts
    PyObject* next = reinterpret_cast<PyBaseExceptionObject*>(last)->context;
    if (next == handled) {
      return;
    }
    if (next == nullptr || next == outside) {
      break;
    }
    last = next;
  }
  // `handled` may itself have been raised while `exception` was handled. Breaks the cycle, as CPython does.
  for (PyObject* o = handled; o != nullptr; o = reinterpret_cast<PyBaseExceptionObject*>(o)->context) {
    if (reinterpret_cast<PyBaseExceptionObject*>(o)->context == exception) {
      PyException_SetContext(o, nullptr);
      break;
    }
  }
  PyException_SetContext(last, Py_NewRef(handled));
}

}  // namespace kintsugi::pyapi
