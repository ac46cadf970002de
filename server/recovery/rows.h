#pragma once

#include <optional>
#include <vector>

#include "tundish/v1/rank.pb.h"

namespace tundish::recovery {

/// A rank of an arrangement that lost some, as far as shrinking goes.
struct Place {
  /// A process is there, whether it holds a state or not.
  bool occupied = false;
  /// Where it stands; nothing for a process that was never assigned.
  std::optional<v1::Stopped> standing;
};

/// Which ranks go on when some places stay empty: as many whole replicas as there are, new index
/// (dp * tensor + tp) → old index. Rows that are whole stay as they are, in their order: with one
/// failure they hold every step that was published (docs/recovery.md). Further rows are put
/// together from what is left of the others, each tp in its place, the most advanced ranks first.
/// Empty if some tp has nobody. Pure. `places` has tensor * data entries.
std::vector<int> WholeRows(int tensor, const std::vector<Place>& places);

}  // namespace tundish::recovery
