// Attribute writes: what `object.name = value` and `del object.name` do.
//
// The type decides: `__setattr__`, a descriptor, a slot, or the dict of the instance. A write that runs no
// code of the program becomes an effect (heap.h), or changes the shadows of an object that the trace has
// made. All functions are called before the instruction, which does the real write.
//
// Ownership: borrows the tables. Owned by the Recorder; the recording thread, GIL held. Example:
//
//   PyObject* setter = nullptr;
//   if (!rec.stores.planStore(shadow, object, name, value, real, setter)) return rec.execute(act, instr);
#pragma once

#include "capture/context_roles.h"
#include "capture/roles.h"
#include "capture/tables/frame_stack.h"
#include "capture/tables/virtual_table.h"

namespace kintsugi::capture {

// A result of false means that the recording has ended.
class Stores final {
 public:
  struct Roles {
    BreakSink& breaks;
    SourceGuards& guards;
    ValuePins& pins;
    KnownObjects& known;
    ContainerReads& reads;
    EffectWriter& effects;
    ClassAttributes& classes;
  };
  Stores(const Roles& roles, FrameStack& frames, VirtualTable& virtuals)
      : breaks_(roles.breaks),
        guards_(roles.guards),
        pins_(roles.pins),
        known_(roles.known),
        reads_(roles.reads),
        effects_(roles.effects),
        classes_(roles.classes),
        frames_(frames),
        virtuals_(virtuals) {}

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
  bool storesLink(Shadow shadow, PyObject* object, PyObject* name, Shadow value, PyObject* real);
  bool hasFrame(PyObject* function) const;
  bool storeCode(Virtual& v, Shadow value, PyObject* real);
  bool setAnnotations(Virtual& v, PyObject* name, Shadow value, PyObject* real);

  BreakSink& breaks_;
  SourceGuards& guards_;
  ValuePins& pins_;
  KnownObjects& known_;
  ContainerReads& reads_;
  EffectWriter& effects_;
  ClassAttributes& classes_;
  FrameStack& frames_;
  VirtualTable& virtuals_;
};

}  // namespace kintsugi::capture
