#include "runtime/config/yaml_tree.h"

#include <istream>
#include <optional>
#include <streambuf>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <fmt/core.h>

namespace tundish {
namespace {

/// Thrown out of yaml-cpp's callbacks, whose signatures leave no other way to stop it.
struct Refused {
  int line;
  std::string what;
};

/// Builds the tree from yaml-cpp's events, so that what we do not accept is never materialised.
class TreeBuilder : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    RefuseAnchor(mark, anchor);
    Add({.kind = YamlNode::Kind::kNull, .line = mark.line + 1});
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    throw Refused{mark.line + 1, "aliases (*name) are not supported; write the value out"};
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    RefuseAnchor(mark, anchor);
    RefuseTag(mark, tag);
    // yaml-cpp marks quoted and block scalars by the tag "!", plain ones by "?".
    Add({.kind = YamlNode::Kind::kScalar,
         .line = mark.line + 1,
         .text = value,
         .quoted = tag == "!"});
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Open(YamlNode::Kind::kSequence, mark, tag, anchor);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Open(YamlNode::Kind::kMap, mark, tag, anchor);
  }
  void OnMapEnd() override { Close(); }

  YamlNode Take() && { return std::move(root_).value_or(YamlNode{}); }

 private:
  static void RefuseAnchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) {
      throw Refused{mark.line + 1, "anchors (&name) are not supported; write the value out"};
    }
  }
  static void RefuseTag(const YAML::Mark& mark, const std::string& tag) {
    if (!tag.empty() && tag != "?" && tag != "!") {
      throw Refused{mark.line + 1, fmt::format("tags are not supported; leave out {}", tag)};
    }
  }
  void Open(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag,
            YAML::anchor_t anchor) {
    RefuseAnchor(mark, anchor);
    RefuseTag(mark, tag);
    if (open_.size() >= kMaxYamlDepth) {
      throw Refused{mark.line + 1, fmt::format("nested deeper than {} levels", kMaxYamlDepth)};
    }
    // A flow collection as a key arrives here too.
    if (WantsKey()) throw Refused{mark.line + 1, "a key must be a word, not a list or mapping"};
    open_.push_back({.kind = kind, .line = mark.line + 1});
  }
  void Close() {
    YamlNode done = std::move(open_.back());
    open_.pop_back();
    Add(std::move(done));
  }
  bool WantsKey() const {
    return !open_.empty() && open_.back().kind == YamlNode::Kind::kMap &&
           open_.back().keys.size() == open_.back().items.size();
  }
  void Add(YamlNode node) {
    if (open_.empty()) {
      root_ = std::move(node);
    } else if (WantsKey()) {
      if (node.kind != YamlNode::Kind::kScalar) throw Refused{node.line, "a key is missing"};
      open_.back().keys.push_back(std::move(node));
    } else {
      open_.back().items.push_back(std::move(node));
    }
  }

  // Closed children move into their parent; the innermost open collection is at the back.
  std::vector<YamlNode> open_;
  std::optional<YamlNode> root_;
};

/// Reads from memory that outlives it.
class ViewBuffer : public std::streambuf {
 public:
  explicit ViewBuffer(std::string_view text) {
    char* begin = const_cast<char*>(text.data());  // Only read: no put area is set.
    setg(begin, begin, begin + text.size());
  }
};

/// Line of the first byte that is not part of valid UTF-8, or is a control character YAML forbids;
/// 0 if there is none.
int FirstBadLine(std::string_view text) {
  int line = 1;
  for (size_t i = 0; i < text.size();) {
    const auto byte = [&](size_t k) -> unsigned { return static_cast<unsigned char>(text[k]); };
    const unsigned lead = byte(i);
    if (lead == '\n') ++line;
    if (lead < 0x80) {
      if (lead < 0x20 && lead != '\n' && lead != '\r' && lead != '\t') return line;
      ++i;
      continue;
    }
    const int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
    if (lead < 0xC2 || lead > 0xF4 || i + more >= text.size()) return line;
    unsigned code = lead & (0x3F >> more);
    for (int k = 1; k <= more; ++k) {
      if ((byte(i + k) & 0xC0) != 0x80) return line;
      code = code << 6 | (byte(i + k) & 0x3F);
    }
    constexpr unsigned kSmallest[] = {0, 0x80, 0x800, 0x10000};
    if (code < kSmallest[more] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
      return line;
    i += more + 1;
  }
  return 0;
}

}  // namespace

absl::StatusOr<YamlNode> ParseYamlTree(std::string_view text, std::string_view source_name) {
  const auto error = [&](int line, std::string_view what) {
    return absl::InvalidArgumentError(fmt::format("{}:{}: {}", source_name, line, what));
  };
  if (const int line = FirstBadLine(text); line > 0) {
    return error(line, "not UTF-8 text; save the file as UTF-8");
  }
  ViewBuffer buffer(text);
  std::istream stream(&buffer);
  TreeBuilder builder;
  try {
    YAML::Parser parser(stream);
    parser.HandleNextDocument(builder);
    TreeBuilder second;
    if (parser.HandleNextDocument(second)) {
      return error(1, "more than one document (---); write one per file");
    }
  } catch (const Refused& refused) {
    return error(refused.line, refused.what);
  } catch (const YAML::Exception& bad) {
    return error(bad.mark.line + 1, fmt::format("not valid YAML or JSON: {}", bad.msg));
  }
  return std::move(builder).Take();
}

}  // namespace tundish
