#pragma once
/// \file
/// text/pipeline/: tokenizers that are put together from the parts of a tokenizer.json, in the order in which Hugging
/// Face `tokenizers` runs them: added tokens and normalizer, pre-tokenizers, model, post-processor; and decoders.
///
/// This header: the pre-tokenizers. Each step cuts the pieces that the step before it made, and may change them.

#include <tessera/text/split_step.h>

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tessera::text {

/// SentencePiece's way with blanks: ' ' becomes a visible character that words begin with.
struct MetaspaceStep {
  enum class Prepend { always, first, never };  ///< first: only where the text begins
  std::string replacement = "\xE2\x96\x81";     ///< U+2581
  Prepend prepend = Prepend::always;
  bool split = true;  ///< cut before each replacement
};

/// Bytes in the printable alphabet of bpe/byte_alphabet.h, after GPT-2's split into words.
struct ByteLevelStep {
  bool add_prefix_space = true;
  bool gpt2_pattern = true;
};

/// Whitespace: runs of word characters, and runs of what is neither word nor white space (\w+|[^\w\s]+).
struct WordRunsStep {};

/// Pieces of so many characters; the last may be shorter.
struct FixedLengthStep {
  std::size_t length = 5;
};

/// UnicodeScripts: cut where the script changes; kana count as Han, blanks and common characters join what they follow.
struct ScriptsStep {};

using CuttingStep = std::variant<SplitStep, MetaspaceStep, ByteLevelStep, WordRunsStep, FixedLengthStep, ScriptsStep>;

/// Immutable in use; thread-safe.
struct WordCutter {
  static constexpr std::size_t most_steps = 64;

  /// Called with each word; `at_start`: it begins where the text begins.
  using Word = std::function<void(std::string_view word, bool at_start)>;

  std::vector<CuttingStep> steps;  ///< none: a text is one word

  /// Calls word() for each word of well-formed UTF-8, in order. Words are not empty.
  void for_each_word(std::string_view text, bool at_start, RegexScratch& scratch, const Word& word) const {
    if (!text.empty()) cut(text, at_start, 0, scratch, word);
  }

 private:
  void cut(std::string_view text, bool at_start, std::size_t number, RegexScratch& scratch, const Word& word) const;
};

}  // namespace tessera::text
