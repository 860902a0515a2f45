#pragma once
/// \file
/// What --train_file and --validation_file say: which files, and in which proportions.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::corpus {

/// What has one weight: places, each a file, a folder, or a pattern (`*`, `?`, `[a-z]`).
struct DataPart {
  double weight = 0;                ///< > 0, as given; 0: the list has no weights and is this one part
  std::vector<std::string> places;  ///< at least one
};

/// "a.txt b.txt": one part, whose files are seen once an epoch each. "0.7 a.jsonl 0.3 b c": two, the second of b and c;
/// numbers need not sum to 1. Words stand between blanks or commas; one with blanks or commas in it is written in
/// quotes ('...' or "..."), or alone: a text that names an existing file or folder is that one place. Throws InputError
/// for an open quote, a weight that is not above 0 or has no place behind it, and a place before the first weight.
std::vector<DataPart> parse_data_list(std::string_view text);

/// A word as parse_data_list() takes it: in quotes where it needs them.
std::string quoted(const std::string& word);

/// All places of a list, in order.
std::vector<std::string> places_of(const std::vector<DataPart>& parts);

// By the names of what a list says, without looking at the files; a list that is wrong (which is said elsewhere) holds
// nothing.
bool may_hold_examples(std::string_view list);  ///< anything beside text and tokens; folders may
bool holds_tokens_only(std::string_view list);  ///< .bin and .idx: needs no tokenizer
bool has_weights(std::string_view list);

/// Whether a place is a pattern of names rather than the name of a file or folder that is there.
bool is_pattern(const std::string& place);

}  // namespace tessera::corpus
