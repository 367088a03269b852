#include "guard/source.h"

#include <algorithm>

#include "guard/kinds.h"
#include "guard/source_roots.h"

namespace kintsugi::guard {

namespace {

// Descriptions of strings may come with their quotes.
std::string_view unquoted(std::string_view text) {
  const bool quoted = text.size() >= 2 && (text[0] == '\'' || text[0] == '"') && text.back() == text[0];
  return quoted ? text.substr(1, text.size() - 2) : text;
}

bool isIdentifier(std::string_view text) {
  const auto isLetter = [](char c) { return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto isDigit = [](char c) { return c >= '0' && c <= '9'; };
  return !text.empty() && isLetter(text[0]) &&
         std::all_of(text.begin(), text.end(), [&](char c) { return isLetter(c) || isDigit(c); });
}

bool isNumber(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// The dicts in which a module keeps what Python sees as its attributes.
bool isModuleTable(std::string_view key) {
  return key == "_modules" || key == "_parameters" || key == "_buffers";
}

std::string indexed(int64_t index) { return "[" + std::to_string(index) + "]"; }

class PathWriter {
 public:
  PathWriter(const SourceTable& table, const std::vector<std::string>& constTexts)
      : table_(table), constTexts_(constTexts) {}

  std::string write(SourceId id) {
    std::vector<SourceId> chain;
    while (id < table_.nodes.size()) {
      chain.push_back(id);
      const SourceNode& node = table_.nodes[id];
      const bool isRoot = !kindInfo(node.kind).has('p');
      // A parent that does not come first would lead in circles; only a broken table has one.
      const bool broken = !isRoot && node.parent >= id;
      path_ = broken ? "?" : "";
      id = isRoot || broken ? ir::kNone : node.parent;
    }
    if (chain.empty()) {
      return "?";
    }
    for (size_t i = chain.size(); i-- > 0;) {
      step(table_.nodes[chain[i]]);
    }
    spellOut();
    return std::move(path_);
  }

 private:
  // What the path so far denotes decides how an entry of it reads.
  enum class At : uint8_t { kObject, kInstanceDict, kModuleTable, kNamespace };

  std::string key(ConstId id) const {
    if (id < constTexts_.size() && !constTexts_[id].empty()) {
      return std::string(unquoted(constTexts_[id]));
    }
    return id == ir::kNone ? "?" : "#" + std::to_string(id);
  }

  void entry(const std::string& name) {
    switch (at_) {
      case At::kInstanceDict:
        at_ = isModuleTable(name) ? At::kModuleTable : At::kObject;
        path_ += at_ == At::kModuleTable ? "" : "." + name;
        tableName_ = name;
        return;
      case At::kModuleTable:
        path_ += isNumber(name) ? "[" + name + "]" : "." + name;
        break;
      case At::kNamespace:
        path_ = name;
        break;
      case At::kObject:
        path_ += isIdentifier(name) ? "['" + name + "']" : "[" + name + "]";
        break;
    }
    at_ = At::kObject;
  }

  // Whatever is not an entry of a module's table needs the table's own name in the path.
  void spellOut() {
    if (at_ == At::kModuleTable) {
      path_ += "." + tableName_;
    } else if (at_ == At::kInstanceDict) {
      path_ += ".__dict__";
    }
    at_ = At::kObject;
  }

  void suffix(const std::string& text) {
    spellOut();
    path_ += text;
  }

  void argument(int64_t index) {
    const auto position = static_cast<size_t>(index);
    path_ = index >= 0 && position < table_.argNames.size() ? table_.argNames[position]
                                                            : "arg" + std::to_string(index);
  }

  void step(const SourceNode& node) {
    switch (node.kind) {
      case SourceKind::kArg:
        return argument(node.index);
      case SourceKind::kPinned:
        path_ = key(node.key);
        return;
      case SourceKind::kValue:
        path_ = "%" + std::to_string(node.index);
        return;
      case SourceKind::kType:
        spellOut();
        path_ = "type(" + path_ + ")";
        return;
      case SourceKind::kDict:
        spellOut();
        at_ = At::kInstanceDict;
        return;
      case SourceKind::kDictItem:
        return entry(key(node.key));
      case SourceKind::kListItem:
      case SourceKind::kTupleItem:
        return suffix(indexed(node.index));
      case SourceKind::kMember:
      case SourceKind::kGetSet:
        return suffix("." + key(node.key));
      case SourceKind::kCell:
        return suffix(".cell_contents");
      case SourceKind::kClosure:
        return suffix(".__closure__" + indexed(node.index));
      case SourceKind::kDefaults:
        return suffix(".__defaults__");
      case SourceKind::kKwDefaults:
        return suffix(".__kwdefaults__");
      case SourceKind::kGlobals:
        suffix(".__globals__");
        at_ = At::kNamespace;
        return;
      case SourceKind::kBuiltins:
        suffix(".__builtins__");
        at_ = At::kNamespace;
        return;
      case SourceKind::kMethodFunction:
        return suffix(".__func__");
      case SourceKind::kMethodSelf:
        return suffix(".__self__");
      case SourceKind::kPartial:
        return suffix(node.index == 0 ? ".func" : node.index == 1 ? ".args" : ".keywords");
      case SourceKind::kReferent:
        return suffix("()");
    }
  }

  const SourceTable& table_;
  const std::vector<std::string>& constTexts_;
  std::string path_;
  std::string tableName_;
  At at_ = At::kObject;
};

}  // namespace

std::string SourceTable::path(SourceId id, const std::vector<std::string>& constTexts) const {
  return PathWriter(*this, constTexts).write(id);
}

ir::SourceRoots sourceRoots(const SourceTable& sources) {
  ir::SourceRoots roots;
  for (const SourceNode& node : sources.nodes) {
    ir::ValueId root = ir::kNone, itself = ir::kNone, resolver = ir::kNone;
    if (node.kind == SourceKind::kValue) {
      root = itself = resolver = static_cast<ir::ValueId>(node.index);
    } else if (kindInfo(node.kind).has('p') && node.parent < roots.value.size()) {
      root = roots.value[node.parent];
      const bool atParent = roots.block[node.parent] != node.block;
      resolver = atParent ? roots.itself[node.parent] : roots.resolver[node.parent];
    }
    roots.value.push_back(root);
    roots.block.push_back(node.block);
    roots.itself.push_back(itself);
    roots.resolver.push_back(resolver);
  }
  return roots;
}

}  // namespace kintsugi::guard
