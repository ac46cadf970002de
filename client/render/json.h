#pragma once

#include <string>

#include <google/protobuf/message.h>

namespace tundish::client {

/// `message` by protobuf's JSON mapping on one line, with proto field names and with fields at
/// their default, without a line end.
std::string ToJson(const google::protobuf::Message& message);

}  // namespace tundish::client
