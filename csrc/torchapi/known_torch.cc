#include "torchapi/known_torch.h"

#include "pyapi/lazy.h"
#include "pyapi/module_code.h"
#include "pyapi/plain.h"

namespace kintsugi::torchapi {

namespace detail {
PyObject* knownObjects[static_cast<size_t>(Known::kCount)] = {};
}  // namespace detail

namespace {

constexpr auto kAlways = pyapi::KnownObjectRow::kAlways, kOnImport = pyapi::KnownObjectRow::kOnImport;

constexpr pyapi::KnownObjectRow kObjects[] = {
#define KTG_KNOWN(member, path, there) {path, there},
#include "torchapi/known_objects.def"
#undef KTG_KNOWN
};

// A family is this layer's, or one of pyapi's that torch has functions of, too.
using enum CodeFamily;
constexpr auto kBreaksGraph = pyapi::CodeFamily::kBreaksGraph;
constexpr pyapi::KnownCodeRow kCodes[] = {
#define KTG_KNOWN_CODE(family, path) {static_cast<uint8_t>(family), path},
#include "torchapi/known_code.def"
#undef KTG_KNOWN_CODE
};

pyapi::PackageCode& torchPackage() {
  static auto* package = new pyapi::PackageCode();
  return *package;
}

}  // namespace

pyapi::KnownTable& tableOf(Known) {
  static constinit pyapi::Lazy<pyapi::KnownTable*> tableSlot;
  return *tableSlot.get([] { return new pyapi::KnownTable(kObjects, detail::knownObjects); });
}

void findKnownObjects() {
  pyapi::addKnownObjects(tableOf(Known{}));
  pyapi::addKnownCode(kCodes);
  pyapi::findKnownObjects();
  pyapi::addPlainType(pyapi::knownType(Known::kTorchDevice), pyapi::PlainKind::kValue);
  for (const Known name : {Known::kTorchDtype, Known::kTorchLayout, Known::kTorchMemoryFormat})
    pyapi::addPlainType(pyapi::knownType(name), pyapi::PlainKind::kName);
  pyapi::addPlainType(pyapi::knownType(Known::kTorchSize), pyapi::PlainKind::kTuple);
  if (PyObject* bound = pyapi::known(Known::kTorchAttentionKernel)) pyapi::setBoundEnums(Py_TYPE(bound));
}

bool isTorchCode(const PyCodeObject* code, PyObject* globals) {
  return torchPackage().hasCode(pyapi::known(Known::kTorch), code, globals);
}
bool isTorchModule(PyObject* globals) {
  return torchPackage().hasModule(pyapi::known(Known::kTorch), globals);
}

}  // namespace kintsugi::torchapi
