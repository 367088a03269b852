// Calls on older lists whose length has varied from call to call (open_values.h). Their items are not
// guarded; each run reads and changes such lists by steps.
//
// A result of nothing means that it is not such a call; then it is modelled as on any other list. The
// recording thread, GIL held. Example: `losses.pop(0)`, `max(losses)`, `sorted(losses)`, once `losses` has
// grown in several calls.
#pragma once

#include <optional>

#include "capture/calls/model.h"

namespace kintsugi::capture {

// list.pop() and the like. The list's items are read again after it.
std::optional<Flow> changeOpenList(CallContext& ctx, Shadow& result);
// sum(), max() and the like, of numbers and strings, for which C code calls no Python code.
std::optional<Flow> reduceOpenList(CallContext& ctx, Shadow& result);
// list(), list.copy(): the new list has an open length, too.
std::optional<Flow> copyOpenList(CallContext& ctx, Shadow& result);
// sorted(), of numbers and strings.
std::optional<Flow> sortOpenList(CallContext& ctx, Shadow& result);
// torch.stack() and the like, of tensors.
std::optional<Flow> joinOpenList(CallContext& ctx, Shadow& result);
// A comprehension over a list, a dict or a dict view of open length, or over a string that varies, runs as
// one opaque step. So does a call that takes the items of a generator expression: sum(loss.item() for loss in
// losses).
bool isComprehension(PyObject* function);
bool isOpenIterable(RecordContext& rec, Shadow shadow, PyObject* object);
bool iteratesOpenList(RecordContext& rec, PyObject* function, Shadow iterator);
void openComprehension(RecordContext& rec, Shadow result);
std::optional<Flow> consumeOpen(CallContext& ctx, Shadow& result);
// `list[index] = value`, or `del list[index]` if `real` is null, as an effect. Nothing: it is not such a
// list. False: the recording has ended.
std::optional<bool> storeInOpenList(RecordContext& rec, Shadow list, PyObject* object, Shadow& key,
                                    PyObject* index, Shadow value, PyObject* real);

}  // namespace kintsugi::capture
