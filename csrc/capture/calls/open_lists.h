// Calls on old lists whose length has varied from call to call (open_values.h): nothing of what is
// in them is guarded, and they are asked, and changed, by steps.
//
// Nothing: not such a call, which is modelled like that on any other list. The
// recording thread, GIL held. Example: `losses.pop(0)`, `max(losses)`, `sorted(losses)`, once `losses` has
// grown.
#pragma once

#include <optional>

#include "capture/calls/model.h"

namespace kintsugi::capture {

// list.pop() and the like: what is in the list is read again after it.
std::optional<Flow> changeOpenList(CallContext& ctx, Shadow& result);
// sum(), max() and the like of numbers and texts, which C code needs nobody's help with.
std::optional<Flow> reduceOpenList(CallContext& ctx, Shadow& result);
// list(), list.copy(): a list whose length is as open.
std::optional<Flow> copyOpenList(CallContext& ctx, Shadow& result);
// sorted(), of numbers and texts.
std::optional<Flow> sortOpenList(CallContext& ctx, Shadow& result);
// torch.stack() and its like, of tensors.
std::optional<Flow> joinOpenList(CallContext& ctx, Shadow& result);
// A comprehension over a list, a dict or a view of one whose length is open, or over a text that varies, runs
// as one step, which is not looked into; so does what takes the items of a generator expression:
// sum(loss.item() for loss in losses).
bool isComprehension(PyObject* function);
bool isOpenIterable(RecordContext& rec, Shadow shadow, PyObject* object);
bool walksOpenList(RecordContext& rec, PyObject* function, Shadow iterator);
void openComprehension(RecordContext& rec, Shadow result);
std::optional<Flow> consumeOpen(CallContext& ctx, Shadow& result);
// list[index] = value, del list[index], where `real` is null: written as effects. Nothing: not such a list;
// false: the recording has ended.
std::optional<bool> storeInOpenList(RecordContext& rec, Shadow list, PyObject* object, Shadow& key,
                                    PyObject* index, Shadow value, PyObject* real);

}  // namespace kintsugi::capture
