#include "pyapi/plain.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <optional>

#include "pyapi/internal.h"
#include "pyapi/known_objects.h"
#include "pyapi/object_layout.h"
#include "pyapi/types.h"
#include "support/check.h"

namespace kintsugi::pyapi {

namespace {

// The types that other layers have registered.
struct PlainTypes {
  PyTypeObject* types[8] = {};
  PlainKind kinds[8] = {};
  size_t count = 0;
  PyTypeObject* boundEnums = nullptr;

  std::optional<PlainKind> kindOf(const PyTypeObject* type) const {
    for (size_t i = 0; i < count; ++i) {
      if (types[i] == type) return kinds[i];
    }
    return std::nullopt;
  }
};
constinit PlainTypes g_plainTypes;

// Tuples that are compared by value.
bool isValueTuple(PyObject* object) {
  return PyTuple_CheckExact(object) || g_plainTypes.kindOf(Py_TYPE(object)) == PlainKind::kTuple;
}

// numpy's numbers: immutable, with static types. The number comes right after the object's head.
struct NumberRow {
  Known type;
  size_t bytes;
};
constexpr NumberRow kNumbers[] = {
    {Known::kNumpyFloat64, 8}, {Known::kNumpyFloat32, 4}, {Known::kNumpyFloat16, 2},
    {Known::kNumpyInt64, 8},   {Known::kNumpyInt32, 4},   {Known::kNumpyInt16, 2},
    {Known::kNumpyInt8, 1},    {Known::kNumpyUint64, 8},  {Known::kNumpyUint32, 4},
    {Known::kNumpyUint16, 2},  {Known::kNumpyUint8, 1},   {Known::kNumpyComplex64, 8},
};

// 0: the type is not in the list.
size_t numberBytes(PyTypeObject* type) {
  if ((type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 || known(Known::kNumpyGeneric) == nullptr) {
    return 0;
  }
  const auto* row = std::find_if(std::begin(kNumbers), std::end(kNumbers),
                                 [type](const NumberRow& row) { return isKnown(type, row.type); });
  return row == std::end(kNumbers) ? 0 : row->bytes;
}

bool isPlainScalar(PyObject* o) {
  return PyUnicode_CheckExact(o) || PyLong_CheckExact(o) || PyBool_Check(o) || o == Py_None ||
         PyFloat_CheckExact(o) || PyBytes_CheckExact(o) || PyComplex_CheckExact(o) || o == Py_Ellipsis ||
         o == Py_NotImplemented;
}

bool stringsEqual(PyObject* a, PyObject* b) {
  if (PyUnicode_READY(a) != 0 || PyUnicode_READY(b) != 0) {
    PyErr_Clear();
    return false;
  }
  const Py_ssize_t length = PyUnicode_GET_LENGTH(a);
  return length == PyUnicode_GET_LENGTH(b) && PyUnicode_KIND(a) == PyUnicode_KIND(b) &&
         std::memcmp(PyUnicode_DATA(a), PyUnicode_DATA(b), static_cast<size_t>(length) * PyUnicode_KIND(a)) ==
             0;
}

// `==` for two plain constants, across types (1 == True == 1.0), as dict look-up asks it.
bool plainRichEquals(PyObject* a, PyObject* b) {
  if (PyUnicode_CheckExact(a) != PyUnicode_CheckExact(b)) {
    return false;  // comparing would warn under `python -b`, which runs Python code
  }
  const int equal = PyObject_RichCompareBool(a, b, Py_EQ);
  if (equal < 0) {
    PyErr_Clear();
  }
  return equal == 1;
}

bool comparesByIdentity(PyObject* object) {
  richcmpfunc compare = Py_TYPE(object)->tp_richcompare;
  return compare == nullptr || compare == PyBaseObject_Type.tp_richcompare;
}

Lookup sameItems(PyObject* entry, PyObject* key);

// Two keys with the same hash: equal, different, or unknown without the user's `__eq__`.
Lookup sameKey(PyObject* entry, PyObject* key) {
  if (entry == key) {
    return Lookup::kFound;
  }
  if (PyUnicode_CheckExact(entry) && PyUnicode_CheckExact(key)) {
    return stringsEqual(entry, key) ? Lookup::kFound : Lookup::kMissing;
  }
  const bool entryPlain = isPlain(entry);
  const bool keyPlain = isPlain(key);
  if (entryPlain && keyPlain) {
    return plainRichEquals(entry, key) ? Lookup::kFound : Lookup::kMissing;
  }
  if (PyTuple_CheckExact(entry) && PyTuple_CheckExact(key)) {
    return sameItems(entry, key);
  }
  // Both `==` methods fall back to identity.
  const bool known = (entryPlain || comparesByIdentity(entry)) && (keyPlain || comparesByIdentity(key));
  return known ? Lookup::kMissing : Lookup::kUnknown;
}

// Compares two tuples item by item, in the order of tuple's own comparison.
Lookup sameItems(PyObject* entry, PyObject* key) {
  if (Py_SIZE(entry) != Py_SIZE(key)) {
    return Lookup::kMissing;
  }
  for (Py_ssize_t i = 0; i < Py_SIZE(key); ++i) {
    const Lookup same = sameKey(PyTuple_GET_ITEM(entry, i), PyTuple_GET_ITEM(key, i));
    if (same != Lookup::kFound) {
      return same;
    }
  }
  return Lookup::kFound;
}

// True if hashing the key runs no Python code.
bool isHashedInC(PyObject* key) {
  const hashfunc hash = Py_TYPE(key)->tp_hash;
  if (isPlain(key) || hash == PyUnicode_Type.tp_hash || hash == PyBaseObject_Type.tp_hash ||
      PyCFunction_CheckExact(key) || isBoundEnumMember(key)) {
    return true;
  }
  if (!PyTuple_CheckExact(key)) {
    return false;
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); ++i) {
    if (!isHashedInC(PyTuple_GET_ITEM(key, i))) {
      return false;
    }
  }
  return true;
}

Py_ssize_t indexAt(const PyDictKeysObject* keys, size_t i) {
  const char* indices = keys->dk_indices;
  if (keys->dk_log2_size < 8) {
    return reinterpret_cast<const int8_t*>(indices)[i];
  }
  if (keys->dk_log2_size < 16) {
    return reinterpret_cast<const int16_t*>(indices)[i];
  }
  if (keys->dk_log2_size >= 32) {
    return static_cast<Py_ssize_t>(reinterpret_cast<const int64_t*>(indices)[i]);
  }
  return reinterpret_cast<const int32_t*>(indices)[i];
}

struct Entry {
  PyObject* key;
  Py_hash_t hash;
  PyObject* value;
};

Entry entryAt(const PyDictObject* dict, Py_ssize_t ix) {
  PyDictKeysObject* keys = dict->ma_keys;
  if (keys->dk_kind == DICT_KEYS_GENERAL) {
    const PyDictKeyEntry& entry = DK_ENTRIES(keys)[ix];
    return {entry.me_key, entry.me_hash, entry.me_value};
  }
  const PyDictUnicodeEntry& entry = DK_UNICODE_ENTRIES(keys)[ix];
  PyObject* value = dict->ma_values != nullptr ? dict->ma_values->values[ix] : entry.me_value;
  return {entry.me_key, entry.me_key == nullptr ? -1 : reinterpret_cast<PyASCIIObject*>(entry.me_key)->hash,
          value};
}

// The member's name, which is what Enum.__hash__ hashes. Null: the object is hashed in another way.
PyObject* enumName(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  PyObject* names[] = {PyUnicode_InternFromString("__hash__"), PyUnicode_InternFromString("_name_")};
  PyObject* method = names[0] == nullptr ? nullptr : _PyType_Lookup(type, names[0]);
  PyObject* result = nullptr;
  if (method != nullptr && names[1] != nullptr && PyFunction_Check(method) && comparesByIdentity(object)) {
    PyObject* dict = instanceDict(object);
    result = isKnown(method, Known::kEnumHash) && dict != nullptr ? PyDict_GetItemWithError(dict, names[1])
                                                                  : nullptr;
  }
  Py_XDECREF(names[0]);
  Py_XDECREF(names[1]);
  PyErr_Clear();
  return result != nullptr && PyUnicode_CheckExact(result) ? result : nullptr;
}

// Compares the keys in the order of the OrderedDict, which it keeps in a list beside the dict's entries.
bool orderedKeysAre(PyObject* odict, PyObject* tuple) {
  struct Node {
    PyObject* key;
    Py_hash_t hash;
    Node* next;
    Node* previous;
  };
  struct Head {
    PyDictObject dict;
    Node* first;
  };
  Py_ssize_t i = 0;
  const Py_ssize_t count = PyTuple_GET_SIZE(tuple);
  for (Node* node = reinterpret_cast<Head*>(odict)->first; node != nullptr; node = node->next, ++i) {
    if (i >= count || !plainEquals(node->key, PyTuple_GET_ITEM(tuple, i))) {
      return false;
    }
  }
  return i == count;
}

}  // namespace

bool isPlain(PyObject* object) {
  if (isPlainScalar(object) || isPlainOfLibrary(object)) {
    return true;
  }
  if (!isValueTuple(object)) {
    return false;
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i) {
    if (!isPlain(PyTuple_GET_ITEM(object, i))) {
      return false;
    }
  }
  return true;
}

void addPlainType(PyTypeObject* type, PlainKind kind) {
  if (type == nullptr) return;
  KINTSUGI_CHECK(g_plainTypes.count < std::size(g_plainTypes.types), "too many plain types");
  g_plainTypes.types[g_plainTypes.count] = type;
  g_plainTypes.kinds[g_plainTypes.count] = kind;
  ++g_plainTypes.count;
}

bool isPlainOfLibrary(PyObject* object) {
  const auto kind = g_plainTypes.kindOf(Py_TYPE(object));
  return kind && *kind != PlainKind::kTuple;
}

void setBoundEnums(PyTypeObject* metaclass) { g_plainTypes.boundEnums = metaclass; }

bool isBoundEnumMember(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (g_plainTypes.boundEnums == nullptr || Py_TYPE(type) != g_plainTypes.boundEnums) {
    return false;
  }
  static PyObject* name = PyUnicode_InternFromString("__entries");
  static PyObject* methods[] = {PyUnicode_InternFromString("__hash__"), PyUnicode_InternFromString("__eq__")};
  PyObject* entries = lookUpInType(type, name);
  const bool bound = entries != nullptr && PyDict_CheckExact(entries) &&
                     std::ranges::all_of(methods, [type](PyObject* method) {
                       PyObject* found = lookUpInType(type, method);
                       return found != nullptr && PyInstanceMethod_Check(found);  // a C function
                     });
  if (!bound) {
    return false;
  }
  PyObject* entry = nullptr;
  for (Py_ssize_t at = 0; PyDict_Next(entries, &at, nullptr, &entry) != 0;) {
    if (PyTuple_CheckExact(entry) && PyTuple_GET_SIZE(entry) > 0 && PyTuple_GET_ITEM(entry, 0) == object) {
      return true;
    }
  }
  return false;
}

bool isComparedByValue(PyObject* object) {
  return g_plainTypes.kindOf(Py_TYPE(object)) != PlainKind::kName && isPlain(object);
}

bool isNumpyNumber(PyObject* object) { return numberBytes(Py_TYPE(object)) != 0; }

bool plainEquals(PyObject* a, PyObject* b) {
  if (a == b) {
    return true;
  }
  if (Py_TYPE(a) != Py_TYPE(b)) {
    return false;
  }
  if (PyUnicode_CheckExact(a)) {
    return stringsEqual(a, b);
  }
  if (PyLong_CheckExact(a)) {
    return sameDigits(a, b);
  }
  if (PyFloat_CheckExact(a)) {
    return std::memcmp(&reinterpret_cast<PyFloatObject*>(a)->ob_fval,
                       &reinterpret_cast<PyFloatObject*>(b)->ob_fval, sizeof(double)) == 0;
  }
  if (PyComplex_CheckExact(a)) {
    return std::memcmp(&reinterpret_cast<PyComplexObject*>(a)->cval,
                       &reinterpret_cast<PyComplexObject*>(b)->cval, sizeof(Py_complex)) == 0;
  }
  if (PyBytes_CheckExact(a)) {
    return Py_SIZE(a) == Py_SIZE(b) &&
           std::memcmp(PyBytes_AS_STRING(a), PyBytes_AS_STRING(b), static_cast<size_t>(Py_SIZE(a))) == 0;
  }
  if (isValueTuple(a)) {
    if (Py_SIZE(a) != Py_SIZE(b)) {
      return false;
    }
    for (Py_ssize_t i = 0; i < Py_SIZE(a); ++i) {
      if (!plainEquals(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i))) {
        return false;
      }
    }
    return true;
  }
  if (const size_t bytes = numberBytes(Py_TYPE(a)); bytes != 0) {
    return std::memcmp(a + 1, b + 1, bytes) == 0;
  }
  return g_plainTypes.kindOf(Py_TYPE(a)) == PlainKind::kValue && plainRichEquals(a, b);
}

