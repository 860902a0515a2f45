#pragma once
/// \file
/// A resolved configuration as text, for the ranks of a job. The first process reads flags and files and passes the
/// result to the ranks, so they agree even if a file changes meanwhile.

#include <string>
#include <string_view>

namespace tessera::config {

struct Resolved;

/// Every value with its origin, and the notes.
std::string resolved_to_text(const Resolved& resolved);

/// The inverse of resolved_to_text(). Checks no rules. Throws InputError for any other text.
Resolved resolved_from_text(std::string_view text);

}  // namespace tessera::config
