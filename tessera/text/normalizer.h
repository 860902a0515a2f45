#pragma once
/// \file
/// What is done to text before it is cut into words: the `normalizer` of a tokenizer.json.

#include <tessera/text/normal_form.h>

#include <string>
#include <string_view>
#include <vector>

namespace tessera::text {

/// Immutable in use; thread-safe.
struct Normalizer {
  enum class Step { nfc, nfd };
  std::vector<Step> steps;  ///< in order; none: text stays as it is

  /// Of well-formed UTF-8: `text` itself or a view of `storage`, which is overwritten.
  std::string_view apply(std::string_view text, std::string& storage) const {
    std::string other;
    for (const Step step : steps) {
      const std::string_view done = step == Step::nfc ? to_nfc(text, other) : to_nfd(text, other);
      if (done.data() != other.data()) continue;  // unchanged
      storage.swap(other);
      text = storage;
    }
    return text;
  }
};

}  // namespace tessera::text
