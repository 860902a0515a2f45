#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/text/bpe/word_cache.h>
#include <tessera/text/unicode/utf8.h>
#include <tessera/text/wordpiece/wordpiece_tokenizer.h>

#include <algorithm>
#include <array>
#include <deque>
#include <utility>

namespace tessera::text {
namespace {

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  std::size_t at = text.find(from);
  if (at == std::string::npos) return;
  std::string out;
  std::size_t done = 0;
  for (; at != std::string::npos; at = text.find(from, done)) {
    out.append(text, done, at - done).append(to);
    done = at + from.size();
  }
  text = out.append(text, done);
}

/// English spelling out of tokens, token by token as Hugging Face does it: most of the patterns hold a blank that only
/// stands before a token.
void clean_up(std::string& token) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 11> changes{{{" .", "."},
                                                                                          {" ?", "?"},
                                                                                          {" !", "!"},
                                                                                          {" ,", ","},
                                                                                          {" ' ", "'"},
                                                                                          {" n't", "n't"},
                                                                                          {" 'm", "'m"},
                                                                                          {" do not", " don't"},
                                                                                          {" 's", "'s"},
                                                                                          {" 've", "'ve"},
                                                                                          {" 're", "'re"}}};
  for (const auto& [from, to] : changes) replace_all(token, from, to);
}

/// How many ids of two texts remain where at most `most` may: the shorter one stays whole while it can.
std::pair<std::size_t, std::size_t> longest_first(std::size_t a, std::size_t b, std::size_t most) {
  if (a + b <= most) return {a, b};
  const bool swapped = a > b;
  if (swapped) std::swap(a, b);
  b = a > most ? a : std::max(a, most - a);
  if (a + b > most) {
    a = most / 2;
    b = a + most % 2;
  }
  if (swapped) std::swap(a, b);
  return {a, b};
}

std::size_t special_count(const std::vector<TemplatePiece>& pieces) {
  std::size_t count = 0;
  for (const TemplatePiece& piece : pieces) count += piece.ids.size();
  return count;
}

/// Room for texts beside `special` tokens.
std::size_t room(std::int64_t most_ids, std::size_t special) {
  if (most_ids <= 0) return static_cast<std::size_t>(-1) / 4;
  return static_cast<std::size_t>(std::max(most_ids - static_cast<std::int64_t>(special), std::int64_t{0}));
}

Encoding filled(const std::vector<TemplatePiece>& pieces, std::span<const std::int32_t> a,
                std::span<const std::int32_t> b) {
  Encoding out;
  for (const TemplatePiece& piece : pieces) {
    const auto ids = piece.text == 'A' ? a : piece.text == 'B' ? b : std::span<const std::int32_t>(piece.ids);
    out.ids.insert(out.ids.end(), ids.begin(), ids.end());
    out.types.insert(out.types.end(), ids.size(), piece.type);
  }
  return out;
}

}  // namespace

/// Working memory of concurrent encodes.
struct WordPieceTokenizer::Memory {
  Pool<WordCache> words;
};

WordPieceTokenizer::WordPieceTokenizer(WordPieceParts parts)
    : parts_(std::move(parts)), added_(parts_.added, parts_.normalizer), memory_(std::make_unique<Memory>()) {
  special_.resize(parts_.contents.size(), false);
  std::string storage;
  for (const AddedToken& token : parts_.added) {
    added_ids_.emplace(token.content, token.id);
    if (token.normalized)  // it decodes to what it was found as
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
  const WordPieceDecoder& decoder = parts_.decoder;
  std::string out;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::int32_t id = ids[i];
    if (id < 0 || id >= vocab_size() || !parts_.exists[static_cast<std::size_t>(id)])
      throw InputError(concat("token id ", id, " at position ", i, " has no token (the vocabulary has ids 0 to ",
                              vocab_size() - 1, ")"));
    const std::string& content = parts_.contents[static_cast<std::size_t>(id)];
    std::string token = content;
    if (i > 0)
      token =
          decoder.joins && content.starts_with(decoder.prefix) ? content.substr(decoder.prefix.size()) : " " + content;
    if (decoder.joins && decoder.cleanup) clean_up(token);
    out += token;
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
  const auto& pieces = parts_.post_processor.single;
  std::vector<std::int32_t> ids = encode(utf8);
  ids.resize(std::min(ids.size(), room(most_ids, special_count(pieces))));
  return filled(pieces, ids, {});
}

Encoding WordPieceTokenizer::encode_pair(std::string_view first, std::string_view second, std::int64_t most_ids) const {
  const auto& pieces = parts_.post_processor.pair;
  std::vector<std::int32_t> a = encode(first), b = encode(second);
  const auto [most_a, most_b] = longest_first(a.size(), b.size(), room(most_ids, special_count(pieces)));
  a.resize(most_a);
  b.resize(most_b);
  return filled(pieces, a, b);
}

}  // namespace tessera::text
