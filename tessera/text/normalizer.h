#pragma once
/// \file
/// Normalizes text before it is cut into words: the `normalizer` of a tokenizer.json.

#include <tessera/text/bpe/regex_split.h>
#include <tessera/text/unicode/charsmap.h>

#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tessera::text {

/// Steps without settings. A BertNormalizer consists of up to five of them: clean_text, space_chinese, nfd and
/// remove_marks (strip_accents), lower_case.
enum class PlainStep {
  nfc,
  nfd,
  nfkc,
  nfkd,
  clean_text,
  space_chinese,
  remove_marks,   ///< BertNormalizer's: nonspacing marks
  strip_accents,  ///< StripAccents: all combining marks
  lower_case,
  nmt,
  byte_level  ///< bytes in the printable alphabet of bpe/byte_alphabet.h
};

/// Replaces every match of a pattern with `content`.
struct ReplaceStep {
  std::variant<std::shared_ptr<const RegexSplitter>, std::string> pattern;  ///< std::string: literally
  std::string content;
};

/// Inserted before a non-empty text.
struct PrependStep {
  std::string content;
};

/// Removes white space at the ends.
struct StripStep {
  bool left = true, right = true;
};

/// Precompiled: SentencePiece's replacement table.
struct CharsmapStep {
  std::shared_ptr<const Charsmap> map;
};

using NormalizerStep = std::variant<PlainStep, ReplaceStep, PrependStep, StripStep, CharsmapStep>;

/// Immutable in use; thread-safe.
struct Normalizer {
  std::vector<NormalizerStep> steps;  ///< in order; empty: text is unchanged

  /// Normalizes well-formed UTF-8; returns `text` itself or a view of `storage`, which is overwritten. `front_kept`, if
  /// given, is set to whether the result begins with the beginning of the text (or with something inserted before it),
  /// which Metaspace's prepend_scheme "first" depends on.
  std::string_view apply(std::string_view text, std::string& storage, bool* front_kept = nullptr) const;
};

}  // namespace tessera::text
