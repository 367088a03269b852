// Parts of function objects, bound methods and cells, and the C definitions of functions in C.
//
// Ownership: results are borrowed. Threads: the GIL is needed. Invalidation: the program may replace
// its parts; functionWord() and its like are how guards notice.
// Example: PyObject* closure = closureOf(asFunction(callable));
#pragma once

#include "pyapi/internal.h"
#include "pyapi/ref.h"
#include "pyapi/version.h"
#include KINTSUGI_VERSION_OBJECTS

namespace kintsugi::pyapi {

// -- Functions in Python

inline PyFunctionObject* asFunction(PyObject* object) { return reinterpret_cast<PyFunctionObject*>(object); }
inline PyObject* closureOf(const PyFunctionObject* function) { return function->func_closure; }    // or null
inline PyObject* defaultsOf(const PyFunctionObject* function) { return function->func_defaults; }  // or null
inline PyObject* keywordDefaultsOf(const PyFunctionObject* function) {                             // or null
  return function->func_kwdefaults;
}
inline PyObject* globalsOf(const PyFunctionObject* function) { return function->func_globals; }
inline PyObject* builtinsOf(const PyFunctionObject* function) { return function->func_builtins; }
inline PyObject* codeObjectOf(const PyFunctionObject* function) { return function->func_code; }
inline PyObject* nameOf(const PyFunctionObject* function) { return function->func_name; }
inline PyObject* qualifiedNameOf(const PyFunctionObject* function) { return function->func_qualname; }
inline PyObject* attributesOf(const PyFunctionObject* function) { return function->func_dict; }  // or null
inline PyObject* annotationsOf(const PyFunctionObject* function) { return function->func_annotations; }
inline PyObject* moduleOf(const PyFunctionObject* function) { return function->func_module; }  // or null
inline PyObject* docstringOf(const PyFunctionObject* function) { return function->func_doc; }  // or null

// What MAKE_FUNCTION gives to a new function, which has none of these parts yet.
struct FunctionParts {
  Ref<> closure, annotations, keywordDefaults, defaults, annotate;
};
// Sets the parts that are given.
inline void fillNewFunction(PyFunctionObject* function, FunctionParts parts) {
  if (parts.closure) function->func_closure = parts.closure.release();
  if (parts.annotations) function->func_annotations = parts.annotations.release();
  if (parts.keywordDefaults) function->func_kwdefaults = parts.keywordDefaults.release();
  if (parts.defaults) function->func_defaults = parts.defaults.release();
  if (parts.annotate) setAnnotate(function, parts.annotate.release());
}

// True for a method of a type in C. Bound to an object, it is no bound method but a builtin function that
// knows the object.
inline bool isMethodInC(PyObject* function) {
  return Py_TYPE(function) == &PyMethodDescr_Type || Py_TYPE(function) == &PyWrapperDescr_Type;
}
// A new reference to what reading the function from an object of its class gives, or null with an exception.
inline PyObject* bind(PyObject* function, PyObject* self) {
  return isMethodInC(function)
             ? Py_TYPE(function)->tp_descr_get(function, self, reinterpret_cast<PyObject*>(Py_TYPE(self)))
             : PyMethod_New(function, self);
}

// -- Functions and methods in C

// The definition of a function in C. The same definition means the same function, whatever object it is bound
// to.
inline const PyMethodDef* definitionOf(PyObject* builtin) {
  return reinterpret_cast<PyCFunctionObject*>(builtin)->m_ml;
}
inline const PyMethodDef* methodDefinitionOf(PyObject* descriptor) {
  return reinterpret_cast<PyMethodDescrObject*>(descriptor)->d_method;
}
inline const char* builtinName(PyObject* builtin) { return definitionOf(builtin)->ml_name; }
// The name of a callable as messages of the evaluator have it, such as "math.floor()". A new reference, or
// null with an exception.
inline PyObject* callableText(PyObject* callable) { return _PyObject_FunctionStr(callable); }

// -- Looking a method up for a call

// `object.name`. True: `*method` is an unbound method that takes the object as its first argument; false: it
// is the attribute. A new reference; null with an exception pending.
inline bool lookUpMethod(PyObject* object, PyObject* name, PyObject** method) {
  return _PyObject_GetMethod(object, name, method) != 0;
}
// The special method `name` of the object's class, bound; a new reference, null (without an exception): none.
inline PyObject* lookUpSpecial(PyObject* object, PyObject* name) {
  return _PyObject_LookupSpecial(object, name);
}
// `object.name`, where AttributeError means that there is none. 1: found, a new reference; 0: there is none;
// -1: an exception is pending.
inline int lookUpAttribute(PyObject* object, PyObject* name, PyObject** value) {
  return optionalAttribute(object, name, value);
}

}  // namespace kintsugi::pyapi
