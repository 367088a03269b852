#include "capture/calls/drive.h"

#include "capture/calls/model.h"

namespace kintsugi::capture {

bool Driver::worthwhile() const {
  Shadow shadow = ctx_.shadows[at_];
  if (shadow.isVirtual() && ctx_.rec.virtualOf(shadow).kind == VirtualKind::kGenerator) return true;
  return !shadow.isValue() && pythonMethod(ctx_.args[at_], "__iter__") != nullptr;
}

bool Driver::begin() {
  Recorder& rec = ctx_.rec;
  PyObject* object = ctx_.args[at_];
  iteratorShadow_ = ctx_.shadows[at_];
  PyObject* method = pythonMethod(object, "__iter__");
  if (method == nullptr) {  // a generator
    iterator_ = pyapi::newRef(object);
    return true;
  }
  rec.guardType(iteratorShadow_, object);
  rec.guardTypeVersion(Py_TYPE(object));
  PendingFrame pending = rec.methodFrame(method, iteratorShadow_, object);
  pending.rebuildable = false;
  rec.expectFrame(std::move(pending));
  iterator_ = pyapi::steal(PyObject_GetIter(object));
  failed_ = !iterator_;
  if (iterator_ && rec.live()) iteratorShadow_ = rec.frameResult(iterator_.get());
  return !failed_;
}

bool Driver::next() {
  Recorder& rec = ctx_.rec;
  if (failed_ || (!iterator_ && !begin())) return false;
  PyObject* method = pythonMethod(iterator_.get(), "__next__");
  if (!rec.live()) {
    method = nullptr;
  } else if (method != nullptr) {
    rec.guardType(iteratorShadow_, iterator_.get());
    rec.guardTypeVersion(Py_TYPE(iterator_.get()));
    PendingFrame pending = rec.methodFrame(method, iteratorShadow_, iterator_.get());
    pending.rebuildable = false;
    rec.expectFrame(std::move(pending));
  } else {
    rec.prepareNext(iteratorShadow_);
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
  auto known = method != nullptr ? std::optional(rec.returned()) : rec.advance(iteratorShadow_, item_.get());
  if (!known) rec.abort(diag::Code::KTG0101, {"next"});
  shadow_ = known.value_or(Shadow::constant());
  return true;
}

}  // namespace kintsugi::capture
