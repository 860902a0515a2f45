#pragma once
/// \file
/// What is done to text before it is cut into words: the `normalizer` of a tokenizer.json.

#include <tessera/text/unicode/normal_form.h>
#include <tessera/text/wordpiece/bert_characters.h>

#include <string>
#include <string_view>
#include <vector>

namespace tessera::text {

/// Immutable in use; thread-safe.
struct Normalizer {
  /// BertNormalizer is up to five steps: clean_text, space_chinese, nfd and remove_marks (strip_accents), lower_case.
  enum class Step { nfc, nfd, clean_text, space_chinese, remove_marks, lower_case };
  std::vector<Step> steps;  ///< in order; none: text stays as it is

  /// Normalizes well-formed UTF-8: `text` itself or a view of `storage`, which is overwritten.
  std::string_view apply(std::string_view text, std::string& storage) const {
    std::string other;
    for (const Step step : steps) {
      const std::string_view done = apply(step, text, other);
      if (done.data() != other.data()) continue;  // unchanged
      storage.swap(other);
      text = storage;
    }
    return text;
  }

 private:
  static std::string_view apply(Step step, std::string_view text, std::string& storage) {
    switch (step) {
      case Step::nfc:
        return to_nfc(text, storage);
      case Step::nfd:
        return to_nfd(text, storage);
      case Step::clean_text:
        return clean_text(text, storage);
      case Step::space_chinese:
        return space_chinese(text, storage);
      case Step::remove_marks:
        return remove_marks(text, storage);
      case Step::lower_case:
        return to_lower_case(text, storage);
    }
    return text;
  }
};

}  // namespace tessera::text
