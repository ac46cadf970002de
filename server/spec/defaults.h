#pragma once

#include "tundish/v1/job.pb.h"

namespace tundish::spec {

/// Fills in every default of job.proto that does not depend on files. Does not judge: fields that
/// are set keep their value, right or wrong. An unknown preset adds nothing.
void FillDefaults(v1::JobSpec& spec);

}  // namespace tundish::spec
