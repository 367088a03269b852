#include "pyapi/generator.h"

#include "pyapi/code.h"
#include "pyapi/frame.h"
#include "pyapi/opcodes.h"
#include "pyapi/ref.h"
#include "support/check.h"
#include KINTSUGI_VERSION_OBJECTS

namespace kintsugi::pyapi {

namespace {

bool isCoroutine(PyObject* object) {
  if (PyCoro_CheckExact(object)) {
    return true;
  }
  return PyGen_CheckExact(object) && (codeOf(asGenerator(object))->co_flags & CO_ITERABLE_COROUTINE) != 0;
}

}  // namespace

PyObject* delegatesTo(PyGenObject* generator) {
  if (generator->gi_frame_state >= FRAME_CLEARED || generator->gi_frame_state == FRAME_CREATED) {
    return nullptr;
  }
  auto* frame = frameOf(generator);
  // The argument of the RESUME behind the yield says what kind it is: 2 in `yield from`, 3 in `await`.
  const _Py_CODEUNIT next = codeUnits(codeOf(frame))[resumeUnit(frame)];
  if (opcodeInfo(opcodeIn(next)).instruction != op::RESUME || (argumentIn(next) & 3) < 2) {
    return nullptr;
  }
  KINTSUGI_DCHECK(stackDepth(frame) > 0, "a generator that delegates to nothing");
  return stackAt(frame, stackDepth(frame) - 1);
}

PyObject* awaitableIterator(PyObject* object) {
  if (isCoroutine(object)) {
    return Py_NewRef(object);
  }
  PyTypeObject* type = Py_TYPE(object);
  const unaryfunc getter = type->tp_as_async != nullptr ? type->tp_as_async->am_await : nullptr;
  if (getter == nullptr) {
    PyErr_Format(PyExc_TypeError, kNotAwaitable, type->tp_name);
    return nullptr;
  }
  PyObject* iterator = getter(object);
  if (iterator == nullptr) {
    return nullptr;
  }
  if (isCoroutine(iterator)) {
    PyErr_SetString(PyExc_TypeError, "__await__() returned a coroutine");
  } else if (PyIter_Check(iterator) == 0) {
    PyErr_Format(PyExc_TypeError, "__await__() returned non-iterator of type '%.100s'",
                 Py_TYPE(iterator)->tp_name);
  } else {
    return iterator;
  }
  Py_DECREF(iterator);
  return nullptr;
}

void raiseStopIteration(PyObject* value) { _PyGen_SetStopIterationValue(value); }

namespace {

// True if the global name is a builtin exception class that does not catch GeneratorExit.
bool isOrdinaryException(const _PyInterpreterFrame* frame, PyObject* name) {
  if (PyDict_GetItemWithError(frame->f_globals, name) != nullptr) {
    return false;
  }
  PyObject* found = PyDict_GetItemWithError(frame->f_builtins, name);
  return found != nullptr && PyType_Check(found) &&
         PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(found),
                          reinterpret_cast<PyTypeObject*>(PyExc_Exception)) != 0;
}

// The unit at which the handler at `unit` raises GeneratorExit again without running any other code; -1: it
// may run some.
int32_t reraiseUnit(const _PyInterpreterFrame* frame, const uint8_t* bytes, int32_t unit) {
  const PyCodeObject* code = codeOf(frame);
  const int32_t count = codeUnitCount(code);
  bool matchAsked = false;  // a match was asked for, with a type that is not GeneratorExit's
  while (unit < count) {
    const Decoded in = decode(bytes, unit);
    unit = in.next;
    switch (in.op) {
      case op::PUSH_EXC_INFO:
      case op::STOPITERATION_ERROR:  // replaces only StopIteration
        break;
      case op::LOAD_GLOBAL:
        if ((in.arg & 1) != 0 || !isOrdinaryException(frame, PyTuple_GET_ITEM(code->co_names, in.arg >> 1))) {
          return -1;
        }
        break;
      case op::CHECK_EXC_MATCH:
        matchAsked = true;
        break;
      case op::POP_JUMP_IF_FALSE:
        if (!matchAsked) {
          return -1;
        }
        matchAsked = false;
        unit = in.target;
        break;
      case op::COPY:  // each handler ends with COPY, POP_EXCEPT, RERAISE
      case op::POP_EXCEPT:
        break;
      case op::RERAISE:
      case op::CLEANUP_THROW:  // for the inner generator, which is asked itself
        return in.index;
      default:
        return -1;
    }
  }
  return -1;
}

}  // namespace

bool closesQuietly(PyGenObject* generator) {
  auto* frame = frameOf(generator);
  Ref<> bytes = steal(PyCode_GetCode(codeOf(frame)));
  int32_t unit = resumeUnit(frame) - 1;  // the yield
  bool quiet = static_cast<bool>(bytes);
  while (quiet) {
    const Handler handler = findHandler(codeOf(frame), unit);
    if (handler.target < 0) {
      break;
    }
    unit = reraiseUnit(frame, reinterpret_cast<uint8_t*>(PyBytes_AS_STRING(bytes.get())), handler.target);
    quiet = unit >= 0;
  }
  PyErr_Clear();
  return quiet;
}

}  // namespace kintsugi::pyapi
