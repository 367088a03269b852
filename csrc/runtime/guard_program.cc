#include "runtime/guard_program.h"

#include <algorithm>

#include "runtime/compiled_trace.h"
#include "runtime/guard_block.h"
#include "runtime/guard_explain.h"

namespace kintsugi::runtime {

namespace {

int traverseBlock(const Block& block, visitproc visit, void* arg) {
  for (const Node& node : block.nodes) Py_VISIT(node.kept.get());
  for (const TypeCheck& check : block.types) Py_VISIT(check.mro.get());
  for (const OpenDict& open : block.openDicts) {
    for (const auto& [name, value] : open.entries) {
      Py_VISIT(name.get());
      Py_VISIT(value.get());
    }
  }
  for (const pyapi::Ref<>& object : block.retired) Py_VISIT(object.get());
  return 0;
}

}  // namespace

struct GuardProgram::Impl {
  const recording::Recording* recording;
  std::vector<Block> blocks;
  std::vector<ir::SourceId> pinned;

  uint64_t total(uint64_t Block::*counter) const {
    uint64_t sum = 0;
    for (const Block& block : blocks) {
      sum += block.*counter;
    }
    return sum;
  }
};

GuardProgram::GuardProgram(const recording::Recording& recording, const GuardChoice& chosen)
    : impl_(new Impl{&recording, compileBlocks(recording, chosen), {}}) {
  std::vector<bool> seen(recording.document.sources.nodes.size(), false);
  for (const Block& block : impl_->blocks) {
    for (const Node& node : block.nodes) {
      if (node.external && !seen[node.source]) {
        seen[node.source] = true;
        impl_->pinned.push_back(node.source);
      }
    }
  }
}

GuardProgram::~GuardProgram() = default;
GuardProgram::GuardProgram(GuardProgram&&) noexcept = default;

void GuardProgram::takeBaselines(const GuardProgram& other) {
  for (size_t b = 0; b < impl_->blocks.size(); ++b) {
    const Block& from = other.impl_->blocks[b];
    for (TypeCheck& check : impl_->blocks[b].types) {
      const auto known = std::ranges::find(from.types, check.type, &TypeCheck::type);
      if (known == from.types.end()) continue;
      check.version = known->version;
      check.broken = known->broken;
      check.mro = pyapi::newRef(known->mro.get());
      check.dictVersions = known->dictVersions;
      check.entries = known->entries;
    }
    for (OpenDict& open : impl_->blocks[b].openDicts) {
      const auto known = std::ranges::find(from.openDicts, open.type, &OpenDict::type);
      if (known == from.openDicts.end()) continue;
      open.version = known->version;
      open.entries.clear();
      for (const auto& [name, value] : known->entries)
        open.entries.emplace_back(pyapi::newRef(name.get()), pyapi::newRef(value.get()));
    }
  }
}

bool GuardProgram::check(guard::BlockId block, const pyapi::Arguments& args, PyObject* const* values,
                         SlotArray slots) {
  KINTSUGI_DCHECK(block < impl_->blocks.size(), "guard block ", block);
  return checkBlock(impl_->blocks[block], Inputs{args, values, slots});
}

GuardFailure GuardProgram::explainFailure(guard::BlockId block, const pyapi::Arguments& args,
                                          PyObject* const* values, SlotArray slots) {
  std::vector<PyObject*> none;
  if (slots == nullptr) {
    none.resize(impl_->recording->document.sources.nodes.size(), nullptr);
    slots = none.data();
  }
  return explainBlock(*impl_->recording, impl_->blocks[block], Inputs{args, values, slots});
}

const std::vector<ir::SourceId>& GuardProgram::pinnedSources() const { return impl_->pinned; }

size_t GuardProgram::guardCount() const { return impl_->recording->document.guards.guards.size(); }

size_t GuardProgram::wordCount() const {
  size_t count = 0;
  for (const Block& block : impl_->blocks) {
    count += block.wordNodes.size() + block.types.size() + block.tensors.size();
  }
  return count;
}

int GuardProgram::traverse(visitproc visit, void* arg) const {
  for (const Block& block : impl_->blocks) {
    if (const int stop = traverseBlock(block, visit, arg)) return stop;
  }
  return 0;
}

uint64_t GuardProgram::memoHits() const { return impl_->total(&Block::hits); }
uint64_t GuardProgram::memoMisses() const { return impl_->total(&Block::misses); }

}  // namespace kintsugi::runtime
