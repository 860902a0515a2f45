#pragma once
/// \file
/// Counts how often each word (by GPT-2's split) occurs in a text.

#include <cstdint>
#include <functional>
#include <string_view>
#include <unordered_map>

namespace tessera::text {

using WordCounts = std::unordered_map<std::string_view, std::int64_t>;  ///< keys refer to the text

/// Counts with up to `threads` threads. `text` must be well-formed UTF-8. `progress(bytes done)` may be called from any
/// thread.
WordCounts count_words(std::string_view text, int threads, const std::function<void(std::int64_t)>& progress);

}  // namespace tessera::text
