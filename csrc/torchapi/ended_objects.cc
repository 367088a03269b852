#include "torchapi/ended_objects.h"

#include <algorithm>

#include "torchapi/known_torch.h"

namespace kintsugi::torchapi {

using ir::Op;
using pyapi::End;

pyapi::End endOfReplaced(Op op, PyObject* target, PyObject* key, const pyapi::OwnReferences& own,
                         std::vector<PyObject*>* ending) {
  if (PyType_Check(target)) return End::kQuiet;
  const pyapi::EndRules rules{isTorchModule, own, ending};
  switch (op) {
    case Op::kSetAttr:
    case Op::kDelAttr:
      return endOf(pyapi::replacedAttribute(target, key), rules);
    case Op::kSetCell:
      return endOf(PyCell_GET(target), rules);
    case Op::kSetItem:
    case Op::kDelItem: {
      if (!PySlice_Check(key)) return endOf(pyapi::replacedItem(target, key), rules);
      End end = End::kQuiet;
      for (PyObject* item : pyapi::replacedItems(target, key)) end = std::max(end, endOf(item, rules));
      return end;
    }
    default:
      return End::kQuiet;
  }
}

}  // namespace kintsugi::torchapi
