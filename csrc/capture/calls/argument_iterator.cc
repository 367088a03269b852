#include "capture/calls/argument_iterator.h"

#include "capture/calls/model.h"

namespace kintsugi::capture {

bool ArgumentIterator::runsPythonCode() const {
  Shadow shadow = ctx_.shadows[at_];
  if (shadow.isVirtual() && ctx_.rec.objects.virtualOf(shadow).kind == VirtualKind::kGenerator) return true;
  return !shadow.isValue() && pythonMethod(ctx_.args[at_], "__iter__") != nullptr;
}

bool ArgumentIterator::begin() {
  RecordContext& rec = ctx_.rec;
  PyObject* object = ctx_.args[at_];
  iteratorShadow_ = ctx_.shadows[at_];
  PyObject* method = pythonMethod(object, "__iter__");
  if (method == nullptr) {  // a generator
    iterator_ = pyapi::newRef(object);
    return true;
  }
  rec.guards.guardType(iteratorShadow_, object);
  rec.guards.guardTypeVersion(Py_TYPE(object));
  PendingFrame pending = rec.callees.methodFrame(method, iteratorShadow_, object);
  pending.rebuildable = false;
  rec.callees.expectFrame(std::move(pending));
  iterator_ = pyapi::steal(PyObject_GetIter(object));
  failed_ = !iterator_;
  if (iterator_ && rec.live()) iteratorShadow_ = rec.callees.frameResult(iterator_.get());
  return !failed_;
}

bool ArgumentIterator::next() {
  RecordContext& rec = ctx_.rec;
  if (failed_ || (!iterator_ && !begin())) return false;
  PyObject* method = pythonMethod(iterator_.get(), "__next__");
  if (!rec.live()) {
    method = nullptr;
  } else if (method != nullptr) {
    rec.guards.guardType(iteratorShadow_, iterator_.get());
    rec.guards.guardTypeVersion(Py_TYPE(iterator_.get()));
    PendingFrame pending = rec.callees.methodFrame(method, iteratorShadow_, iterator_.get());
    pending.rebuildable = false;
    rec.callees.expectFrame(std::move(pending));
  } else {
    rec.objects.prepareNext(iteratorShadow_);
  }
  item_ = pyapi::steal(PyIter_Next(iterator_.get()));
  if (!item_) {
    failed_ = PyErr_Occurred() != nullptr;
    return false;
  }
  if (!rec.live()) {
    shadow_ = Shadow::constant();
    return true;
  }
  auto known = method != nullptr ? std::optional(rec.callees.returned())
                                 : rec.objects.advance(iteratorShadow_, item_.get());
  if (!known) rec.abort(diag::Code::KTG0101, {"next"});
  shadow_ = known.value_or(Shadow::constant());
  return true;
}

}  // namespace kintsugi::capture
