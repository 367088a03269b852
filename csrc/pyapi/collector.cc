#include "pyapi/collector.h"

namespace kintsugi::pyapi {

bool isCollectorCallback(PyThreadState* tstate, Frame* frame) {
  PyObject* callbacks = tstate->interp->gc.callbacks;
  if (!isCollecting(tstate) || callbacks == nullptr || !PyList_Check(callbacks)) return false;
  PyObject* function = reinterpret_cast<PyObject*>(functionOf(frame));
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(callbacks); ++i) {
    PyObject* callback = PyList_GET_ITEM(callbacks, i);
    if (PyMethod_Check(callback)) callback = PyMethod_GET_FUNCTION(callback);
    if (callback == function) return true;
    // An object with a method __call__.
    if (!PyFunction_Check(callback) && _PyType_Lookup(Py_TYPE(callback), &_Py_ID(__call__)) == function)
      return true;
  }
  return false;
}

}  // namespace kintsugi::pyapi
