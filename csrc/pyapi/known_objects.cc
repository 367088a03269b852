#include "pyapi/known_objects.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "pyapi/dict.h"
#include "pyapi/errors.h"
#include "pyapi/frame.h"
#include "pyapi/imports.h"
#include "pyapi/lazy.h"
#include "pyapi/made_polyfills.h"
#include "pyapi/module_code.h"
#include "pyapi/ref.h"
#include "pyapi/text.h"
#include "support/check.h"

namespace kintsugi::pyapi {

namespace detail {
PyObject* knownObjects[static_cast<size_t>(Known::kCount)] = {};
}  // namespace detail

namespace {

constexpr auto kAlways = KnownObjectRow::kAlways, kOnImport = KnownObjectRow::kOnImport;

constexpr KnownObjectRow kObjects[] = {
#define KTG_KNOWN(member, path, there) {path, there},
#include "pyapi/known_objects.def"
#undef KTG_KNOWN
};

constexpr KnownCodeRow kCodes[] = {
#define KTG_KNOWN_CODE(family, path) {static_cast<uint8_t>(CodeFamily::family), path},
#include "pyapi/known_code.def"
#undef KTG_KNOWN_CODE
};

// The tables of all layers.
std::vector<KnownTable*>& tables() {
  static constinit Lazy<std::vector<KnownTable*>*> allSlot;
  return *allSlot.get([] { return new std::vector<KnownTable*>{&tableOf(Known{})}; });
}

uint64_t modulesVersion() { return dictVersion(PyImport_GetModuleDict()); }

PyObject* importedModule(std::string_view name) {
  Ref<> text = steal(PyUnicode_FromStringAndSize(name.data(), static_cast<Py_ssize_t>(name.size())));
  PyObject* module = text ? PyDict_GetItemWithError(PyImport_GetModuleDict(), text.get()) : nullptr;
  PyErr_Clear();
  return module;
}

// Parses "a.b:c.d | e:f", a list of alternatives.
struct Path {
  std::string module;
  std::string attributes;
  std::vector<std::string> inner;
};
std::vector<Path> pathsOf(std::string_view text) {
  std::vector<Path> paths;
  while (!text.empty()) {
    const size_t end = std::min(text.find(" | "), text.size());
    std::string_view one = text.substr(0, end);
    text.remove_prefix(std::min(end + 3, text.size()));
    Path path;
    const size_t colon = std::min(one.find(':'), one.size());
    path.module = one.substr(0, colon);
    one.remove_prefix(std::min(colon + 1, one.size()));
    path.attributes = one.substr(0, one.find('/'));
    for (size_t slash = one.find('/'); slash != std::string_view::npos; slash = one.find('/', slash + 1)) {
      const size_t next = std::min(one.find('/', slash + 1), one.size());
      path.inner.emplace_back(one.substr(slash + 1, next - slash - 1));
    }
    paths.push_back(std::move(path));
  }
  return paths;
}

enum class Search : uint8_t { kFound, kAbsent, kBusy, kMissing };

Search search(std::string_view text, Ref<>& found, std::vector<std::string>& inner) {
  bool absent = true, busy = false;
  for (const Path& path : pathsOf(text)) {
    PyObject* module = importedModule(path.module);
    if (module == nullptr) continue;
    absent = false;
    found = path.attributes.empty() ? newRef(module) : steal(attributeOf(module, path.attributes.c_str()));
    inner = path.inner;
    if (found) return Search::kFound;
    busy = busy || (PyModule_Check(module) && isInitializing(PyModule_GetDict(module)));
  }
  return absent ? Search::kAbsent : busy ? Search::kBusy : Search::kMissing;
}

// The function that a name stands for, without its decorators.
Ref<> innermost(Ref<> object) {
  for (int depth = 0; depth < 16 && object; ++depth) {
    const bool wrapped = PyFunction_Check(object.get()) || PyMethod_Check(object.get());
    Ref<> next = wrapped ? steal(PyObject_GetAttrString(object.get(), "__wrapped__")) : Ref<>();
    PyErr_Clear();
    if (!next) break;
    object = std::move(next);
  }
  if (object && PyMethod_Check(object.get())) return newRef(PyMethod_GET_FUNCTION(object.get()));
  return object;
}

PyObject* innerCode(PyObject* code, const std::string& name) {
  PyObject* consts = reinterpret_cast<PyCodeObject*>(code)->co_consts;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(consts); ++i) {
    PyObject* inner = PyTuple_GET_ITEM(consts, i);
    if (PyCode_Check(inner) &&
        PyUnicode_CompareWithASCIIString(reinterpret_cast<PyCodeObject*>(inner)->co_name, name.c_str()) == 0)
      return inner;
  }
  return nullptr;
}

constexpr auto kPolyfills = static_cast<uint8_t>(CodeFamily::kPolyfills);

// The code objects that the rows of all layers list.
class KnownCode {
 public:
  KnownCode() { addRows(kCodes); }

