#pragma once
/// \file
/// The words that a tokenizer's model would see of a text, counted, for training the model.

#include <tessera/base/value.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace tessera::text {

/// Distinct words and how often they occur, sorted by the word.
using CountedWords = std::vector<std::pair<std::string, std::int64_t>>;

/// Texts are taken line by line (each with its line end), as Hugging Face's train() takes files: normalized and cut as
/// `document` says, a tokenizer.json of which only normalizer and pre_tokenizer are looked at. Ill-formed UTF-8 is
/// repaired as encode() does. Up to `threads` threads; the result does not depend on them. `progress(bytes done, of)`
/// may come from any thread; may be empty.
CountedWords count_pieces(const std::vector<std::string>& texts, const Value& document, int threads,
                          const std::function<void(std::int64_t, std::int64_t)>& progress);

}  // namespace tessera::text
