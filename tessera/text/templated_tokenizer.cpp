#include <tessera/text/templated_tokenizer.h>

#include <filesystem>
#include <utility>

#include <tessera/base/file.h>
#include <tessera/text/chat_template.h>

namespace tessera::text {
namespace {

constexpr const char* template_file = "chat_template.jinja";

class TemplatedTokenizer final : public Tokenizer {
 public:
  TemplatedTokenizer(std::shared_ptr<const Tokenizer> tokenizer, std::string source)
      : tokenizer_(std::move(tokenizer)), source_(std::move(source)) {}

  std::vector<std::int32_t> encode(std::string_view utf8) const override { return tokenizer_->encode(utf8); }
  std::string decode(std::span<const std::int32_t> ids) const override { return tokenizer_->decode(ids); }
  std::string decode_after(std::span<const std::int32_t> before, std::span<const std::int32_t> ids) const override {
    return tokenizer_->decode_after(before, ids);
  }
  std::int64_t vocab_size() const override { return tokenizer_->vocab_size(); }
  std::optional<std::int32_t> end_of_text() const override { return tokenizer_->end_of_text(); }
  std::optional<std::int32_t> end_of_turn() const override { return tokenizer_->end_of_turn(); }
  std::vector<std::int32_t> prefix() const override { return tokenizer_->prefix(); }
  std::vector<std::int32_t> suffix() const override { return tokenizer_->suffix(); }
  Encoding encode_text(std::string_view utf8, std::int64_t most_ids) const override {
    return tokenizer_->encode_text(utf8, most_ids);
  }
  Encoding encode_pair(std::string_view first, std::string_view second, std::int64_t most_ids) const override {
    return tokenizer_->encode_pair(first, second, most_ids);
  }
  std::optional<std::int32_t> token_id(std::string_view content) const override {
    return tokenizer_->token_id(content);
  }
  bool is_special(std::int32_t id) const override { return tokenizer_->is_special(id); }
  void save(const std::string& folder) const override {
    tokenizer_->save(folder);
    write_file_atomically(path_join(folder, template_file), source_);
  }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::string source_;
};

}  // namespace

std::shared_ptr<const Tokenizer> with_chat_template(std::shared_ptr<const Tokenizer> tokenizer,
                                                    const std::string& place, const std::string& given) {
  const std::string folder = is_directory(place) ? place : std::filesystem::path(place).parent_path().string();
  const std::string beside = path_join(folder, template_file);
  if (given.empty() && !(path_exists(place) && path_exists(beside))) return tokenizer;
  std::string source = read_chat_template(given.empty() ? beside : given).text;
  return std::make_shared<const TemplatedTokenizer>(std::move(tokenizer), std::move(source));
}

}  // namespace tessera::text