bool plainHash(PyObject* key, Py_hash_t* hash) {
  PyObject* hashed = isHashedInC(key) ? key : enumName(key);
  if (hashed == nullptr) {
    return false;
  }
  *hash = PyObject_Hash(hashed);
  if (*hash == -1) {
    PyErr_Clear();
  }
  return *hash != -1;
}

Lookup lookUp(PyObject* object, PyObject* key, Py_hash_t hash, PyObject** value) {
  constexpr int kPerturbShift = 5;  // the probe sequence of Objects/dictobject.c
  const auto* dict = reinterpret_cast<PyDictObject*>(object);
  const PyDictKeysObject* keys = dict->ma_keys;
  const size_t mask = static_cast<size_t>(DK_SIZE(keys)) - 1;
  size_t perturb = static_cast<size_t>(hash);
  for (size_t i = perturb & mask;;) {
    const Py_ssize_t ix = indexAt(keys, i);
    if (ix == DKIX_EMPTY) {
      return Lookup::kMissing;
    }
    if (ix >= 0) {
      const Entry entry = entryAt(dict, ix);
      if (entry.key == key || (entry.hash == hash && entry.key != nullptr)) {
        const Lookup same = sameKey(entry.key, key);
        if (same == Lookup::kUnknown) {
          return same;
        }
        if (same == Lookup::kFound) {
          *value = entry.value;
          return entry.value == nullptr ? Lookup::kMissing : Lookup::kFound;
        }
      }
    }
    perturb >>= kPerturbShift;
    i = (i * 5 + perturb + 1) & mask;
  }
}

