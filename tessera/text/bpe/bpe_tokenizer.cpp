#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/text/bpe/bpe_tokenizer.h>
#include <tessera/text/bpe/word_cache.h>
#include <tessera/text/tokenizer_json.h>
#include <tessera/text/unicode/utf8.h>

#include <deque>
#include <unordered_set>

namespace tessera::text {
namespace {

class BpeTokenizer final : public Tokenizer {
 public:
  explicit BpeTokenizer(BpeParts parts)
      : parts_(std::move(parts)),
        model_(parts_.byte_ids, parts_.merges, parts_.unknown),
        added_(parts_.added, parts_.normalizer) {
    parts_.merges = {};  // BpeModel builds its own table of merges
    for (const AddedToken& token : parts_.added) {
      added_ids_.emplace(token.content, token.id);
      if (token.special) special_ids_.insert(token.id);
    }
    for (const std::string_view content : {"<|endoftext|>", "<|end_of_text|>"})
      if (!end_of_text_) end_of_text_ = token_id(content);
  }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::string repaired;
    if (!is_utf8(text)) text = repaired = replace_ill_formed(text);
    const Pool<Scratch>::Lease scratch(scratches_);
    std::deque<std::string> normalized;
    std::vector<std::int32_t> ids;
    ids.reserve(text.size() / 3 + 8);
    for (const Segment& segment : added_.split(text, parts_.normalizer, normalized)) {
      if (segment.id >= 0)
        ids.push_back(segment.id);
      else
        parts_.pre_tokenizer.for_each_word(segment.text, (*scratch).regex,
                                           [&](std::string_view word) { encode_word(word, (*scratch).words, ids); });
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
  std::optional<std::int32_t> end_of_text() const override { return end_of_text_ ? end_of_text_ : parts_.end_of_turn; }
  std::optional<std::int32_t> end_of_turn() const override {
    return parts_.end_of_turn ? parts_.end_of_turn : end_of_text_;
  }
  std::vector<std::int32_t> prefix() const override { return parts_.prefix; }
  std::vector<std::int32_t> suffix() const override { return parts_.suffix; }

  std::optional<std::int32_t> token_id(std::string_view content) const override {
    const std::string key(content);
    for (const auto* ids : {&added_ids_, &parts_.ids_of_bytes, &parts_.other_ids})
      if (const auto found = ids->find(key); found != ids->end()) return found->second;
    return std::nullopt;
  }

  bool is_special(std::int32_t id) const override { return special_ids_.contains(id); }

  void save(const std::string& folder) const override {
    if (parts_.config_json.empty())
      return write_tokenizer_files(folder, parts_.json,
                                   end_of_text_ ? parts_.bytes_of_id[static_cast<std::size_t>(*end_of_text_)] : "");
    write_file_atomically(path_join(folder, "tokenizer.json"), parts_.json);
    write_file_atomically(path_join(folder, "tokenizer_config.json"), parts_.config_json);
  }

 private:
  /// Working memory of one encode() call.
  struct Scratch {
    WordCache words;
    RegexScratch regex;
  };

  void encode_word(std::string_view word, WordCache& cache, std::vector<std::int32_t>& ids) const {
    cache.append(word, ids, [&](std::string_view one, std::vector<std::int32_t>& out) { encode_uncached(one, out); });
  }

  void encode_uncached(std::string_view word, std::vector<std::int32_t>& ids) const {
    if (parts_.ignore_merges) {
      const auto whole = parts_.ids_of_bytes.find(std::string(word));
      if (whole != parts_.ids_of_bytes.end()) return ids.push_back(whole->second);
    }
    model_.encode_word(word, ids);
  }

  BpeParts parts_;
  BpeModel model_;
  AddedTokens added_;
  std::unordered_map<std::string, std::int32_t> added_ids_;
  std::unordered_set<std::int32_t> special_ids_;
  std::optional<std::int32_t> end_of_text_;
  mutable Pool<Scratch> scratches_;
};

}  // namespace

std::shared_ptr<const Tokenizer> make_bpe_tokenizer(BpeParts parts, const std::string& path) {
  try {
    return std::make_shared<BpeTokenizer>(std::move(parts));
  } catch (const InputError& error) {
    throw InputError(concat(path, ": ", error.what()));
  }
}

}  // namespace tessera::text
