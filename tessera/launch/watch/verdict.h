#pragma once
/// \file
/// Determines which of several failed ranks failed first. When one dies, the others' collectives fail within
/// milliseconds: they exit too, perhaps sooner than the first one, and must not be blamed.

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::launch {

/// A rank that has exited with a failure, or has reported its failure on the board.
struct Candidate {
  int rank = 0;
  std::optional<int> status;    ///< wait status; nullopt: it still runs
  std::int64_t noticed_ns = 0;  ///< when the agent noticed its exit
  std::int64_t verdict_ns = 0;  ///< when it wrote `words` to the board; 0: it did not
  std::string words;            ///< its error text, or else its last line of output; may be empty
  int exit_code = 0;            ///< exit code it announced; 0: none
};

/// Written to the board by a rank that exits because another rank, which reports the cause, has failed.
inline constexpr const char* failed_elsewhere = "another rank fails, and says why";

/// Whether a text only reports that another rank is gone, in the words of Gloo, NCCL, LibTorch's store or our own
/// backends.
bool speaks_of_a_lost_peer(const std::string& text);

/// How likely a candidate is the cause and not a victim. Lower is more likely.
enum class Guilt {
  killed,    ///< by a signal from outside or a fault of its own (SIGKILL, SIGSEGV): never a victim
  failed,    ///< for a reason of its own, written to the board
  silent,    ///< exited by itself without a reason on the board: perhaps because another rank asked it to
  victim,    ///< reports that a peer is gone, or died of a broken connection
  follower,  ///< reports that another rank has failed, which is about to give the reason
};
Guilt guilt(const Candidate& candidate);

/// The index of the first failure: the lowest guilt value; among equals the first to write its verdict, or whose exit
/// was noticed first. `candidates` must not be empty.
std::size_t first_failure(const std::vector<Candidate>& candidates);

}  // namespace tessera::launch
