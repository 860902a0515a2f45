#include <tessera/launch/agent/arrivals.h>

#include <tessera/base/text.h>
#include <tessera/launch/fleet/rank_list.h>

#include <algorithm>

namespace tessera::launch {
namespace {

constexpr std::size_t described = 8;

Arrivals::Time::duration seconds(double value) {
  return std::chrono::duration_cast<Arrivals::Time::duration>(std::chrono::duration<double>(value));
}

}  // namespace

Arrivals::Arrivals(double first, double next, ReadStatus read_status)
    : first_(first), next_(next), read_status_(std::move(read_status)) {}

std::optional<std::string> Arrivals::look(const std::vector<Rank>& ranks, Time now) {
  std::vector<int> here, missing;
  for (const Rank& rank : ranks) (rank.came ? here : missing).push_back(rank.rank);
  const bool waits = std::any_of(ranks.begin(), ranks.end(), [](const Rank& rank) { return rank.waits; });
  if (!waits || missing.empty()) {
    since_.reset();
    return std::nullopt;
  }
  if (!since_) {
    since_ = now;
    notice_ = now + seconds(first_);
  }
  if (now < notice_) return std::nullopt;
  notice_ += seconds(next_);
  std::string text =
      concat("waited ", std::chrono::duration_cast<std::chrono::seconds>(now - *since_).count(), " s for ",
             ranks_text(missing), " of this host to reach tessera::init(); arrived: ", ranks_text(here));
  std::size_t left = described;
  for (const Rank& rank : ranks) {
    if (rank.came || left == 0) continue;
    --left;
    const auto status = read_status_(rank.pid);
    text += concat("\n  rank ", rank.rank, " (pid ", rank.pid,
                   "): ", status ? state_text(status->state) : "no such process");
  }
  return text;
}

}  // namespace tessera::launch
