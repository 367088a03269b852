// Inside capture only: exceptions that are raised and handled in the trace.
//
// One that was made in the trace is a virtual object: its recipe says what the real one says at that moment,
// context and traceback included. One that others hold (a step's result, one that has escaped) is changed
// where it is raised: what the raise has changed is written as effects when the handler begins. What the
// caller of the compiled function handles is outside: the context of the first exception that the trace
// raises is whatever is handled there in that run.
//
// The recording thread, GIL held.
#pragma once

#include "capture/record_context.h"

namespace kintsugi::capture {

// The innermost frame that handles an exception; null: nothing of the trace is handled.
ShadowFrame* handlingFrame(RecordContext& rec);
// `exception` is about to be raised; `byStep`: a step has raised it.
void noteRaised(RecordContext& rec, PyObject* exception, bool byStep);
// ... and has reached a handler.
void noteCaught(RecordContext& rec, Shadow shadow, PyObject* exception);
// At the first instruction of the handler.
void emitRaised(RecordContext& rec);
// What closes when it goes (finalized_objects.h) lives as long as the exception is handled, if a frame that
// it has passed holds it.
void holdPassedFrames(RecordContext& rec, ShadowFrame& frame, PyObject* exception);
void releasePassedFrames(RecordContext& rec, ShadowFrame& frame);  // the handler ends
// A step that is not looked into may ask for the handled exceptions: each becomes one object for everybody.
bool escapeHandled(RecordContext& rec);

// A side trace begins: the exception's context is what is handled outside.
void contextIsOutside(RecordContext& rec, Shadow exception);
bool exceptionParts(RecordContext& rec, Virtual& v, ir::Recipe& recipe);
bool tracebackParts(RecordContext& rec, Virtual& v, ir::Recipe& recipe);
// Its cause, context and traceback, as far as the trace knows them.
std::vector<PyObject*> linkedObjects(PyObject* exception);
// A traceback, or None where there is none (null).
Shadow tracebackShadow(RecordContext& rec, PyObject* traceback);
// The traceback of an exception; writes a step where the trace does not know it.
Shadow tracebackOf(RecordContext& rec, Shadow shadow, PyObject* exception, PyObject* traceback);
// Can an instance be made again around its class's own code?
bool isRebuiltException(PyTypeObject* type);

}  // namespace kintsugi::capture
