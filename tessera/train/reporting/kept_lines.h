#pragma once
/// \file
/// What stays of a log when a run goes on from an earlier step.

#include <functional>
#include <string>
#include <string_view>

namespace tessera::train {

/// Rewrites a file of lines so that those remain for which `keep` is true; it is asked for one after the other, without
/// their ends. `ended`: false for a last line that has no end (what a power cut leaves). Every line that stays has one.
/// The file is read and written in pieces, and replaced at once; one that is not there becomes an empty one. `head` is
/// written first. Throws Error.
void keep_lines(const std::string& path, std::string_view head,
                const std::function<bool(std::string_view line, bool ended)>& keep);

}  // namespace tessera::train
