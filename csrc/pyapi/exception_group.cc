#include "pyapi/exception_group.h"

#include <set>

#include "pyapi/functions.h"

namespace kintsugi::pyapi {

namespace {

bool isGroup(PyObject* exception) {
  return PyObject_TypeCheck(exception, reinterpret_cast<PyTypeObject*>(PyExc_BaseExceptionGroup)) != 0;
}

PyBaseExceptionObject* fields(PyObject* exception) {
  return reinterpret_cast<PyBaseExceptionObject*>(exception);
}

PyObject* membersOf(PyObject* group) { return reinterpret_cast<PyBaseExceptionGroupObject*>(group)->excs; }

Ref<> makeGroup(PyObject* members) {
  auto message = steal(PyUnicode_FromString(""));
  return message
             ? steal(PyObject_CallFunctionObjArgs(PyExc_BaseExceptionGroup, message.get(), members, nullptr))
             : nullptr;
}

// If all of these are equal, the `except*` clause has only let through a part of the group that was caught.
bool sameMetadata(PyObject* left, PyObject* right) {
  return fields(left)->notes == fields(right)->notes && fields(left)->traceback == fields(right)->traceback &&
         fields(left)->cause == fields(right)->cause && fields(left)->context == fields(right)->context;
}

using Leaves = std::set<PyObject*>;

void collectLeaves(PyObject* exception, Leaves* leaves) {
  if (!isGroup(exception)) {
    leaves->insert(exception);
    return;
  }
  PyObject* members = membersOf(exception);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(members); i++) {
    collectLeaves(PyTuple_GET_ITEM(members, i), leaves);
  }
}

// A group of the same class with other members, and the traceback, cause, context and notes of `group`.
Ref<> deriveGroup(PyObject* group, PyObject* members) {
  auto derived = steal(PyObject_CallMethod(group, "derive", "(O)", members));
  if (!derived) {
    return nullptr;
  }
  if (!isGroup(derived.get())) {
    PyErr_SetString(PyExc_TypeError, "derive must return an instance of BaseExceptionGroup");
    return nullptr;
  }
  if (PyObject* traceback = fields(group)->traceback; traceback != nullptr) {
    if (PyException_SetTraceback(derived.get(), traceback) < 0) {
      return nullptr;
    }
  }
  PyException_SetContext(derived.get(), PyException_GetContext(group));
  PyException_SetCause(derived.get(), PyException_GetCause(group));
  PyObject* notes = nullptr;
  if (optionalAttribute(group, &_Py_ID(__notes__), &notes) < 0) {
    return nullptr;
  }
  auto ownedNotes = steal(notes);
  if (notes != nullptr && PySequence_Check(notes) != 0) {
    auto copy = steal(PySequence_List(notes));
    if (!copy || PyObject_SetAttr(derived.get(), &_Py_ID(__notes__), copy.get()) < 0) {
      return nullptr;
    }
  }
  return derived;
}

// The part of `exception` whose leaves are in `keep`, in the same nesting; None when there is none.
Ref<> project(PyObject* exception, const Leaves& keep) {
  if (!isGroup(exception)) {
    return newRef(keep.count(exception) != 0 ? exception : Py_None);
  }
  auto kept = steal(PyList_New(0));
  if (!kept || Py_EnterRecursiveCall(" in exceptiongroup_split_recursive") != 0) {
    return nullptr;
  }
  PyObject* members = membersOf(exception);
  bool failed = false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(members) && !failed; i++) {
    auto part = project(PyTuple_GET_ITEM(members, i), keep);
    failed = !part || (part.get() != Py_None && PyList_Append(kept.get(), part.get()) < 0);
  }
  Py_LeaveRecursiveCall();
  if (failed) {
    return nullptr;
  }
  return PyList_GET_SIZE(kept.get()) == 0 ? newRef(Py_None) : deriveGroup(exception, kept.get());
}

// Divides the exceptions that the clauses left behind: new ones, and parts of the original that they let
// through.
bool sortRaised(PyObject* original, PyObject* all, PyObject* raised, Leaves* reraised) {
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(all); i++) {
    PyObject* exception = PyList_GET_ITEM(all, i);
    if (exception == Py_None) {
      continue;
    }
    if (sameMetadata(exception, original)) {
      collectLeaves(exception, reraised);
    } else if (PyList_Append(raised, exception) < 0) {
      return false;
    }
  }
  return true;
}

}  // namespace

GroupMatch matchGroup(PyObject* exception, PyObject* type) {
  if (exception == Py_None) {
    return {newRef(Py_None), newRef(Py_None)};
  }
  if (PyErr_GivenExceptionMatches(exception, type) != 0) {
    if (isGroup(exception)) {
      return {newRef(exception), newRef(Py_None)};
    }
    auto members = steal(PyTuple_Pack(1, exception));
    return {members ? makeGroup(members.get()) : nullptr, newRef(Py_None)};
  }
  if (!isGroup(exception)) {
    return {newRef(Py_None), newRef(Py_None)};
  }
  auto pair = steal(PyObject_CallMethod(exception, "split", "(O)", type));
  if (!pair) {
    return {};
  }
  const bool isTuple = PyTuple_CheckExact(pair.get());
  if (kTellsSizes && !isTuple) {
    PyErr_Format(PyExc_TypeError, "%.200s.split must return a tuple, not %.200s", Py_TYPE(exception)->tp_name,
                 Py_TYPE(pair.get())->tp_name);
    return {};
  }
  if (kTellsSizes && PyTuple_GET_SIZE(pair.get()) < 2) {
    PyErr_Format(PyExc_TypeError, "%.200s.split must return a 2-tuple, got tuple of size %zd",
                 Py_TYPE(exception)->tp_name, PyTuple_GET_SIZE(pair.get()));
    return {};
  }
  if (!isTuple || PyTuple_GET_SIZE(pair.get()) < 2) {
    PyErr_Format(PyExc_TypeError, "%.200s.split must return a 2-tuple", Py_TYPE(exception)->tp_name);
    return {};
  }
  return {newRef(PyTuple_GET_ITEM(pair.get(), 0)), newRef(PyTuple_GET_ITEM(pair.get(), 1))};
}

PyObject* prepareReraiseStar(PyObject* original, PyObject* all) {
  if (PyList_GET_SIZE(all) == 0) {
    return Py_NewRef(Py_None);
  }
  if (!isGroup(original)) {
    // A plain exception was wrapped in a group for its clause. Only that clause ran, so there is one result.
    return Py_NewRef(PyList_GET_ITEM(all, 0));
  }
  auto raised = steal(PyList_New(0));
  Leaves reraised;
  if (!raised || !sortRaised(original, all, raised.get(), &reraised)) {
    return nullptr;
  }
  auto rest = project(original, reraised);
  if (!rest || PyList_GET_SIZE(raised.get()) == 0) {
    return rest.release();
  }
  if (rest.get() != Py_None && PyList_Append(raised.get(), rest.get()) < 0) {
    return nullptr;
  }
  // A single exception is not put into a group.
  return PyList_GET_SIZE(raised.get()) == 1 ? Py_NewRef(PyList_GET_ITEM(raised.get(), 0))
                                            : makeGroup(raised.get()).release();
}

}  // namespace kintsugi::pyapi
