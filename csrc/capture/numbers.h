// Arithmetic on run-time numbers: writes the operation into the trace instead of pinning the operands.
//
// Each function is called before the instruction runs and returns the shadow of its result, or nothing where
// the trace has no such operation (the caller pins the operands then). Thread: the recording one.
#pragma once

#include "capture/record_context.h"

namespace kintsugi::capture {

// A number read from a source, as a value of the trace.
Shadow numberInput(RecordContext& rec, ir::SourceId id, PyObject* object);
// A number that a step has returned becomes a value once something is computed with it. Other shadows are
// returned unchanged.
Shadow promoted(RecordContext& rec, Shadow shadow, PyObject* object);

bool isNumberValue(RecordContext& rec, Shadow shadow);
// True for a run-time number, and for a tuple of the trace that holds one. What C code computes from it is a
// step.
bool variesAsNumber(RecordContext& rec, Shadow shadow, PyObject* object);

// `nb` is the oparg of BINARY_OP, `op` that of COMPARE_OP. One of the operands is a value of a number type.
std::optional<Shadow> numberBinary(RecordContext& rec, int nb, Shadow a, PyObject* x, Shadow b, PyObject* y);
std::optional<Shadow> numberCompare(RecordContext& rec, int op, Shadow a, PyObject* x, Shadow b, PyObject* y);
std::optional<Shadow> numberNegative(RecordContext& rec, Shadow a, PyObject* x);
// int(), float(), bool()
std::optional<Shadow> numberConvert(RecordContext& rec, ir::TypeKind to, Shadow a, PyObject* x);

}  // namespace kintsugi::capture
