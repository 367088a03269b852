// Attribute access, as data: how CPython would find an attribute, decided from the types before the
// instruction runs.
//
// Nothing here runs Python code. Plans are values; they live for one instruction.
#pragma once

#include "capture/record_context.h"
#include "capture/special_methods.h"

namespace kintsugi::capture {

struct AttributePlan {
  enum How : uint8_t {
    kKnown,   // `shadow` describes the result
    kMethod,  // a function or method descriptor of the type, to be bound to the object
    kFrame,   // a Python function will be entered (property, __getattr__, __get__): `pending` announces it
    kTorch,   // a tensor property that calls the dispatcher or reads metadata
    kStep,    // none of these: each run reads it again
    kRaises,  // AttributeError, under guards that it will be raised again
    kAborted,
  };
  How how = kStep;
  Shadow shadow;
  PyObject* function = nullptr;  // kMethod: the unbound callable (borrowed from the type)
  PendingFrame pending;
  bool onlyReadsMetadata = false;  // kTorch
  bool frozen = false;             // kKnown: what is read can't change, and neither can its parts
  PyObject* (*dispatchedCall)(PyObject*) = nullptr;  // kTorch: see CallContext
  // kKnown: Python code runs all the same, and what it reads has been described; do not watch it.
  bool native = false;
};

// Plans reading `object.name` and adds the guards that the plan rests on.
AttributePlan planAttribute(RecordContext& rec, Shadow shadow, PyObject* object, PyObject* name);
// The same for object.__getattribute__, whatever the type overrides.
AttributePlan planGeneric(RecordContext& rec, Shadow shadow, PyObject* object, PyObject* name);
// The shadow of a bound method object.
Shadow boundMethod(RecordContext& rec, PyObject* method, PyObject* function, Shadow functionShadow,
                   PyObject* self, Shadow selfShadow);
// The frame of a Python function that sets an attribute (of a property, a descriptor, or `__setattr__`) or,
// if there is no value, deletes it.
PendingFrame setterFrame(RecordContext& rec, PyObject* setter, Shadow shadow, PyObject* object,
                         PyObject* name, Shadow value, PyObject* real);
// How the step is written that stores `object.name`. One that gives the object another dict makes all that is
// known of its attributes stale, and what the trace has of the dict before it must be built by then:
// `copy.__dict__ = self.__dict__.copy()`. Nothing: the recording has ended.
std::optional<CallKind> storeKind(RecordContext& rec, PyObject* object, PyObject* name);
// The shadow of an attribute that was looked up in a type and that instances see without binding.
Shadow classValue(RecordContext& rec, PyObject* value);

}  // namespace kintsugi::capture