bool needsProgram(PyObject* dict, PyObject* key) {
  Py_hash_t hash = 0;
  PyObject* value = nullptr;
  return plainHash(key, &hash) && lookUp(dict, key, hash, &value) == Lookup::kUnknown;
}

bool keysAre(PyObject* dict, PyObject* tuple) {
  if (PyDict_GET_SIZE(dict) != PyTuple_GET_SIZE(tuple)) {
    return false;
  }
  if (PyODict_Check(dict)) {
    return orderedKeysAre(dict, tuple);
  }
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  Py_ssize_t position = 0;
  for (Py_ssize_t i = 0; PyDict_Next(dict, &position, &key, &value) != 0; ++i) {
    if (i >= PyTuple_GET_SIZE(tuple) || !plainEquals(key, PyTuple_GET_ITEM(tuple, i))) {
      return false;
    }
  }
  return true;
}

namespace {

// The same for an element whose hash is known; `entry`: what the set has for it.
Lookup lookUpHashed(PyObject* object, PyObject* element, Py_hash_t hash, PyObject** entry) {
  constexpr int kPerturbShift = 5;  // the probe sequence of Objects/setobject.c
  constexpr size_t kLinearProbes = 9;
  const auto* set = reinterpret_cast<PySetObject*>(object);
  const auto mask = static_cast<size_t>(set->mask);
  auto perturb = static_cast<size_t>(hash);
  for (size_t i = perturb & mask;;) {
    const size_t last = i + kLinearProbes <= mask ? i + kLinearProbes : i;
    for (size_t at = i; at <= last; ++at) {
      const setentry& found = set->table[at];
      if (found.key == nullptr && found.hash == 0) return Lookup::kMissing;  // never used
      if (found.hash != hash || found.key == nullptr) continue;
      const Lookup same = sameKey(found.key, element);
      if (same == Lookup::kMissing) continue;
      *entry = found.key;
      return same;
    }
    perturb >>= kPerturbShift;
    i = (i * 5 + 1 + perturb) & mask;
  }
}

}  // namespace

