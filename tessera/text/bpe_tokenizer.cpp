#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/text/bpe_tokenizer.h>
#include <tessera/text/gpt2_split.h>
#include <tessera/text/tokenizer_json.h>
#include <tessera/text/utf8.h>
#include <tessera/text/word_cache.h>

namespace tessera::text {
namespace {

std::optional<std::int32_t> find_end_of_text(const BpeParts& parts) {
  for (const std::string_view content : {"<|endoftext|>", "<|end_of_text|>"}) {
    for (const AddedToken& token : parts.added) {
      if (token.content == content) return token.id;
    }
  }
  return std::nullopt;
}

class BpeTokenizer final : public Tokenizer {
 public:
  explicit BpeTokenizer(BpeParts parts)
      : parts_(std::move(parts)),
        model_(parts_.byte_ids, parts_.merges),
        added_(parts_.added),
        end_of_text_(find_end_of_text(parts_)) {
    parts_.merges = {};  // the model has its own table of them
  }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::string repaired;
    if (!is_utf8(text)) text = repaired = replace_ill_formed(text);
    const WordCachePool::Lease cache(caches_);
    std::vector<std::int32_t> ids;
    ids.reserve(text.size() / 3 + 8);
    for (const Segment& segment : added_.split(text)) {
      if (segment.id >= 0) {
        ids.push_back(segment.id);
      } else {
        encode_segment(segment.text, *cache, ids);
      }
    }
    return ids;
  }

  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string out;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::int32_t id = ids[i];
      if (id < 0 || id >= vocab_size() || !parts_.has_token[static_cast<std::size_t>(id)])
        throw InputError(concat("token id ", id, " at position ", i, " has no token (the vocabulary has ids 0 to ",
                                vocab_size() - 1, ")"));
      out += parts_.bytes_of_id[static_cast<std::size_t>(id)];
    }
    return out;
  }

  std::int64_t vocab_size() const override { return static_cast<std::int64_t>(parts_.bytes_of_id.size()); }
  std::optional<std::int32_t> end_of_text() const override { return end_of_text_; }

  void save(const std::string& folder) const override {
    if (parts_.config_json.empty())
      return write_tokenizer_files(folder, parts_.json,
                                   end_of_text_ ? parts_.bytes_of_id[static_cast<std::size_t>(*end_of_text_)] : "");
    write_file_atomically(path_join(folder, "tokenizer.json"), parts_.json);
    write_file_atomically(path_join(folder, "tokenizer_config.json"), parts_.config_json);
  }

 private:
  void encode_segment(std::string_view text, WordCache& cache, std::vector<std::int32_t>& ids) const {
    if (!parts_.words.pattern) return encode_piece(text, cache, ids);
    std::vector<std::string_view> pieces;
    parts_.words.pattern->split(text, pieces);
    for (const std::string_view piece : pieces) encode_piece(piece, cache, ids);
  }

  /// A piece as ByteLevel sees it.
  void encode_piece(std::string_view text, WordCache& cache, std::vector<std::int32_t>& ids) const {
    std::string prefixed;
    if (parts_.words.add_prefix_space && !text.starts_with(' ')) text = prefixed = concat(' ', text);
    if (!parts_.words.gpt2_pattern) return encode_word(text, cache, ids);
    const Gpt2Splitter splitter;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = splitter.word_end(text, at);
      encode_word(text.substr(at, end - at), cache, ids);
      at = end;
    }
  }

  void encode_word(std::string_view word, WordCache& cache, std::vector<std::int32_t>& ids) const {
    if (word.size() > WordCache::max_bytes) return encode_uncached(word, ids);
    WordCache::Slot& slot = cache.slot(word);
    if (slot.holds(word)) {
      ids.insert(ids.end(), slot.id.data(), slot.id.data() + slot.ids);
      return;
    }
    const std::size_t first = ids.size();
    encode_uncached(word, ids);
    slot.put(word, std::span(ids).subspan(first));
  }

  void encode_uncached(std::string_view word, std::vector<std::int32_t>& ids) const {
    if (!parts_.whole_words.empty()) {
      const auto whole = parts_.whole_words.find(std::string(word));
      if (whole != parts_.whole_words.end()) return ids.push_back(whole->second);
    }
    model_.encode_word(word, ids);
  }

  BpeParts parts_;
  BpeModel model_;
  AddedTokens added_;
  std::optional<std::int32_t> end_of_text_;
  mutable WordCachePool caches_;
};

}  // namespace

std::shared_ptr<const Tokenizer> make_bpe_tokenizer(BpeParts parts) {
  return std::make_shared<BpeTokenizer>(std::move(parts));
}

}  // namespace tessera::text
