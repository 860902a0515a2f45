#pragma once
/// \file
/// The interface of a tokenizer.json's model to the rest of the pipeline: it converts words to ids. Implementations:
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

  /// Appends the ids of a non-empty word of well-formed UTF-8. Equal words have equal ids. Throws InputError if the
  /// word has characters that are not in the vocabulary and the model has no unknown token.
  virtual void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const = 0;

  /// The end of the part of `word` that begins at `at`: the ids of a word are the concatenated ids of its parts.
  /// This speeds up models that see a whole text as one word (no pre-tokenizer), because parts repeat but texts do not.
  virtual std::size_t part_end(std::string_view word, std::size_t /*at*/) const { return word.size(); }
};

}  // namespace tessera::text
