#pragma once
/// \file
/// Which of several failed ranks failed first. When one dies, the others' collectives fail within milliseconds: they
/// end too, perhaps sooner than the first one, and must not be blamed.

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::launch {

/// A rank that has ended with a failure, or has written on the board that it fails.
struct Candidate {
  int rank = 0;
  std::optional<int> status;    ///< wait status; none: it still runs
  std::int64_t noticed_ns = 0;  ///< when the agent saw its end
  std::int64_t verdict_ns = 0;  ///< when it wrote `words` on the board; 0: it did not
  std::string words;            ///< its error text, else its last line of output; may be empty
  int exit_code = 0;            ///< with which it says that it is going to end; 0: it does not
};

/// What a rank writes on the board that ends because another one fails, which says why.
inline constexpr const char* failed_elsewhere = "another rank fails, and says why";

/// Whether a text only reports that another rank is gone, as Gloo, NCCL, LibTorch's store and our own backends put it.
bool speaks_of_a_lost_peer(const std::string& text);

/// How sure it is that a candidate is no victim of another. Lower is surer.
enum class Guilt {
  killed,    ///< by a signal from outside or a fault of its own (SIGKILL, SIGSEGV): nobody's victim
  failed,    ///< for a reason of its own, as it says on the board
  silent,    ///< ended by itself without a word there: perhaps because another rank told it to
  victim,    ///< says that a peer is gone, or died of a broken connection
  follower,  ///< says that another rank fails: that one is about to tell
};
Guilt guilt(const Candidate& candidate);

/// The index of the first failure: the surest; among equals the first to write its verdict, or to be seen to end.
/// `candidates` must not be empty.
std::size_t first_failure(const std::vector<Candidate>& candidates);

}  // namespace tessera::launch
