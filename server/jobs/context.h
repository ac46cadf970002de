#pragma once

#include "server/jobs/changes.h"
#include "server/jobs/node_table.h"
#include "server/jobs/settings.h"
#include "server/rendezvous/store_table.h"

namespace tundish::jobs {

/// What a transition of a job may look at and change besides the job. Every reference outlives the
/// call it is passed to.
struct Context {
  Now now;
  Changes& changes;
  NodeTable& nodes;
  rendezvous::StoreTable& rendezvous;
  const Settings& settings;
};

}  // namespace tundish::jobs