  void addRows(std::span<const KnownCodeRow> rows) {
    rows_.insert(rows_.end(), rows.begin(), rows.end());
    found_.resize(rows_.size());
    waiting_.fill(true);
    versions_.fill(0);  // no dict has version 0
  }

  bool contains(const PyCodeObject* code, uint8_t family) {
    KINTSUGI_DCHECK(family < kMostFamilies, "family ", int{family});
    if (waiting_[family] && modulesVersion() != versions_[family]) {
      PendingErrorScope keep;
      update(family);
    }
    const auto it = families_.find(code);
    return it != families_.end() && (it->second & bit(family)) != 0;
  }

  // Looks for those rows of the family that were not found yet. The others are not visited again, since a
  // package has much code.
  void update(uint8_t family) {
    const uint64_t version = modulesVersion();
    bool busy = false;
    waiting_[family] = false;
    for (size_t i = 0; i < rows_.size(); ++i) {
      if (rows_[i].family != family) continue;
      const Search state = found_[i].done ? Search::kFound : find(rows_[i], found_[i]);
      found_[i].state = state;
      found_[i].done = state == Search::kFound && !isPackage(rows_[i].path);
      busy = busy || state == Search::kBusy;
      if (!found_[i].done && state != Search::kMissing) waiting_[family] = true;
    }
    versions_[family] = busy ? 0 : version;
  }

  void addMade(PyObject* code, uint8_t family) {
    Found found;
    add(code, family, found);
  }

  std::vector<KnownRow> rows() {
    for (uint8_t i = 0; i < kMostFamilies; ++i) update(i);
    std::vector<KnownRow> result;
    for (size_t i = 0; i < rows_.size(); ++i) {
      const Search state = found_[i].state;
      result.push_back({rows_[i].path,
                        state == Search::kFound     ? ""
                        : state == Search::kMissing ? "missing"
                                                    : "absent",
                        false, found_[i].count});
    }
    return result;
  }

 private:
  struct Found {
    Search state = Search::kAbsent;
    bool done = false;
    size_t count = 0;
  };

  static uint32_t bit(uint8_t family) { return uint32_t{1} << family; }
  static bool isPackage(std::string_view path) { return path.ends_with(".*"); }

  void add(PyObject* code, uint8_t family, Found& found) {
    auto [it, fresh] = families_.try_emplace(reinterpret_cast<PyCodeObject*>(code), 0);
    if (fresh) Py_INCREF(code);
    if ((it->second & bit(family)) == 0) ++found.count;
    it->second |= bit(family);
    if (family == kPolyfills) hideFramesOf(reinterpret_cast<PyCodeObject*>(code));
  }

  Search find(const KnownCodeRow& row, Found& found) {
    const std::string_view path = row.path;
    if (isPackage(path)) return findPackage(std::string(path.substr(0, path.size() - 2)), row.family, found);
    if (path.ends_with(":*")) return findModule(path.substr(0, path.size() - 2), row.family, found);
    Ref<> object;
    std::vector<std::string> inner;
    const Search state = search(path, object, inner);
    if (state != Search::kFound) return state;
    object = innermost(std::move(object));
    if (!object || !PyFunction_Check(object.get())) return Search::kMissing;
    // The program may have put a function of its own in this place.
    if (!areOfPackage(PyFunction_GET_GLOBALS(object.get()), path.substr(0, path.find_first_of(".:"))))
      return Search::kMissing;
    PyObject* code = PyFunction_GET_CODE(object.get());
    for (const std::string& name : inner) {
      code = innerCode(code, name);
      if (code == nullptr) return Search::kMissing;
    }
    add(code, row.family, found);
    return Search::kFound;
  }

  Search findModule(std::string_view name, uint8_t family, Found& found) {
    PyObject* module = importedModule(name);
    if (module == nullptr) return Search::kAbsent;
    if (!PyModule_Check(module)) return Search::kMissing;
    if (isInitializing(PyModule_GetDict(module))) return Search::kBusy;
    for (PyObject* code : codeOfModule(PyModule_GetDict(module))) add(code, family, found);
    return Search::kFound;
  }

