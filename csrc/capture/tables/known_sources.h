// The sources of a trace: the paths by which it reaches objects that are older than it, and the objects that
// they have led to.
//
// A path is a node of the document (kind, parent, key, index) with the guard block that it is resolved in. A
// hash of the path finds the node again, so the same read has one source. For each node the table also keeps
// the object that was read, its shadow once it has been described, and a hash of the path without the block.
// That hash is the same from recording to recording. Sources are found by their object's identity too.
//
// Ownership: borrows the document's nodes. Objects are borrowed: whoever adds one keeps it alive
// (KeptObjects), and calls forget() before it lets it go. Owned by the Recorder; the recording thread, GIL
// held. Invalidation: clear() forgets the objects, not the paths. Example:
//
//   const auto found = sources.find({kind, parent, key, index}, block);
//   if (found.isNew) sources.append(found, node, object);
#pragma once

#include <algorithm>
#include <optional>
#include <unordered_set>
#include <vector>

#include "capture/shadow.h"
#include "capture/source_hash.h"
#include "guard/document.h"
#include "support/check.h"
#include "support/flat_map.h"

namespace kintsugi::capture {

using SourceSet = std::unordered_set<ir::SourceId>;

class KnownSources {
 public:
  struct Path {
    guard::SourceKind kind;
    ir::SourceId parent;
    PyObject* key;
    int64_t index;
  };
  struct Found {
    ir::SourceId id;
    uint64_t hash;
    bool isNew;  // append() has to be called
  };
  explicit KnownSources(std::vector<guard::SourceNode>& nodes) : nodes_(nodes) {}

  Found find(const Path& path, guard::BlockId block) {
    KINTSUGI_CHECK(path.parent == ir::kNone || path.parent < hashes_.size(), "a source that is read from $",
                   path.parent, " of ", hashes_.size());
    const uint64_t parent = path.parent == ir::kNone ? kNoParent : hashes_[path.parent];
    const uint64_t hash = sourceHash(parent, path.kind, path.key, path.index);
    const auto [entry, isNew] =
        byPath_.try_emplace(mixHash(hash, block), static_cast<ir::SourceId>(hashes_.size()));
    return {entry->second, hash, isNew};
  }
  void append(const Found& found, const guard::SourceNode& node, PyObject* object) {
    KINTSUGI_CHECK(found.id == hashes_.size(), "source $", found.id, " is added as $", hashes_.size());
    KINTSUGI_CHECK(nodes_.size() == hashes_.size(), nodes_.size(), " nodes for ", hashes_.size(), " sources");
    nodes_.push_back(node);
    hashes_.push_back(found.hash);
    objects_.push_back(object);
    shadows_.push_back(Shadow::null());
  }
  // Takes over the nodes of a side trace's parent. The objects that can still be reached follow by
  // adoptObject().
  void adopt(const std::vector<uint64_t>& hashes);
  void adoptObject(ir::SourceId id, PyObject* object) { objects_[checked(id)] = object; }

  size_t size() const { return objects_.size(); }
  const guard::SourceNode& node(ir::SourceId id) const { return nodes_[checked(id)]; }
  PyObject* objectOf(ir::SourceId id) const { return objects_[checked(id)]; }  // null: forgotten
  uint64_t hashOf(ir::SourceId id) const { return hashes_[checked(id)]; }
  Shadow shadowOf(ir::SourceId id) const { return shadows_[checked(id)]; }  // null: not described yet
  void setShadow(ir::SourceId id, Shadow shadow) { shadows_[checked(id)] = shadow; }

  // The source by which the object was first read.
  std::optional<ir::SourceId> of(PyObject* object) const;
  // False if the object already has a source, which it keeps.
  bool name(PyObject* object, ir::SourceId id) { return ids_.try_emplace(object, id).second; }
  // Another object may have this address from now on.
  void forget(PyObject* object);
  void clear();
  std::vector<uint64_t> takeHashes() { return std::move(hashes_); }

 private:
  ir::SourceId checked(ir::SourceId id) const {
    KINTSUGI_CHECK(id < objects_.size(), "source $", id, " of ", objects_.size());
    return id;
  }

  std::vector<guard::SourceNode>& nodes_;
  std::vector<uint64_t> hashes_;            // by SourceId: of the path, without the block
  std::vector<PyObject*> objects_;          // by SourceId
  Shadows shadows_;                         // by SourceId
  FlatMap<uint64_t, ir::SourceId> byPath_;  // hash of path and block
  FlatMap<PyObject*, ir::SourceId> ids_;
};

}  // namespace kintsugi::capture
