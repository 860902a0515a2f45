#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/text/token_table.h>
#include <tessera/text/tokenizer_components.h>

#include <algorithm>

namespace tessera::text {
namespace {

/// Ids start at 0 and have few gaps. These limits are far above any real vocabulary; they bound the allocations for a
/// small malformed file.
std::int64_t most_ids(std::size_t tokens) {
  return std::min(std::int64_t{1} << 22, static_cast<std::int64_t>(tokens) * 16 + (1 << 16));
}

}  // namespace

bool is_set(const Value* value) { return value != nullptr && !value->is_null(); }

const Value& member_or_null(const Value& object, std::string_view key) {
  static const Value null;
  const Value* value = object.find(key);
  return value != nullptr ? *value : null;
}

/// The encode() of `tokenizers` itself applies them; transformers' tokenizers disable both by default, which is what
/// training needs.
void note_what_is_not_applied(const Value& root) {
  for (const char* key : {"truncation", "padding"}) {
    if (const Value* value = root.find(key); is_set(value))
      log::info(value->where().str(), ": \"", key, "\" is not applied, as in transformers: texts are encoded whole");
  }
}

const std::string& token_content(const Value& value) {
  return value.is_object() ? value.at("content").as_string() : value.as_string();
}

TokenTable::TokenTable(const Value& root) : root_(root) {
  const Value& vocabulary = root.at("model").at("vocab");
  const std::size_t tokens = vocabulary.is_array() ? vocabulary.items().size() : vocabulary.members().size();
  const Value& added = member_or_null(root, "added_tokens");
  most_ids_ = most_ids(tokens + (added.is_null() ? 0 : added.items().size()));
  ids_.reserve(tokens);
}

void TokenTable::place(std::int64_t id, std::string content, const Value& at) {
  if (id < 0 || id >= most_ids_)
    throw InputError(concat(at.where().str(), ": token id ", id, " is outside [0, ", most_ids_,
                            "), a generous range for this many tokens"));
  const auto i = static_cast<std::size_t>(id);
  if (i >= contents.size()) {
    contents.resize(i + 1);
    exists.resize(i + 1, false);
  }
  contents[i] = std::move(content);
  exists[i] = true;
}

void TokenTable::add(const std::string& spelling, std::string content, const Value& id) {
  const std::int64_t number = id.as_int();
  if (number >= 0 && number < size() && exists[static_cast<std::size_t>(number)])
    throw InputError(concat(id.where().str(), ": token id ", number, " is given twice, here for \"", spelling, "\""));
  place(number, std::move(content), id);
  ids_.emplace(spelling, static_cast<std::int32_t>(number));
}

void TokenTable::add_next(const std::string& spelling, const Value& at) {
  const std::int64_t id = size();
  place(id, spelling, at);
  ids_.insert_or_assign(spelling, static_cast<std::int32_t>(id));
}

std::optional<std::int32_t> TokenTable::id_of(const std::string& spelling) const {
  const auto found = ids_.find(spelling);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

std::vector<AddedToken> TokenTable::read_added_tokens() {
  std::vector<AddedToken> added;
  const Value* list = root_.find("added_tokens");
  if (!is_set(list)) return added;
  for (const Value& value : list->items()) {
    AddedToken token;
    token.content = value.at("content").as_string();
    if (token.content.empty()) throw InputError(concat(value.where().str(), ": an added token has no content"));
    check_added_id(token.content, value.at("id"));
    place(value.at("id").as_int(), token.content, value.at("id"));
    token.id = static_cast<std::int32_t>(value.at("id").as_int());
    token.single_word = read_flag(value, "single_word", false);
    token.lstrip = read_flag(value, "lstrip", false);
    token.rstrip = read_flag(value, "rstrip", false);
    token.normalized = read_flag(value, "normalized", false);
    token.special = read_flag(value, "special", false);
    added.push_back(std::move(token));
  }
  return added;
}

/// Refuses an id that Hugging Face would not give this token, or that belongs to another token: ids would change
/// silently.
void TokenTable::check_added_id(const std::string& content, const Value& id) const {
  const auto fail = [&](const std::string& why) {
    throw InputError(
        concat(id.where().str(), ": the added token \"", content, "\" has id ", id.as_int(), ", but ", why));
  };
  if (const auto known = ids_.find(content); known != ids_.end()) {
    if (known->second != id.as_int()) fail(concat("id ", known->second, " in the vocabulary"));
  } else if (id.as_int() >= 0 && id.as_int() < size() && exists[static_cast<std::size_t>(id.as_int())]) {
    fail("another token has that id");
  }
}

}  // namespace tessera::text
