#pragma once
/// \file
/// A resolved configuration as text, for the ranks of a job. The first process reads flags and files; the ranks get
/// what it has found, and so cannot differ although a file changes meanwhile.

#include <string>
#include <string_view>

namespace tessera::config {

struct Resolved;

/// Every value with its origin, and the notes.
std::string resolved_to_text(const Resolved& resolved);

/// The opposite. Nothing is checked again. Throws InputError for any other text.
Resolved resolved_from_text(std::string_view text);

}  // namespace tessera::config
