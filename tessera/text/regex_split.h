#pragma once
/// \file
/// Splitting by the regular expression of a tokenizer.json (Llama-3, Qwen and the like) with PCRE2's JIT.
///
/// Hugging Face runs these patterns in Oniguruma with its own Unicode tables. PCRE2's are older, so \p{L}, \p{N}, \s
/// and their complements are replaced by explicit ranges (unicode_ranges.h) before compilation. What the two engines
/// read differently, and what has no table here, is refused: \d \w \b, other properties, nested classes, ^ $, {n,m}+.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::text {

/// Immutable; thread-safe.
class RegexSplitter {
 public:
  /// `where` ("tokenizer.json:12:7") begins every error message. Throws InputError.
  RegexSplitter(const std::string& pattern, const std::string& where);
  ~RegexSplitter();
  RegexSplitter(RegexSplitter&&) noexcept;
  RegexSplitter& operator=(RegexSplitter&&) noexcept;

  /// Appends the pieces of well-formed UTF-8: matches and what lies between them ("isolated"), none empty.
  void split(std::string_view text, std::vector<std::string_view>& out) const;

 private:
  struct Code;
  std::unique_ptr<Code> code_;
};

/// The pattern with classes spelt out; see above. Throws InputError beginning with `where`.
std::string spell_out_classes(std::string_view pattern, const std::string& where);

}  // namespace tessera::text
