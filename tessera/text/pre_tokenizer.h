#pragma once
/// \file
/// Cuts text into the words of byte-level BPE: any number of Split and Digits steps, then ByteLevel. (For any other
/// `pre_tokenizer` of a tokenizer.json see pipeline/word_cutter.h.) Every step cuts the pieces of the previous step;
/// pieces are passed on one by one, without storing them.

#include <tessera/text/bpe/gpt2_split.h>
#include <tessera/text/split_step.h>

#include <string>
#include <string_view>
#include <vector>

namespace tessera::text {

/// Immutable in use; thread-safe.
struct PreTokenizer {
  static constexpr std::size_t most_steps = 64;

  std::vector<SplitStep> steps;
  bool add_prefix_space = false;  ///< a piece that does not begin with ' ' gets one
  bool gpt2_pattern = true;       ///< ByteLevel(use_regex=true); false: a piece is a word

  /// Calls word(std::string_view) for each word of well-formed UTF-8, in order. Words are not empty.
  template <class Word>
  void for_each_word(std::string_view text, RegexScratch& scratch, Word&& word) const {
    cut(text, 0, scratch, word);
  }

 private:
  template <class Word>
  void cut(std::string_view text, std::size_t number, RegexScratch& scratch, Word& word) const {
    if (number == steps.size()) return byte_level(text, word);
    cut_text(steps[number], text, scratch, [&](std::string_view piece) { cut(piece, number + 1, scratch, word); });
  }

  template <class Word>
  void byte_level(std::string_view text, Word& word) const {
    std::string prefixed;
    if (add_prefix_space && !text.starts_with(' ')) {
      prefixed.reserve(text.size() + 1);
      prefixed += ' ';
      text = prefixed += text;
    }
    if (!gpt2_pattern) return word(text);
    const Gpt2Splitter splitter;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = splitter.word_end(text, at);
      word(text.substr(at, end - at));
      at = end;
    }
  }
};

}  // namespace tessera::text
