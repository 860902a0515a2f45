#pragma once
/// \file
/// A phase that may take minutes without a collective (loading a model, making tokens, an evaluation) says so: who
/// watches reports it, and ends nobody for it (launch/watch/progress.h).

#include <tessera/launch/agent/board.h>

#include <string>
#include <string_view>

namespace tessera::comm {

/// While it lives, this rank is in that phase: RankState::working, or the state that it has already, where that says
/// more (evaluating, saving; joining, leaving). Nests. For the thread that trains.
class LongPhase {
 public:
  explicit LongPhase(std::string_view name);  ///< "merging adapters": for people, cut to 31 bytes
  ~LongPhase();
  LongPhase(const LongPhase&) = delete;
  LongPhase& operator=(const LongPhase&) = delete;

  /// A piece of it is done: what follows has all the time anew.
  void advance();

 private:
  launch::RankState before_;
  std::string name_before_;
};

}  // namespace tessera::comm
