#include "runtime/config/message_config.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <memory>
#include <unistd.h>
#include <vector>

#include <absl/strings/str_join.h>
#include <fmt/core.h>

#include "runtime/config/nearest_key.h"
#include "runtime/config/scalar.h"
#include "runtime/config/yaml_tree.h"

namespace tundish {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using Kind = YamlNode::Kind;

/// Writer's text in an error: bounded, on one line.
std::string OneLine(std::string_view text) {
  size_t most = std::min<size_t>(text.size(), 80);
  // Not in the middle of a UTF-8 character.
  while (most < text.size() && most > 0 && (text[most] & 0xC0) == 0x80) --most;
  std::string shown(text.substr(0, most));
  std::ranges::replace_if(
      shown, [](char c) { return c == '\n' || c == '\r' || c == '\t'; }, ' ');
  return most < text.size() ? shown + "…" : shown;
}

std::string Shown(const YamlNode& node) {
  switch (node.kind) {
    case Kind::kNull:
      return "nothing";
    case Kind::kScalar:
      return fmt::format("\"{}\"", OneLine(node.text));
    case Kind::kSequence:
      return "a list";
    case Kind::kMap:
      return "a mapping";
  }
  return "";
}

std::vector<std::string> KeysOf(const Descriptor& type) {
  std::vector<std::string> keys;
  for (int i = 0; i < type.field_count(); ++i) keys.push_back(type.field(i)->name());
  return keys;
}

/// Dotted path below `type` of a field called `key` in one of its sections, two levels down at
/// most; empty if there is none. People write `epochs` where `training.epochs` belongs.
std::string FindInSections(const Descriptor& type, std::string_view key, int levels = 2) {
  for (int i = 0; levels > 0 && i < type.field_count(); ++i) {
    const FieldDescriptor& section = *type.field(i);
    if (section.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE || section.is_repeated()) continue;
    if (section.message_type()->FindFieldByName(std::string(key)) != nullptr) {
      return fmt::format("{}.{}", section.name(), key);
    }
    const std::string deeper = FindInSections(*section.message_type(), key, levels - 1);
    if (!deeper.empty()) return fmt::format("{}.{}", section.name(), deeper);
  }
  return "";
}

/// Walks the tree and the message type together.
class Reader {
 public:
  explicit Reader(std::string_view source_name) : source_name_(source_name) {}

