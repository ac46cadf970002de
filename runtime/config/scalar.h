#pragma once

#include <string>
#include <string_view>

#include <absl/status/statusor.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

namespace tundish {

/// Sets (or, for a repeated field, appends) the scalar `text` of a document to `field`; `quoted`
/// says that it stood in quotes. Errors: InvalidArgument with what would be right and nothing else:
/// "a whole number from 0 to 4294967295", "one of FAIL, SKIP".
absl::Status SetScalar(std::string_view text, bool quoted,
                       const google::protobuf::FieldDescriptor& field,
                       google::protobuf::Message* message);

/// What `field` takes, for error messages: "text", "true or false", "a list of numbers", "a mapping
/// with the keys kind, warmup_steps".
std::string ExpectedValue(const google::protobuf::FieldDescriptor& field);

}  // namespace tundish
