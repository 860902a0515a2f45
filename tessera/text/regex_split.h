#pragma once
/// \file
/// Finding the words of a text by the regular expression of a tokenizer.json (Llama-3, Qwen and the like) with PCRE2's
/// JIT.
///
/// Hugging Face runs these patterns in Oniguruma with its own Unicode tables. PCRE2's are older, so \p{L} \p{Lu} \p{Ll}
/// \p{Lt} \p{Lm} \p{Lo} \p{M} \p{N} \p{Nd} \p{P} \p{S}, \s and their complements are replaced by explicit ranges
/// (unicode_ranges.h, unicode_properties.h) before compilation. What the two engines read differently, and what has no
/// table here, is refused: \d \w \b, other properties, nested classes, ^ $, {n,m}+, lookbehind.

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::text {

/// Working memory of a search: one for each thread, for any number of patterns.
class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;

 private:
  friend class RegexSplitter;
  struct Data;
  std::unique_ptr<Data> data_;
};

/// Immutable; thread-safe.
class RegexSplitter {
 public:
  struct Match {
    std::size_t begin, end;  ///< bytes; begin < end
  };

  /// `where` ("tokenizer.json:12:7") begins every error message. Throws InputError, also for patterns that can match
  /// nothing at all.
  RegexSplitter(const std::string& pattern, const std::string& where);
  ~RegexSplitter();
  RegexSplitter(RegexSplitter&&) noexcept;
  RegexSplitter& operator=(RegexSplitter&&) noexcept;

  /// The first match in well-formed UTF-8 that begins at `from` (the beginning of a code point) or later. Throws Error
  /// where the engine gives up (patterns that backtrack without end).
  std::optional<Match> find(std::string_view text, std::size_t from, RegexScratch& scratch) const;

 private:
  struct Code;
  std::unique_ptr<Code> code_;
};

/// The pattern with classes spelt out; see above. Throws InputError beginning with `where`.
std::string spell_out_classes(std::string_view pattern, const std::string& where);

}  // namespace tessera::text
