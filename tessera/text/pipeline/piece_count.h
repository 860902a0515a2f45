#pragma once
/// \file
/// Counts the words that a tokenizer's model would receive, for training the model.

#include <tessera/base/value.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace tessera::text {

/// Distinct words and how often they occur, sorted by the word.
using CountedWords = std::vector<std::pair<std::string, std::int64_t>>;

/// Texts are processed line by line (with line ends), as Hugging Face's train() processes files: normalized and cut by
/// the normalizer and pre_tokenizer of `document`, a tokenizer.json. Ill-formed UTF-8 is repaired as by encode(). Up to
/// `threads` threads; the result does not depend on their number. `progress(bytes done, of)` (may be empty) may be
/// called from any thread.
CountedWords count_pieces(const std::vector<std::string>& texts, const Value& document, int threads,
                          const std::function<void(std::int64_t, std::int64_t)>& progress);

}  // namespace tessera::text
