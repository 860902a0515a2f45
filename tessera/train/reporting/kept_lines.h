#pragma once
/// \file
/// Truncates a log when a run resumes from an earlier step.

#include <functional>
#include <string>
#include <string_view>

namespace tessera::train {

/// Rewrites a file of lines, keeping those for which `keep` returns true; it is called for one line after another,
/// without the newline. `ended`: false for a last line without a newline (after a power failure). Every line that is
/// kept gets one. The file is read and written in pieces and replaced atomically; a missing file becomes an empty one.
/// `head` is written first. Throws Error.
void keep_lines(const std::string& path, std::string_view head,
                const std::function<bool(std::string_view line, bool ended)>& keep);

}  // namespace tessera::train
