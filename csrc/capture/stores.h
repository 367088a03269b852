// Attribute writes: what `object.name = value` and `del object.name` do.
//
// The type decides: `__setattr__`, a descriptor, a slot, or the dict of the instance. A write that runs no
// code of the program becomes an effect (heap.h), or changes the shadows of an object that the trace has
// made. All functions are called before the instruction, which does the real write.
//
// Ownership: borrows the context. Owned by the Recorder; the recording thread, GIL held. Example:
//
//   PyObject* setter = nullptr;
//   if (!rec.stores.planStore(shadow, object, name, value, real, setter)) return rec.execute(act, instr);
#pragma once

#include "capture/shadow.h"

namespace kintsugi::capture {

struct RecordContext;

// A result of false means that the recording has ended.
class Stores final {
 public:
  explicit Stores(RecordContext& rec) : rec_(rec) {}

  // `setter` is a Python function that will be entered; None if
  // the write has to be a step; null for an ordinary write, which the caller executes.
  bool planStore(Shadow shadow, PyObject* object, PyObject* name, Shadow value, PyObject* real,
                 PyObject*& setter);
  bool planDelete(Shadow shadow, PyObject* object, PyObject* name, PyObject*& deleter);
  // Like object.__setattr__ and object.__delattr__, whatever the type overrides.
  bool storeGeneric(Shadow shadow, PyObject* object, PyObject* name, Shadow value, PyObject* real,
                    PyObject*& setter);
  bool storeFunction(Shadow shadow, PyObject* object, PyObject* name, Shadow value, PyObject* real,
                     PyObject*& setter);
  bool deleteGeneric(Shadow shadow, PyObject* object, PyObject* name);

 private:
  RecordContext& rec_;
};

}  // namespace kintsugi::capture
