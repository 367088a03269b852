// Exceptions that are raised and handled in the trace. Inside capture only.
//
// An exception that the trace has made is a virtual object: its recipe says what the real one has at that
// moment, context and traceback included. An exception that is held outside the trace (a step's result, one
// that has escaped) is changed when it is raised: these changes are written as effects when the handler
// begins. The exception that the compiled function's caller is handling is *outside*: in each run, it is the
// context of the first exception that the trace raises.
//
// The recording thread, GIL held.
#pragma once

#include "capture/record_context.h"

namespace kintsugi::capture {

// The innermost frame that handles an exception; null: nothing of the trace is handled.
ShadowFrame* handlingFrame(RecordContext& rec);
// `exception` is about to be raised. `byStep`: a step has raised it.
void noteRaised(RecordContext& rec, PyObject* exception, bool byStep);
// The exception has reached a handler.
void noteCaught(RecordContext& rec, Shadow shadow, PyObject* exception);
// At the first instruction of the handler: writes the effects.
void emitRaised(RecordContext& rec);
// An object that closes when it is dropped (finalized_objects.h) lives as long as the exception is handled,
// if a frame that the exception has passed holds the object.
void holdPassedFrames(RecordContext& rec, ShadowFrame& frame, PyObject* exception);
void releasePassedFrames(RecordContext& rec, ShadowFrame& frame);  // the handler ends

// For a side trace: the exception's context is what the caller handles.
void setOutsideContext(RecordContext& rec, Shadow exception);
// The shadow of a traceback; of None if `traceback` is null.
Shadow tracebackShadow(RecordContext& rec, PyObject* traceback);
// The traceback of an exception; writes a step where the trace does not know it.
Shadow tracebackOf(RecordContext& rec, Shadow shadow, PyObject* exception, PyObject* traceback);
// True if an instance can be rebuilt without running code of its class.
bool isRebuiltException(PyTypeObject* type);

}  // namespace kintsugi::capture
