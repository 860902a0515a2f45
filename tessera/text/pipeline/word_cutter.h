#pragma once
/// \file
/// text/pipeline/: tokenizers assembled from the components of a tokenizer.json, in the order in which Hugging Face
/// `tokenizers` runs them: added tokens and normalizer, pre-tokenizers, model, post-processor; and decoders.
///
/// This header: the pre-tokenizers. Each step cuts the pieces of the previous step, and may change them.

#include <tessera/text/split_step.h>

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tessera::text {

/// SentencePiece's treatment of blanks: ' ' becomes a visible character at the start of words.
struct MetaspaceStep {
  enum class Prepend { always, first, never };  ///< first: only at the start of the text
  std::string replacement = "\xE2\x96\x81";     ///< U+2581
  Prepend prepend = Prepend::always;
  bool split = true;  ///< cut before each replacement
};

/// Bytes in the printable alphabet of bpe/byte_alphabet.h, after GPT-2's split into words.
struct ByteLevelStep {
  bool add_prefix_space = true;
  bool gpt2_pattern = true;
};

/// Whitespace: runs of word characters, and runs of other characters except white space (\w+|[^\w\s]+).
struct WordRunsStep {};

/// Pieces of this many characters; the last may be shorter.
struct FixedLengthStep {
  std::size_t length = 5;
};

/// UnicodeScripts: cuts where the script changes; kana count as Han, and blanks and common characters join the
/// preceding piece.
struct ScriptsStep {};

using CuttingStep = std::variant<SplitStep, MetaspaceStep, ByteLevelStep, WordRunsStep, FixedLengthStep, ScriptsStep>;

/// Immutable in use; thread-safe.
struct WordCutter {
  static constexpr std::size_t most_steps = 64;

  /// Called with each word; `at_start`: the word begins at the start of the text.
  using Word = std::function<void(std::string_view word, bool at_start)>;

  std::vector<CuttingStep> steps;  ///< empty: a text is one word

  /// Calls word() for each word of well-formed UTF-8, in order. Words are not empty.
  void for_each_word(std::string_view text, bool at_start, RegexScratch& scratch, const Word& word) const {
    if (!text.empty()) cut(text, at_start, 0, scratch, word);
  }

 private:
  void cut(std::string_view text, bool at_start, std::size_t number, RegexScratch& scratch, const Word& word) const;
};

}  // namespace tessera::text
