#pragma once
/// \file
/// Parses --train_file and --validation_file, which specify files and their proportions.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::corpus {

/// Places that share a weight; each is a file, a folder, or a pattern (`*`, `?`, `[a-z]`).
struct DataPart {
  double weight = 0;                ///< as given, > 0; 0: the list has no weights, and this is its only part
  std::vector<std::string> places;  ///< at least one
};

/// Parses a list. "a.txt b.txt" is one part, each of whose files is read once per epoch. "0.7 a.jsonl 0.3 b c" is two
/// parts, the second with b and c; weights need not sum to 1. Words are separated by blanks or commas. A word that
/// contains blanks or commas must be quoted ('...' or "..."), unless the whole text is the name of an existing file or
/// folder, which is then the only place. Throws InputError for an unclosed quote, a weight that is not above 0 or has
/// no place after it, and a place before the first weight.
std::vector<DataPart> parse_data_list(std::string_view text);

/// Quotes a word for parse_data_list() if needed.
std::string quoted(const std::string& word);

/// All places of a list, in order.
std::vector<std::string> places_of(const std::vector<DataPart>& parts);

// Judged only by the names, without reading the files; an invalid list (reported elsewhere) counts as empty.
bool may_hold_examples(std::string_view list);  ///< whether a place may contain anything besides text and tokens, as a
                                                ///< folder may
bool holds_tokens_only(std::string_view list);  ///< only .bin and .idx, which do not need a tokenizer
bool has_weights(std::string_view list);

/// Whether a place is a pattern rather than the name of an existing file or folder.
bool is_pattern(const std::string& place);

}  // namespace tessera::corpus
