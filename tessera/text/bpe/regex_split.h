#pragma once
/// \file
/// Splits a text into words by the regular expression of a tokenizer.json (such as Llama-3's or Qwen's) with PCRE2's
/// JIT.
///
/// Hugging Face runs these patterns in Oniguruma with its own Unicode tables. PCRE2's tables are older, so \p{L} \p{Lu}
/// \p{Ll} \p{Lt} \p{Lm} \p{Lo} \p{M} \p{N} \p{Nd} \p{P} \p{S}, \s and their complements are replaced by explicit ranges
/// (characters.txt) before compilation. Constructs that the two engines interpret differently or that have no table
/// here are refused: \d \w \b, other properties, nested classes, ^ $, {n,m}+, lookbehind. Where possible, pattern and
/// text are searched over an alphabet of bytes (compact_pattern.h), which is several times as fast beyond ASCII.

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::text {

/// Working memory of a search: one per thread, for any number of patterns.
class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;

 private:
  friend class RegexSearch;
  struct Data;
  std::unique_ptr<Data> data_;
};

/// Immutable; thread-safe.
class RegexSplitter {
 public:
  /// Every error message begins with `where` ("tokenizer.json:12:7"). Throws InputError, also for patterns that can
  /// match the empty string. `translate` false: always search UTF-8 (slower, with the same matches; used by tests).
  RegexSplitter(const std::string& pattern, const std::string& where, bool translate = true);
  ~RegexSplitter();
  RegexSplitter(RegexSplitter&&) noexcept;
  RegexSplitter& operator=(RegexSplitter&&) noexcept;

 private:
  friend class RegexSearch;
  struct Code;
  std::unique_ptr<Code> code_;
};

/// The matches of a splitter in one text, in order. A thread may have several searches alive, destroyed in reverse
/// order.
class RegexSearch {
 public:
  struct Match {
    std::size_t begin, end;  ///< bytes; begin < end
  };

  /// `text` must be well-formed UTF-8; all three arguments must outlive the search.
  RegexSearch(const RegexSplitter& splitter, std::string_view text, RegexScratch& scratch);
  ~RegexSearch();
  RegexSearch(const RegexSearch&) = delete;
  RegexSearch& operator=(const RegexSearch&) = delete;

  /// Returns the next match. Throws Error when the engine gives up (excessive backtracking).
  std::optional<Match> next();

 private:
  std::size_t bytes_of(std::size_t begin, std::size_t units) const;

  const RegexSplitter::Code* code_;
  std::string_view text_, subject_;  ///< subject: the engine's input, which is the text or its translation
  RegexScratch::Data* scratch_;
  bool translated_ = false;
  std::size_t at_ = 0, unit_ = 0;  ///< end of the last match, in the text and in the subject
};

/// The pattern with classes replaced by ranges (see above). Throws InputError beginning with `where`.
std::string spell_out_classes(std::string_view pattern, const std::string& where);

}  // namespace tessera::text
