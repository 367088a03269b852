// Tensors whose sizes vary from run to run: which they are, what Python reads of them, and what is pinned.
//
// For such a tensor the trace relies on all metadata but sizes and strides (torchapi::MetaLevel::kRank). A
// size that Python reads is a value of the trace (`size %3, 0`). For a question about the layout, a guard
// pins just the answer. See docs/internals/capture.md.
//
// Functions of the recording under way; GIL held. False: the recording has ended. Example:
//   b, n = x.shape       ->  %4 = size %0, 0;  %5 = size %0, 1
#pragma once

#include "capture/record_context.h"

namespace kintsugi::capture {

// The sizes of an input that are left open, as bits: those that have changed between calls, those that the
// user has marked, or all with `dynamic=True`.
uint64_t openSizes(RecordContext& rec, ir::SourceId source, PyObject* tensor);
// The same for a tensor that is a value already.
uint64_t openSizesOf(RecordContext& rec, ir::ValueId tensor);
// Guards on the bounds that mark_dynamic(min=, max=) has set for sizes of the input.
void guardRanges(RecordContext& rec, ir::SourceId source, PyObject* tensor);
// True if a number that is read from this source is a run-time value from the start.
bool opensNumbers(RecordContext& rec, ir::SourceId source);

// Guards that the tensor keeps the metadata that it has now: all of it, or all but sizes and strides.
bool pinMeta(RecordContext& rec, Shadow tensor, PyObject* object);
bool pinRank(RecordContext& rec, Shadow tensor, PyObject* object);
// Some operators of libraries (custom kernels) say nothing about the sizes of their results. The trace
// guesses that the sizes will be the same again, and guards this where the tensor is first used. Then
// everything after it is known.
bool pinLikely(RecordContext& rec, Shadow tensor, PyObject* object);
// If the instruction is such a guard, the operator whose result it checks. After an exit there, recordings
// leave these results open: RecorderOptions::dynamicSources holds the operator's hash.
std::optional<std::string> likelyOperator(const ir::Trace& trace, uint32_t guard);
uint64_t hashOfOperator(std::string_view name);
// The tensor's metadata is not known any more.
void forgetMeta(RecordContext& rec, ir::ValueId tensor);
// Pins what decides that an operator of the logged calls gives its argument back as it is. `snap`: the state
// before the calls. False: it can't be pinned, so the calls have to be a step.
bool pinGivenBack(RecordContext& rec, ir::StateId snap);
// Pins what a binding of torch decides, before it calls the dispatcher, about a tensor whose sizes vary.
bool pinForBinding(CallContext& ctx, Shadow tensor, PyObject* object);

// A read of metadata that gives numbers (shape, size(), numel(), len(), stride()), of a tensor whose sizes
// vary. Nothing: it is another call.
std::optional<Flow> readSizes(CallContext& ctx, Shadow& result);

// True for `x[...]` with slices in a tuple: a binding leaves out a slice that takes everything, which hangs
// on the sizes of `x`.
bool decidesOnSlices(const CallValues& call);

}  // namespace kintsugi::capture
