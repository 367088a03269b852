// Well-known objects of other libraries, recognized by identity.
//
// Nothing may be guarded, skipped or taken as known because of its name: a program may call a class
// `collections.deque`, or keep its code in a folder `torch/`. So every class, function and module that the
// recorder treats specially has a row in a table, and so has code. Rows are looked up once, at start or when
// their module has been imported. After that they are compared as pointers.
//
// The tables of the standard library and numpy are here (known_objects.def, known_code.def). A layer above
// brings tables of its own, with an enumeration in its own namespace, and registers them before
// findKnownObjects(): torchapi/known_torch.h.
//
// Example: `isA(object, Known::kDeque)`, `isKnownCode(code, CodeFamily::kContextManagers)`.
//
// Ownership: found objects are never freed, so that no other object can have their addresses; results are
// borrowed. Threads: the GIL is needed. No pending exception is lost, and none is left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "pyapi/internal.h"

namespace kintsugi::pyapi {

enum class Known : uint8_t {
#define KTG_KNOWN(member, path, there) member,
#include "pyapi/known_objects.def"
#undef KTG_KNOWN
  kCount,
};

enum class CodeFamily : uint8_t {
  kWeakCallback,
  kSaysRecording,
  kBreaksGraph,
  kForcesStatic,
  kAssertsStatic,
  kIndexesByTensors,
  kContextManagers,
  kQuietHandlers,
  kOpensRegion,
  kClosesRegion,
  kPolyfills,
  kKeyTakers,
  kCount,
};
constexpr uint8_t kMostFamilies = 32;  // of all tables; those of other layers are numbered from kCount on

struct KnownObjectRow {
  enum There : uint8_t { kAlways, kOnImport };
  const char* path;
  There there;
};
struct KnownCodeRow {
  uint8_t family;
  const char* path;
};

// The objects of one enumeration: its rows, and what was found of them.
class KnownTable {
 public:
  // The arrays live as long as the process. `found` begins with nulls.
  template <size_t N>
  KnownTable(const KnownObjectRow (&rows)[N], PyObject* (&found)[N]) : KnownTable(rows, found, N) {}

  // The row's object, which was not found before; borrowed, or null.
  PyObject* look(size_t row);
  // Imports the modules that have to be there, and looks for all objects.
  void lookForAll();
  struct Row {
    std::string path;
    bool always = false;
    bool found = false;
    bool missing = false;  // the module lacks it
  };
  std::vector<Row> rows();

 private:
  // When to look again for the object of a row.
  struct Waiting {
    uint64_t version = 0;  // of sys.modules, when nothing was found
    bool missing = false;
  };
  KnownTable(const KnownObjectRow* rows, PyObject** found, size_t count)
      : rows_(rows), found_(found), waiting_(count) {}

  const KnownObjectRow* rows_;
  PyObject** found_;
  std::vector<Waiting> waiting_;
};

// What an enumeration of known objects has beside it in its namespace.
namespace detail {
extern PyObject* knownObjects[static_cast<size_t>(Known::kCount)];
bool isKnownCode(const PyCodeObject* code, uint8_t family);
}  // namespace detail
inline PyObject** foundObjects(Known) { return detail::knownObjects; }
KnownTable& tableOf(Known);

// Registers the tables of another layer. Called before findKnownObjects(); the tables live as long as the
// process.
void addKnownObjects(KnownTable& table);
void addKnownCode(std::span<const KnownCodeRow> rows);

// Null: the module has not been imported (or the row is wrong, which a test finds).
template <typename Enumeration>
PyObject* known(Enumeration which) {
  PyObject* found = foundObjects(which)[static_cast<size_t>(which)];
  return found != nullptr ? found : tableOf(which).look(static_cast<size_t>(which));
}
template <typename Enumeration>
PyTypeObject* knownType(Enumeration which) {
  return reinterpret_cast<PyTypeObject*>(known(which));
}

template <typename Enumeration>
bool isKnown(const void* object, Enumeration which) {
  return object == known(which) && object != nullptr;
}
// True if the object is of exactly this class.
template <typename Enumeration>
bool isA(PyObject* object, Enumeration which) {
  return isKnown(Py_TYPE(object), which);
}

template <typename Family>
bool isKnownCode(const PyCodeObject* code, Family family) {
  static_assert(static_cast<uint8_t>(Family::kCount) <= kMostFamilies);
  return detail::isKnownCode(code, static_cast<uint8_t>(family));
}

// Reads "attribute.attribute" from `object`, without descriptors, and without Python code if the object is a
// class or a module. Null: there is none.
PyObject* attributeOf(PyObject* object, const char* path);  // owned

// Finds the objects of all tables that have to be known at start. Called once, when the extension is loaded.
void findKnownObjects();
// Finds the polyfills and hides their frames. Called once, when their modules are loaded.
void hidePolyfills();

// The state of each row, for tests: "" for an object that was found; "absent" if nobody has imported its
// module; "missing" if the module lacks it. For a code row, the number of code objects.
struct KnownRow {
  std::string path;
  std::string state;
  bool always = false;
  size_t codes = 0;
};
std::vector<KnownRow> knownRows();

}  // namespace kintsugi::pyapi
