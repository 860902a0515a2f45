#pragma once
/// \file
/// Parses --train_file and --validation_file: which files, in which proportions.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::corpus {

/// The places with one weight, each a file, a folder, or a pattern (`*`, `?`, `[a-z]`).
struct DataPart {
  double weight = 0;                ///< > 0, as given; 0: the list has no weights, and this is its only part
  std::vector<std::string> places;  ///< at least one
};

/// "a.txt b.txt": one part, whose files are each read once per epoch. "0.7 a.jsonl 0.3 b c": two parts, the second with
/// b and c; weights need not sum to 1. Words are separated by blanks or commas. A word that contains these must be
/// quoted ('...' or "..."), unless the whole text is the name of an existing file or folder, which is then one place.
/// Throws InputError for an unclosed quote, a weight that is not above 0 or has no place after it, and a place before
/// the first weight.
std::vector<DataPart> parse_data_list(std::string_view text);

/// Quotes a word for parse_data_list() if needed.
std::string quoted(const std::string& word);

/// All places of a list, in order.
std::vector<std::string> places_of(const std::vector<DataPart>& parts);

// Judged by the names alone, without looking at the files; an invalid list (reported elsewhere) counts as empty.
bool may_hold_examples(std::string_view list);  ///< anything besides text and tokens; folders may
bool holds_tokens_only(std::string_view list);  ///< .bin and .idx: need no tokenizer
bool has_weights(std::string_view list);

/// Whether a place is a pattern rather than the name of an existing file or folder.
bool is_pattern(const std::string& place);

}  // namespace tessera::corpus
