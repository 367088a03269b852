#include "bindings/call_holder.h"

#include <structmember.h>

#include "pyapi/types.h"

namespace nb = nanobind;

namespace kintsugi::bindings {

namespace {

struct HolderObject {
  PyObject ob_base;
  vectorcallfunc vectorcall;
  PyObject* call;
};

PyTypeObject* holderType = nullptr;

HolderObject* asHolder(PyObject* self) { return reinterpret_cast<HolderObject*>(self); }

PyObject* vectorcall(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  PyObject* held = asHolder(self)->call;
  if (held == nullptr) {
    PyErr_Format(PyExc_TypeError, "%.200s object is not ready to be called", pyapi::typeNameOf(self));
    return nullptr;
  }
  // Whoever is called may drop this object.
  Py_INCREF(held);
  PyObject* result = PyObject_Vectorcall(held, args, nargsf, kwnames);
  Py_DECREF(held);
  return result;
}

PyObject* newHolder(PyTypeObject* type, PyObject*, PyObject*) {
  PyObject* self = pyapi::allocate(type);
  if (self != nullptr) asHolder(self)->vectorcall = vectorcall;
  return self;
}

int initHolder(PyObject*, PyObject*, PyObject*) { return 0; }

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(asHolder(self)->call);
  return 0;
}

int clear(PyObject* self) {
  Py_CLEAR(asHolder(self)->call);
  return 0;
}

void dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  clear(self);
  pyapi::freeInstance(self);
}

// CPython 3.11 hands the flag down to types that can't be changed only. A class that has a __call__ of its
// own is called through that.
PyObject* initSubclass(PyObject* cls, PyObject*, PyObject*) {
  auto* type = reinterpret_cast<PyTypeObject*>(cls);
  if (pyapi::callsLike(type, holderType)) pyapi::enableVectorcall(type);
  Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"__init_subclass__", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(initSubclass)),
     METH_CLASS | METH_VARARGS | METH_KEYWORDS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(HolderObject, vectorcall), READONLY, nullptr},
    {"_kintsugi_call", T_OBJECT_EX, offsetof(HolderObject, call), 0, "What is called."},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(newHolder)},
    {Py_tp_init, reinterpret_cast<void*>(initHolder)},
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(clear)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {0, nullptr},
};

PyType_Spec spec = {
    "kintsugi._C.CallHolder", sizeof(HolderObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, slots};

}  // namespace

PyObject* heldCall(PyObject* object) {
  return PyObject_TypeCheck(object, holderType) ? asHolder(object)->call : nullptr;
}

void bindCallHolder(nb::module_& module) {
  holderType = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (holderType == nullptr) throw nb::python_error();
  module.attr("CallHolder") = nb::handle(reinterpret_cast<PyObject*>(holderType));
}

}  // namespace kintsugi::bindings
