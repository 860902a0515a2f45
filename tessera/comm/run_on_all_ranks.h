#pragma once
/// \file
/// Small values that ranks exchange, and whether they agree. Every function is collective over the group: all ranks
/// call it, in the same order, and all see the same answers.

#include <tessera/base/error.h>
#include <tessera/comm/group.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tessera::comm {

/// Every rank's numbers, by rank; as many on each.
std::vector<std::vector<std::int64_t>> all_gather_numbers(const Group& group, const std::vector<std::int64_t>& mine);
/// Replaces `numbers`, as many on every rank, by their sums over the ranks. Number: double, int64_t or int32_t.
template <typename Number>
void all_reduce_numbers(const Group& group, std::vector<Number>& numbers);
/// Every rank's text, by rank. Texts may differ in length.
std::vector<std::string> all_gather_text(const Group& group, const std::string& mine);

/// True on every rank when it is true on one.
bool any_rank(const Group& group, bool mine);

/// Throws InputError, the same on every rank, unless all give the same value of `what`: "the tag is 'a' on ranks 0-2
/// but 'b' on rank 3: REMEDY".
void require_equal(const Group& group, const std::string& what, const std::string& value, const std::string& remedy);

/// What the ranks complain of (texts by rank, "" where all is well) as one text: "rank 1: cannot write ...; rank 3:
/// ...". One rank alone leaves its number out. Not collective.
std::string join_errors(const std::vector<std::string>& by_rank);

/// Thrown on ranks where all was well while another rank failed: the same exit code, no message of its own.
class FailedElsewhere : public Error {
 public:
  explicit FailedElsewhere(ExitCode code) : Error("", code) {}
};

/// Runs `work` on every rank and waits for all. When it threw anywhere, the lowest such rank throws its own error and
/// all others throw FailedElsewhere with that rank's exit code: one message, one exit code.
void run_on_all_ranks(const Group& group, const std::function<void()>& work);

/// Runs what throws the same InputError on every rank or on none: rank 0 throws it, the others throw FailedElsewhere.
/// What `work` returns is returned.
template <typename Work>
auto report_on_first_rank(const Group& group, const Work& work) {
  try {
    return work();
  } catch (const InputError& error) {
    if (group.rank() != 0) throw FailedElsewhere(error.exit_code());
    throw;
  }
}

}  // namespace tessera::comm
