#pragma once
/// \file
/// The tokens of a tokenizer.json by spelling and by id while it is parsed: checks common to all kinds of models.

#include <tessera/base/value.h>
#include <tessera/text/added_tokens.h>

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace tessera::text {

bool is_set(const Value* value);  ///< whether the member is present and not null
const Value& member_or_null(const Value& object, std::string_view key);

/// Logs that `truncation` and `padding` are not applied.
void note_what_is_not_applied(const Value& root);

/// The content of a token given as a text or as an object with `content`.
const std::string& token_content(const Value& value);

class TokenTable {
 public:
  /// A table for the vocabulary and the added tokens of this file. Ids far beyond its number of tokens are refused, so
  /// that a small malformed file cannot cause large allocations.
  explicit TokenTable(const Value& root);

  /// Adds a token of the vocabulary; `content` is the text that it decodes to. Throws InputError for an id that is out
  /// of range or taken.
  void add(const std::string& spelling, std::string content, const Value& id);
  /// Adds the next token of a vocabulary whose ids are its positions; `at`: its place in the file. If a spelling occurs
  /// several times, it gets the id of the last one.
  void add_next(const std::string& spelling, const Value& at);
  /// Reads the file's `added_tokens` (none: empty) and adds them to the table. Throws InputError if an id contradicts
  /// the vocabulary, because ids would change silently.
  std::vector<AddedToken> read_added_tokens();

  /// The id of a spelling of the vocabulary (not of added tokens).
  std::optional<std::int32_t> id_of(const std::string& spelling) const;
  std::int64_t size() const { return static_cast<std::int64_t>(exists.size()); }  ///< largest id + 1

  std::vector<std::string> contents;  ///< by id
  std::vector<bool> exists;           ///< by id: there may be gaps

 private:
  void place(std::int64_t id, std::string content, const Value& at);
  void check_added_id(const std::string& content, const Value& id) const;

  const Value& root_;
  std::int64_t most_ids_ = 0;
  std::unordered_map<std::string, std::int32_t> ids_;
};

}  // namespace tessera::text
