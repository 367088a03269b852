// Ownership of Python objects in signatures: Ref<T> owns one reference, a raw pointer owns none.
//
//   void watch(PyObject* object);          // borrows: the caller holds the object during the call
//   void keep(Ref<> object);               // steals the reference
//   Ref<> attributeOf(PyObject* object);   // returns a new reference; an empty Ref says that an
//                                          // exception is pending
//
// The exceptions are functions that CPython calls, or that stand for one of its own (slots, evaluators, calls
// along the vectorcall protocol): they return `PyObject*` with a new reference, as CPython's do
// (docs/adr/0020-references-in-signatures.md). There is no implicit conversion to `T*`: call get() where a
// raw pointer is meant, release() where the reference is given away.
//
// Threads: every operation that may decref needs the GIL. Invalidation: a pointer from get() is valid as long
// as the Ref holds the object.
#pragma once

#ifndef PY_SSIZE_T_CLEAN
#define PY_SSIZE_T_CLEAN
#endif
#include <Python.h>

#include <cstddef>
#include <utility>

namespace kintsugi::pyapi {

// A move-only owner of one reference, or of none.
template <typename T = PyObject>
class Ref {
 public:
  Ref() = default;
  Ref(std::nullptr_t) {}
  Ref(const Ref&) = delete;
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  ~Ref() { Py_XDECREF(asObject(object_)); }

  // Takes over a reference that the caller owns; null gives an empty Ref.
  static Ref steal(T* object) { return Ref(object); }
  // Makes a new reference; null gives an empty Ref.
  static Ref newRef(T* object) {
    Py_XINCREF(asObject(object));
    return Ref(object);
  }

  // The old object is decref'd last: its finalizer may run any code, which must already see the new value.
  Ref& operator=(const Ref&) = delete;
  Ref& operator=(Ref&& other) noexcept {
    if (this != &other) {
      T* old = std::exchange(object_, std::exchange(other.object_, nullptr));
      Py_XDECREF(asObject(old));
    }
    return *this;
  }

  void reset() {
    T* old = std::exchange(object_, nullptr);
    Py_XDECREF(asObject(old));
  }
  void swap(Ref& other) noexcept { std::swap(object_, other.object_); }

  T* get() const { return object_; }
  T* operator->() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }
  // A second owner of the same object.
  Ref clone() const { return newRef(object_); }
  // Gives the reference away; this Ref is empty afterwards.
  [[nodiscard]] T* release() { return std::exchange(object_, nullptr); }

 private:
  explicit Ref(T* object) : object_(object) {}
  static PyObject* asObject(T* object) { return reinterpret_cast<PyObject*>(object); }

  T* object_ = nullptr;
};

// Shorthands for PyObject, by far the most frequent case.
inline Ref<> steal(PyObject* object) { return Ref<>::steal(object); }
inline Ref<> newRef(PyObject* object) { return Ref<>::newRef(object); }

}  // namespace kintsugi::pyapi
