#pragma once
/// \file
/// Announces a phase that may take minutes without a collective (loading a model, generating tokens, evaluating): the
/// watchdog reports it but does not end the rank for it (launch/watch/progress.h).

#include <tessera/launch/agent/board.h>

#include <string>
#include <string_view>

namespace tessera::comm {

/// Keeps this rank in that phase during the object's lifetime, in RankState::working or in its current state if that is
/// more specific (evaluating, saving, joining, leaving). Nests. For the training thread.
class LongPhase {
 public:
  explicit LongPhase(std::string_view name);  ///< "merging adapters": for display, truncated to 31 bytes
  ~LongPhase();
  LongPhase(const LongPhase&) = delete;
  LongPhase& operator=(const LongPhase&) = delete;

  /// Reports a finished part of the phase, which restarts its time limit.
  void advance();

 private:
  launch::RankState before_;
  std::string name_before_;
};

}  // namespace tessera::comm
