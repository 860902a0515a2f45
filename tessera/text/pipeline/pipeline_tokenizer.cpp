#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/text/bpe/word_cache.h>
#include <tessera/text/pipeline/pipeline_tokenizer.h>
#include <tessera/text/tokenizer_json.h>
#include <tessera/text/unicode/utf8.h>

#include <algorithm>
#include <deque>
#include <unordered_set>

namespace tessera::text {
namespace {

class PipelineTokenizer final : public Tokenizer {
 public:
  explicit PipelineTokenizer(PipelineParts parts) : parts_(std::move(parts)), added_(parts_.added, parts_.normalizer) {
    std::string storage;
    for (const AddedToken& token : parts_.added) {
      added_ids_.emplace(token.content, token.id);
      if (token.special) special_ids_.insert(token.id);
      if (token.normalized)  // the token decodes to the normalized text that it matches
        parts_.contents[static_cast<std::size_t>(token.id)] = parts_.normalizer.apply(token.content, storage);
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
    const WordCutter::Word word = [&](std::string_view found, bool /*at_start*/) {
      for (std::size_t at = 0; at < found.size();) {
        const std::size_t end = parts_.model->part_end(found, at);
        encode_part(found.substr(at, end - at), (*scratch).words, ids);
        at = end;
      }
    };
    for (const Segment& segment : added_.split(text, parts_.normalizer, normalized)) {
      if (segment.id >= 0)
        ids.push_back(segment.id);
      else
        parts_.cutter.for_each_word(segment.text, segment.at_start, (*scratch).regex, word);
    }
    return ids;
  }

  std::string decode(std::span<const std::int32_t> ids) const override { return decoded(ids, false); }

  std::string decode_after(std::span<const std::int32_t> before, std::span<const std::int32_t> ids) const override {
    // Decoders depend only on neighbouring tokens: the first token, runs of bytes (at most 4 per character), repeated
    // tokens.
    constexpr std::size_t reach = 8;
    const auto near = before.last(std::min(before.size(), reach));
    std::vector<std::int32_t> all(near.begin(), near.end());
    const std::string old = decoded(all, true);
    all.insert(all.end(), ids.begin(), ids.end());
    std::string both = decoded(all, true);
    return both.starts_with(old) ? both.substr(old.size()) : decoded(ids, true);
  }

  std::int64_t vocab_size() const override { return static_cast<std::int64_t>(parts_.contents.size()); }
  std::optional<std::int32_t> end_of_text() const override { return end_of_text_ ? end_of_text_ : parts_.end_of_turn; }
  std::optional<std::int32_t> end_of_turn() const override {
    return parts_.end_of_turn ? parts_.end_of_turn : end_of_text_;
  }
  std::vector<std::int32_t> prefix() const override { return parts_.post_processor.prefix; }
  std::vector<std::int32_t> suffix() const override { return parts_.post_processor.suffix; }

  Encoding encode_text(std::string_view utf8, std::int64_t most_ids) const override {
    return encode_one(parts_.post_processor, encode(utf8), most_ids);
  }
  Encoding encode_pair(std::string_view first, std::string_view second, std::int64_t most_ids) const override {
    return encode_two(parts_.post_processor, encode(first), encode(second), most_ids);
  }

  std::optional<std::int32_t> token_id(std::string_view content) const override {
    const std::string key(content);
    for (const auto* ids : {&added_ids_, &parts_.ids})
      if (const auto found = ids->find(key); found != ids->end()) return found->second;
    return std::nullopt;
  }

  bool is_special(std::int32_t id) const override { return special_ids_.contains(id); }

  void save(const std::string& folder) const override {
    if (parts_.config_json.empty())
      return write_tokenizer_files(folder, parts_.json,
                                   end_of_text() ? parts_.contents[static_cast<std::size_t>(*end_of_text())] : "");
    write_file_atomically(path_join(folder, "tokenizer.json"), parts_.json);
    write_file_atomically(path_join(folder, "tokenizer_config.json"), parts_.config_json);
  }

 private:
  /// Working memory of one encode() call.
  struct Scratch {
    WordCache words;
    RegexScratch regex;
  };

  void encode_part(std::string_view part, WordCache& cache, std::vector<std::int32_t>& ids) const {
    cache.append(part, ids,
                 [&](std::string_view one, std::vector<std::int32_t>& out) { parts_.model->encode_word(one, out); });
  }

  std::string decoded(std::span<const std::int32_t> ids, bool raw_bytes) const {
    std::vector<std::string> tokens;
    tokens.reserve(ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::int32_t id = ids[i];
      if (id < 0 || id >= vocab_size() || !parts_.exists[static_cast<std::size_t>(id)])
        throw InputError(concat("token id ", id, " at position ", i, " has no token (the vocabulary has ids 0 to ",
                                vocab_size() - 1, ")"));
      tokens.push_back(parts_.contents[static_cast<std::size_t>(id)]);
    }
    return parts_.decoder.decode(std::move(tokens), raw_bytes);
  }

  PipelineParts parts_;
  AddedTokens added_;
  std::unordered_map<std::string, std::int32_t> added_ids_;
  std::unordered_set<std::int32_t> special_ids_;
  std::optional<std::int32_t> end_of_text_;
  mutable Pool<Scratch> scratches_;
};

}  // namespace

std::shared_ptr<const Tokenizer> make_pipeline_tokenizer(PipelineParts parts, const std::string& path) {
  try {
    return std::make_shared<PipelineTokenizer>(std::move(parts));
  } catch (const InputError& error) {
    throw InputError(concat(path, ": ", error.what()));
  }
}

}  // namespace tessera::text
