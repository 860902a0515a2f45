#pragma once
/// \file
/// Exchange small values between ranks and check that they agree. Every function is collective over the group: all
/// ranks call it, in the same order, and all get the same result.

#include <tessera/base/error.h>
#include <tessera/comm/group.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tessera::comm {

/// Every rank's numbers, by rank; each rank passes the same count.
std::vector<std::vector<std::int64_t>> all_gather_numbers(const Group& group, const std::vector<std::int64_t>& mine);
/// Replaces `numbers` by their sums over the ranks; each rank passes the same count. Number: double, int64_t or
/// int32_t.
template <typename Number>
void all_reduce_numbers(const Group& group, std::vector<Number>& numbers);
/// Every rank's text, by rank. Texts may differ in length.
std::vector<std::string> all_gather_text(const Group& group, const std::string& mine);

/// True on every rank if `mine` is true on any.
bool any_rank(const Group& group, bool mine);

/// Throws the same InputError on every rank unless all pass the same value of `what`: "the tag is 'a' on ranks 0-2 but
/// 'b' on rank 3: REMEDY".
void require_equal(const Group& group, const std::string& what, const std::string& value, const std::string& remedy);

/// Joins the ranks' errors (by rank; "" for success) into one text: "rank 1: cannot write ...; rank 3: ...". A single
/// rank's number is omitted. Not collective.
std::string join_errors(const std::vector<std::string>& by_rank);

/// Thrown on ranks that succeeded while another rank failed: the same exit code, no message of its own.
class FailedElsewhere : public Error {
 public:
  explicit FailedElsewhere(ExitCode code) : Error("", code) {}
};

/// Runs `work` on every rank and waits for all. If it throws anywhere, the lowest failing rank rethrows its error and
/// all others throw FailedElsewhere with that rank's exit code: one message, one exit code.
void run_on_all_ranks(const Group& group, const std::function<void()>& work);

/// Runs work that throws the same InputError on every rank or on none: rank 0 rethrows it, the others throw
/// FailedElsewhere. Returns the result of `work`.
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
