#pragma once
/// \file
/// A world of one rank for tests that need a group.

#include <tessera/comm/world.h>
#include <tessera/launch/cli/environment.h>

namespace tessera::train {

inline const comm::Group& one_rank() {
  if (!initialized()) init(launch::RankEnvironment{}, {});
  return world().group();
}

}  // namespace tessera::train
