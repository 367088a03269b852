#include "torchapi/ended_objects.h"

#include "torchapi/known_torch.h"

namespace kintsugi::torchapi {

using ir::Op;
using pyapi::End;

pyapi::End endOfReplaced(Op op, PyObject* target, PyObject* key, const pyapi::OwnReferences& own,
                         std::vector<PyObject*>* ending) {
  const pyapi::EndRules rules{isTorchModule, own, ending};
  switch (op) {
    case Op::kSetAttr:
    case Op::kDelAttr:
      return endOf(pyapi::replacedAttribute(target, key), rules);
    case Op::kSetItem:
    case Op::kDelItem:
      return PySlice_Check(key) ? endOf(pyapi::replacedItems(target, key), rules)
                                : endOf(pyapi::replacedItem(target, key), rules);
    case Op::kSetCell:
      return endOf(PyCell_GET(target), rules);
    default:
      return End::kQuiet;
  }
}

}  // namespace kintsugi::torchapi