  Search findPackage(const std::string& name, uint8_t family, Found& found) {
    PyObject* package = importedModule(name);
    if (package == nullptr) return Search::kAbsent;
    PyObject *key, *module;
    Py_ssize_t at = 0;
    const std::string prefix = name + ".";
    bool busy = false;
    while (PyDict_Next(PyImport_GetModuleDict(), &at, &key, &module)) {
      const bool inside = module == package || ascii(key).starts_with(prefix);
      if (!inside || !PyModule_Check(module) || collected_.contains(module)) continue;
      if (isInitializing(PyModule_GetDict(module))) {
        busy = true;
      } else if (isLoadedBy(PyModule_GetDict(module), package)) {
        collected_.insert(Py_NewRef(module));
        for (PyObject* code : codeOfModule(PyModule_GetDict(module))) add(code, family, found);
      }
    }
    return busy ? Search::kBusy : Search::kFound;
  }

  std::unordered_map<const PyCodeObject*, uint32_t> families_;  // keys are owned, and never freed
  std::unordered_set<PyObject*> collected_;                     // modules of packages, owned
  std::vector<KnownCodeRow> rows_;
  std::vector<Found> found_;  // of rows_
  std::array<bool, kMostFamilies> waiting_;
  std::array<uint64_t, kMostFamilies> versions_;
};

KnownCode& knownCode() {
  static auto* code = new KnownCode();
  return *code;
}

}  // namespace

PyObject* KnownTable::look(size_t row) {
  KINTSUGI_DCHECK(row < waiting_.size(), "known object ", row);
  if (Py_IsInitialized() == 0) return nullptr;
  const uint64_t version = modulesVersion();
  if (waiting_[row].version == version) return nullptr;
  PendingErrorScope keep;
  Ref<> found;
  std::vector<std::string> inner;
  const Search state = search(rows_[row].path, found, inner);
  waiting_[row].missing = state == Search::kMissing;
  if (state != Search::kBusy) waiting_[row].version = version;
  if (found) found_[row] = found.release();  // never freed
  return found_[row];
}

void KnownTable::lookForAll() {
  for (size_t i = 0; i < waiting_.size(); ++i) {
    if (rows_[i].there == kAlways) {
      for (const Path& path : pathsOf(rows_[i].path)) Py_XDECREF(importModule(path.module.c_str()));
      PyErr_Clear();
    }
    if (found_[i] == nullptr) look(i);
  }
}

std::vector<KnownTable::Row> KnownTable::rows() {
  std::vector<Row> result;
  for (size_t i = 0; i < waiting_.size(); ++i) {
    const bool found = found_[i] != nullptr || look(i) != nullptr;
    result.push_back({rows_[i].path, rows_[i].there == kAlways, found, waiting_[i].missing});
  }
  return result;
}

PyObject* attributeOf(PyObject* object, const char* path) {
  Ref<> found = newRef(object);
  for (std::string_view rest = path; found && !rest.empty();) {
    const size_t end = std::min(rest.find('.'), rest.size());
    const std::string name(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    Ref<> key = steal(PyUnicode_FromStringAndSize(name.data(), static_cast<Py_ssize_t>(name.size())));
    PyObject* raw = nullptr;
    if (PyModule_Check(found.get())) {
      raw = PyDict_GetItemWithError(PyModule_GetDict(found.get()), key.get());
    } else if (PyType_Check(found.get())) {
      raw = _PyType_Lookup(reinterpret_cast<PyTypeObject*>(found.get()), key.get());
      if (raw != nullptr && (Py_TYPE(raw) == &PyStaticMethod_Type || Py_TYPE(raw) == &PyClassMethod_Type)) {
        found = steal(PyObject_GetAttrString(raw, "__func__"));
        continue;
      }
    }
    found = raw != nullptr ? newRef(raw) : steal(PyObject_GetAttr(found.get(), key.get()));
    PyErr_Clear();
  }
  return found.release();
}

KnownTable& tableOf(Known) {
  static constinit Lazy<KnownTable*> tableSlot;
  return *tableSlot.get([] { return new KnownTable(kObjects, detail::knownObjects); });
}

void addKnownObjects(KnownTable& table) { tables().push_back(&table); }
void addKnownCode(std::span<const KnownCodeRow> rows) { knownCode().addRows(rows); }

bool detail::isKnownCode(const PyCodeObject* code, uint8_t family) {
  return knownCode().contains(code, family);
}

void findKnownObjects() {
  PendingErrorScope keep;
  for (KnownTable* table : tables()) table->lookForAll();
}

void addPolyfill(PyObject* code) { knownCode().addMade(code, kPolyfills); }

void hidePolyfills() { knownCode().update(kPolyfills); }

std::vector<KnownRow> knownRows() {
  PendingErrorScope keep;
  std::vector<KnownRow> rows;
  for (KnownTable* table : tables()) {
    for (const KnownTable::Row& row : table->rows())
      rows.push_back({row.path, row.found ? "" : row.missing ? "missing" : "absent", row.always, 0});
  }
  for (KnownRow& row : knownCode().rows()) rows.push_back(std::move(row));
  return rows;
}

}  // namespace kintsugi::pyapi
