#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/text/bpe/word_cache.h>
#include <tessera/text/unicode/utf8.h>
#include <tessera/text/wordpiece/bert_characters.h>
#include <tessera/text/wordpiece/wordpiece_tokenizer.h>

#include <deque>
#include <span>
#include <utility>

namespace tessera::text {

/// Working memory of concurrent encode() calls.
struct WordPieceTokenizer::Memory {
  Pool<WordCache> words;
};

WordPieceTokenizer::WordPieceTokenizer(WordPieceParts parts)
    : parts_(std::move(parts)), added_(parts_.added, parts_.normalizer), memory_(std::make_unique<Memory>()) {
  special_.resize(parts_.contents.size(), false);
  std::string storage;
  for (const AddedToken& token : parts_.added) {
    added_ids_.emplace(token.content, token.id);
    if (token.normalized)  // the token decodes to the normalized text that it matches
      parts_.contents[static_cast<std::size_t>(token.id)] = parts_.normalizer.apply(token.content, storage);
    if (token.special) special_[static_cast<std::size_t>(token.id)] = true;
  }
  for (const auto& id :
       {parts_.special.cls, parts_.special.sep, parts_.special.pad, parts_.special.mask, parts_.special.unknown})
    if (id) special_[static_cast<std::size_t>(*id)] = true;
}

WordPieceTokenizer::~WordPieceTokenizer() = default;

std::vector<std::int32_t> WordPieceTokenizer::encode(std::string_view text) const {
  std::string repaired;
  if (!is_utf8(text)) text = repaired = replace_ill_formed(text);
  const Pool<WordCache>::Lease cache(memory_->words);
  std::deque<std::string> normalized;
  std::vector<std::int32_t> ids;
  ids.reserve(text.size() / 4 + 8);
  for (const Segment& segment : added_.split(text, parts_.normalizer, normalized)) {
    if (segment.id >= 0) {
      ids.push_back(segment.id);
      continue;
    }
    for_each_bert_word(segment.text, [&](std::string_view word) {
      if (word.size() > WordCache::max_bytes) return parts_.model.encode_word(word, ids);
      WordCache::Slot& slot = (*cache).slot(word);
      if (slot.holds(word)) {
        ids.insert(ids.end(), slot.id.data(), slot.id.data() + slot.ids);
        return;
      }
      const std::size_t first = ids.size();
      parts_.model.encode_word(word, ids);
      slot.put(word, std::span(ids).subspan(first));
    });
  }
  return ids;
}

std::string WordPieceTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string out;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::int32_t id = ids[i];
    if (id < 0 || id >= vocab_size() || !parts_.exists[static_cast<std::size_t>(id)])
      throw InputError(concat("token id ", id, " at position ", i, " has no token (the vocabulary has ids 0 to ",
                              vocab_size() - 1, ")"));
    out += parts_.decoder.decode(parts_.contents[static_cast<std::size_t>(id)], i == 0);
  }
  return out;
}

std::optional<std::int32_t> WordPieceTokenizer::token_id(std::string_view content) const {
  const std::string key(content);
  for (const auto* ids : {&added_ids_, &parts_.ids})
    if (const auto found = ids->find(key); found != ids->end()) return found->second;
  return std::nullopt;
}

bool WordPieceTokenizer::is_special(std::int32_t id) const {
  return id >= 0 && id < vocab_size() && special_[static_cast<std::size_t>(id)];
}

void WordPieceTokenizer::save(const std::string& folder) const {
  write_file_atomically(path_join(folder, "tokenizer.json"), parts_.json);
  write_file_atomically(path_join(folder, "tokenizer_config.json"), parts_.config_json);
}

Encoding WordPieceTokenizer::encode_text(std::string_view utf8, std::int64_t most_ids) const {
  return encode_one(parts_.post_processor, encode(utf8), most_ids);
}

Encoding WordPieceTokenizer::encode_pair(std::string_view first, std::string_view second, std::int64_t most_ids) const {
  return encode_two(parts_.post_processor, encode(first), encode(second), most_ids);
}

}  // namespace tessera::text
