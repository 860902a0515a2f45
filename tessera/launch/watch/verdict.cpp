#include <tessera/launch/watch/verdict.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>

#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <string_view>
#include <tuple>

namespace tessera::launch {

bool speaks_of_a_lost_peer(const std::string& text) {
  static constexpr std::array phrases = {"connection closed by peer",
                                         "connection reset",
                                         "broken pipe",
                                         "socket timeout",
                                         "connection refused",
                                         "lost the store",
                                         "store is gone",
                                         "recvvalue failed",
                                         "sendbytes failed",
                                         "recvbytes failed",
                                         "is gone",
                                         "left the job",
                                         "has died",
                                         "has ended",
                                         "communicator was aborted",
                                         "remote process exited",
                                         "the launcher ends the job",
                                         "a peer died or hangs",
                                         "it must end"};
  const std::string lower = to_lower(text);
  return std::any_of(phrases.begin(), phrases.end(),
                     [&](const char* phrase) { return lower.find(phrase) != std::string::npos; });
}

Guilt guilt(const Candidate& candidate) {
  if (candidate.status && WIFSIGNALED(*candidate.status)) {
    const int signal = WTERMSIG(*candidate.status);
    if (signal == SIGPIPE) return Guilt::victim;
    if (signal != SIGABRT) return Guilt::killed;  // abort() also ends uncaught exceptions, perhaps about a lost peer
  }
  if (candidate.words == failed_elsewhere) return Guilt::follower;
  if (speaks_of_a_lost_peer(candidate.words)) return Guilt::victim;
  return candidate.verdict_ns != 0 ? Guilt::failed : Guilt::silent;
}

std::size_t first_failure(const std::vector<Candidate>& candidates) {
  TESSERA_CHECK(!candidates.empty(), "no rank failed");
  const auto key = [](const Candidate& each) {
    return std::tuple(guilt(each), each.verdict_ns != 0 ? each.verdict_ns : each.noticed_ns, each.rank);
  };
  const auto first = std::min_element(candidates.begin(), candidates.end(),
                                      [&](const Candidate& a, const Candidate& b) { return key(a) < key(b); });
  return static_cast<std::size_t>(first - candidates.begin());
}

}  // namespace tessera::launch
