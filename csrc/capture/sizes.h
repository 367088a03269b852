// Tensors whose sizes vary from run to run: which they are, what Python reads of them, and what is pinned.
//
// Of such a tensor the trace relies on everything but sizes and strides (torchapi::MetaLevel::kRank). A size
// that Python reads is a value of the trace (`size %3, 0`), and a question about the layout a guard on just
// that answer. See docs/internals/capture.md.
//
// Functions of the recording under way; GIL held. False: the recording has ended. Example:
//   b, n = x.shape       ->  %4 = size %0, 0;  %5 = size %0, 1
#pragma once

#include "capture/record_context.h"

namespace kintsugi::capture {

// The sizes of an input that are left open, as bits: those that have changed between calls, those that the
// user has marked, or all if that is the rule (`dynamic=True`).
uint64_t openSizes(RecordContext& rec, ir::SourceId source, PyObject* tensor);
// The same of one that is a value already: by another path it is as open.
uint64_t openSizesOf(RecordContext& rec, ir::ValueId tensor);
// Guards on the bounds that mark_dynamic(min=, max=) has set for sizes of the input.
void guardRanges(RecordContext& rec, ir::SourceId source, PyObject* tensor);
// Is a number read from this source a value from the start?
bool opensNumbers(RecordContext& rec, ir::SourceId source);

// The tensor keeps the metadata that it has now: all of it, or all but sizes and strides.
bool pinMeta(RecordContext& rec, Shadow tensor, PyObject* object);
bool pinRank(RecordContext& rec, Shadow tensor, PyObject* object);
// What an operator of a library has made, which says nothing of sizes (a custom kernel): it lies as it did
// this time, as a rule. That is guarded where the tensor is used first, so that all after it is known.
bool pinLikely(RecordContext& rec, Shadow tensor, PyObject* object);
// The operator after such a guard, if the instruction is one. In recordings after an exit there its results
// are left open: RecorderOptions::dynamicSources holds its hash.
std::optional<std::string> likelyOperator(const ir::Trace& trace, uint32_t guard);
uint64_t hashOfOperator(std::string_view name);
// What the tensor's metadata is is not known any more.
void forgetMeta(RecordContext& rec, ir::ValueId tensor);
// What a torch call with a tensor whose sizes vary decides on before the dispatcher is called.
bool pinForBinding(CallContext& ctx, Shadow tensor, PyObject* object);

// A read of metadata that gives numbers (shape, size(), numel(), len(), stride()) of a tensor whose sizes
// vary. Nothing: another call.
std::optional<Flow> readSizes(CallContext& ctx, Shadow& result);

// x[...] with slices in a tuple, of a tensor whose sizes vary: bindings leave out a slice that takes all.
// What to put in the key's place so that they do not know; null: the key itself will do.
bool decidesOnSlices(const CallContext& ctx);
pyapi::Ref<> veilSlices(RecordContext& rec, PyObject* key);

}  // namespace kintsugi::capture
