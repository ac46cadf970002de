#pragma once

#include "tundish/v1/job.pb.h"

namespace tundish::trainer {

/// One step of a one-block model of the spec's width on made-up images, on CPU, without any group:
/// makes the math libraries, autograd and the optimizer set up what they set up at their first use.
/// Draws no global random numbers. Throws for a shape that makes no model.
void WarmUpStep(const v1::JobSpec& spec);

}  // namespace tundish::trainer
