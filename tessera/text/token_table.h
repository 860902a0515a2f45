#pragma once
/// \file
/// The tokens of a tokenizer.json by spelling and by id while it is read: what every kind of model checks alike.

#include <tessera/base/value.h>
#include <tessera/text/added_tokens.h>

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace tessera::text {

bool is_set(const Value* value);  ///< present and not null
const Value& member_or_null(const Value& object, std::string_view key);

/// `truncation` and `padding` are not applied, which is logged.
void note_what_is_not_applied(const Value& root);

/// A token's content where a file gives a text or an object with `content`.
const std::string& token_content(const Value& value);

class TokenTable {
 public:
  /// For the vocabulary and the added tokens of this file. Ids beyond what so many tokens can need are refused, so that
  /// a small bad file cannot allocate much.
  explicit TokenTable(const Value& root);

  /// A token of the vocabulary, spelt so; `content` is what it decodes to. Throws InputError for an id that is out of
  /// range or taken.
  void add(const std::string& spelling, std::string content, const Value& id);
  /// The next token of a vocabulary whose ids are its positions; `at`: where it stands. Of equal spellings the last
  /// one has the spelling's id.
  void add_next(const std::string& spelling, const Value& at);
  /// The file's `added_tokens` (none: empty), which join the table. Throws InputError where an id contradicts the
  /// vocabulary: ids would change silently.
  std::vector<AddedToken> read_added_tokens();

  /// The id of a spelling of the vocabulary (not of added tokens).
  std::optional<std::int32_t> id_of(const std::string& spelling) const;
  std::int64_t size() const { return static_cast<std::int64_t>(exists.size()); }  ///< largest id + 1

  std::vector<std::string> contents;  ///< by id
  std::vector<bool> exists;           ///< by id: there may be holes

 private:
  void place(std::int64_t id, std::string content, const Value& at);
  void check_added_id(const std::string& content, const Value& id) const;

  const Value& root_;
  std::int64_t most_ids_ = 0;
  std::unordered_map<std::string, std::int32_t> ids_;
};

}  // namespace tessera::text
