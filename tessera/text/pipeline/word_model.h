#pragma once
/// \file
/// What a model of a tokenizer.json is to the rest of the pipeline: it turns words into ids. Implementations:
/// bpe/character_bpe.h, unigram/unigram.h, pipeline/simple_models.h.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tessera::text {

/// Immutable: any number of threads may use one object at the same time.
class WordModel {
 public:
  virtual ~WordModel() = default;

  /// Appends the ids of a word of well-formed UTF-8 that is not empty. Equal words have equal ids. Throws InputError
  /// where the word has characters that the vocabulary lacks and there is no unknown token.
  virtual void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const = 0;

  /// Where the part of `word` that begins at `at` ends: the ids of the word are those of its parts, one after another.
  /// Models that see whole texts as one word (no pre-tokenizer) become fast by it: parts repeat, texts do not.
  virtual std::size_t part_end(std::string_view word, std::size_t /*at*/) const { return word.size(); }
};

}  // namespace tessera::text