Lookup lookUpInSet(PyObject* set, PyObject* element) {
  Py_hash_t hash = 0;
  PyObject* entry = nullptr;
  if (!plainHash(element, &hash)) return Lookup::kUnknown;
  return lookUpHashed(set, element, hash, &entry);
}

bool plainSetsEqual(PyObject* a, PyObject* b) {
  if (PySet_GET_SIZE(a) != PySet_GET_SIZE(b)) {
    return false;
  }
  // The sets have the same size, so they are equal if each element of `a` is in `b`.
  PyObject* x = nullptr;
  Py_hash_t hash = 0;
  for (Py_ssize_t i = 0; _PySet_NextEntry(a, &i, &x, &hash) != 0;) {
    PyObject* y = nullptr;
    if (lookUpHashed(b, x, hash, &y) != Lookup::kFound || !plainEquals(x, y)) {
      return false;
    }
  }
  return true;
}

bool holdsNan(PyObject* object) {
  if (PyFloat_CheckExact(object)) return std::isnan(PyFloat_AS_DOUBLE(object));
  if (PyComplex_CheckExact(object)) {
    const Py_complex value = PyComplex_AsCComplex(object);
    return std::isnan(value.real) || std::isnan(value.imag);
  }
  if (!PyTuple_Check(object)) return false;
  PyObject** items = PySequence_Fast_ITEMS(object);
  return std::any_of(items, items + PyTuple_GET_SIZE(object), holdsNan);
}

bool holdsPlain(PyObject* sequence) {
  if (!PyList_CheckExact(sequence) && !PyTuple_CheckExact(sequence)) {
    return false;
  }
  PyObject** items = PySequence_Fast_ITEMS(sequence);
  return std::all_of(items, items + PySequence_Fast_GET_SIZE(sequence),
                     [](PyObject* o) { return isPlain(o); });
}

PyObject* holdsPlainFunction() {
  static PyMethodDef definition = {
      "holds_plain",
      [](PyObject*, PyObject* sequence) { return Py_NewRef(holdsPlain(sequence) ? Py_True : Py_False); },
      METH_O, nullptr};
  static PyObject* function = PyCFunction_New(&definition, nullptr);
  return function;
}

}  // namespace kintsugi::pyapi