  absl::Status Read(const YamlNode& node, const std::string& path, Message* message) {
    if (node.kind == Kind::kNull) return absl::OkStatus();
    const Descriptor& type = *message->GetDescriptor();
    if (node.kind != Kind::kMap) {
      return Error(node, path,
                   fmt::format("{} where keys are expected: {}", Shown(node),
                               absl::StrJoin(KeysOf(type), ", ")));
    }
    std::map<std::string, int> first_line;
    for (size_t i = 0; i < node.keys.size(); ++i) {
      const YamlNode& key = node.keys[i];
      const std::string key_path = path.empty() ? key.text : path + "." + key.text;
      const FieldDescriptor* field = type.FindFieldByName(key.text);
      if (field == nullptr) return UnknownKey(key, path, type);
      const auto [seen, fresh] = first_line.emplace(key.text, key.line);
      if (!fresh) {
        return Error(key, key_path,
                     fmt::format("given twice, first in line {}; keep one", seen->second));
      }
      if (absl::Status alone = CheckOneof(key, key_path, *field, *message); !alone.ok()) {
        return alone;
      }
      if (absl::Status read = ReadField(node.items[i], key_path, *field, message); !read.ok()) {
        return read;
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Error(const YamlNode& node, std::string_view path, std::string_view what) const {
    return absl::InvalidArgumentError(
        path.empty() ? fmt::format("{}:{}: {}", source_name_, node.line, what)
                     : fmt::format("{}:{}: {}: {}", source_name_, node.line, path, what));
  }

  absl::Status WrongValue(const YamlNode& node, std::string_view path,
                          const FieldDescriptor& field) const {
    return Error(node, path,
                 fmt::format("{} is not right; expected {}", Shown(node), ExpectedValue(field)));
  }

  absl::Status UnknownKey(const YamlNode& key, const std::string& path,
                          const Descriptor& type) const {
    const std::string where = path.empty() ? OneLine(key.text) : path + "." + OneLine(key.text);
    const std::vector<std::string> known = KeysOf(type);
    if (known.empty()) return Error(key, where, "unknown key; nothing is known here");
    std::string meant = FindInSections(type, key.text);
    if (meant.empty()) meant = NearestKey(key.text, known);
    return Error(key, where,
                 fmt::format("unknown key, did you mean \"{}\"? Known keys: {}", meant,
                             absl::StrJoin(known, ", ")));
  }

  absl::Status CheckOneof(const YamlNode& key, const std::string& path,
                          const FieldDescriptor& field, const Message& message) const {
    const auto* oneof = field.real_containing_oneof();
    if (oneof == nullptr) return absl::OkStatus();
    const FieldDescriptor* other = message.GetReflection()->GetOneofFieldDescriptor(message, oneof);
    if (other == nullptr) return absl::OkStatus();
    return Error(key, path, fmt::format("cannot stand beside {}; keep one of them", other->name()));
  }

  absl::Status ReadField(const YamlNode& node, const std::string& path,
                         const FieldDescriptor& field, Message* message) {
    if (field.is_map()) return ReadMap(node, path, field, message);
    if (!field.is_repeated()) return ReadOne(node, path, field, message);
    if (node.kind == Kind::kNull) return absl::OkStatus();
    if (node.kind != Kind::kSequence) return WrongValue(node, path, field);
    for (size_t i = 0; i < node.items.size(); ++i) {
      const std::string item_path = fmt::format("{}[{}]", path, i);
      if (absl::Status read = ReadOne(node.items[i], item_path, field, message); !read.ok()) {
        return read;
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReadOne(const YamlNode& node, const std::string& path, const FieldDescriptor& field,
                       Message* message) {
    const google::protobuf::Reflection& reflection = *message->GetReflection();
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      Message* inner = field.is_repeated() ? reflection.AddMessage(message, &field)
                                           : reflection.MutableMessage(message, &field);
      return Read(node, path, inner);
    }
    if (node.kind == Kind::kScalar) {
      const absl::Status set = SetScalar(node.text, node.quoted, field, message);
      if (set.ok()) return set;
      return Error(
          node, path,
          fmt::format("{} is not right; expected {}", Shown(node), std::string(set.message())));
    }
    return WrongValue(node, path, field);
  }

  absl::Status ReadMap(const YamlNode& node, const std::string& path, const FieldDescriptor& field,
                       Message* message) {
    if (node.kind == Kind::kNull) return absl::OkStatus();
    if (node.kind != Kind::kMap) return WrongValue(node, path, field);
    const FieldDescriptor& key_field = *field.message_type()->map_key();
    const FieldDescriptor& value_field = *field.message_type()->map_value();
    std::map<std::string, int> first_line;
    for (size_t i = 0; i < node.keys.size(); ++i) {
      const YamlNode& key = node.keys[i];
      const std::string key_path = path + "." + OneLine(key.text);
      const auto [seen, fresh] = first_line.emplace(key.text, key.line);
      if (!fresh) {
        return Error(key, key_path,
                     fmt::format("given twice, first in line {}; keep one", seen->second));
      }
      Message* entry = message->GetReflection()->AddMessage(message, &field);
      if (absl::Status set = SetScalar(key.text, key.quoted, key_field, entry); !set.ok()) {
        return Error(key, key_path,
                     fmt::format("the key is not right; expected {}", std::string(set.message())));
      }
      if (absl::Status read = ReadOne(node.items[i], key_path, value_field, entry); !read.ok()) {
        return read;
      }
    }
    return absl::OkStatus();
  }

  const std::string source_name_;
};

absl::Status FileError(const std::string& path, int error) {
  const std::string text = fmt::format("{}: {}", path, std::strerror(error));
  if (error == ENOENT || error == ENOTDIR) return absl::NotFoundError(text);
  if (error == EACCES || error == EPERM) return absl::PermissionDeniedError(text);
  return absl::FailedPreconditionError(text);
}

std::string TooLarge(std::string_view what) {
  return fmt::format("{}: larger than {} bytes, the most a configuration may have", what,
                     kMaxConfigBytes);
}

absl::Status ReadAll(const std::string& path, std::string* text) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return FileError(path, errno);
  absl::Status status;
  char block[1 << 14];
  while (status.ok()) {
    const ssize_t got = read(fd, block, sizeof block);
    if (got == 0) break;
    if (got < 0) {
      if (errno != EINTR) status = FileError(path, errno);
      continue;
    }
    text->append(block, static_cast<size_t>(got));
    if (text->size() > kMaxConfigBytes) status = absl::FailedPreconditionError(TooLarge(path));
  }
  close(fd);
  return status;
}

}  // namespace

absl::Status MessageFromYaml(std::string_view text, Message* message,
                             std::string_view source_name) {
  if (text.size() > kMaxConfigBytes) return absl::InvalidArgumentError(TooLarge(source_name));
  absl::StatusOr<YamlNode> root = ParseYamlTree(text, source_name);
  if (!root.ok()) return root.status();
  if (root->kind == Kind::kNull) {
    return absl::InvalidArgumentError(
        fmt::format("{}:1: empty; expected keys out of {}", source_name,
                    absl::StrJoin(KeysOf(*message->GetDescriptor()), ", ")));
  }
  const std::unique_ptr<Message> fresh(message->New());
  if (absl::Status read = Reader(source_name).Read(*root, "", fresh.get()); !read.ok()) return read;
  message->GetReflection()->Swap(message, fresh.get());
  return absl::OkStatus();
}

absl::Status MessageFromFile(const std::string& path, Message* message) {
  std::string text;
  if (absl::Status read = ReadAll(path, &text); !read.ok()) return read;
  return MessageFromYaml(text, message, path);
}

}  // namespace tundish
