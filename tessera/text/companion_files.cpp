#include <tessera/text/companion_files.h>

#include <filesystem>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <tessera/base/file.h>
#include <tessera/base/value.h>
#include <tessera/text/chat_template.h>
#include <tessera/text/tokenizer_files.h>

namespace tessera::text {
namespace {

constexpr const char *template_file = "chat_template.jinja", *config_file = "tokenizer_config.json";

using Files = std::map<std::string, std::string>;  // bytes by name in the folder

class AccompaniedTokenizer final : public Tokenizer {
 public:
  AccompaniedTokenizer(std::shared_ptr<const Tokenizer> tokenizer, Files files)
      : tokenizer_(std::move(tokenizer)), files_(std::move(files)) {}

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
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  void save(const std::string& folder) const override {
    tokenizer_->save(folder);
    for (const auto& [name, bytes] : files_) write_file_atomically(path_join(folder, name), bytes);
  }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  Files files_;
};

/// tokenizer_config.json with every template of the folder as a list of names and templates, which replaces the files
/// of more_templates: a checkpoint has no subfolders.
std::optional<std::string> config_with_templates(const std::string& folder) {
  const std::string more = path_join(folder, more_templates), file = path_join(folder, config_file);
  const std::string usual = path_join(folder, template_file);
  if (!is_directory(more)) return std::nullopt;
  Value config = path_exists(file) ? read_json(file) : Value::make_object();
  std::vector<Value> templates;
  const auto add = [&](const std::string& name, Value source) {
    templates.push_back(Value::make_object({{"name", Value::of(name)}, {"template", std::move(source)}}));
  };
  const Value* const given = config.find("chat_template");
  if (path_exists(usual))
    add("default", Value::of(read_file(usual)));
  else if (given != nullptr && given->is_string())
    add("default", *given);
  for (const std::string& name : list_folder(more))
    if (name.ends_with(".jinja")) add(name.substr(0, name.size() - 6), Value::of(read_file(path_join(more, name))));
  if (templates.empty()) return std::nullopt;
  config.set("chat_template", Value::make_array(std::move(templates)));
  return dump_json(config) + "\n";
}

/// The files of a tokenizer's folder that its own save() does not write, or writes differently.
Files files_around(const std::string& folder, bool with_templates) {
  Files files;
  const auto config = with_templates ? config_with_templates(folder) : std::nullopt;
  if (config) files.emplace(config_file, *config);
  for (const std::string& name : list_folder(folder)) {
    const bool left_out = name.starts_with("chat_template.") && (!with_templates || (config && name == template_file));
    const std::string path = path_join(folder, name);
    if (is_tokenizer_file(name) && !is_saved_by_all(name) && !left_out && !is_directory(path))
      files.emplace(name, read_file(path));
  }
  return files;
}

}  // namespace

std::shared_ptr<const Tokenizer> with_companion_files(std::shared_ptr<const Tokenizer> tokenizer,
                                                      const std::string& place, const std::string& given) {
  const std::string folder = is_directory(place) ? place : std::filesystem::path(place).parent_path().string();
  Files files;
  if (place != "byte" && path_exists(place)) files = files_around(folder.empty() ? "." : folder, given.empty());
  if (!given.empty()) files[template_file] = read_chat_template(given).text;
  if (files.empty()) return tokenizer;
  return std::make_shared<const AccompaniedTokenizer>(std::move(tokenizer), std::move(files));
}

const Tokenizer& without_companion_files(const Tokenizer& tokenizer) {
  const auto* const accompanied = dynamic_cast<const AccompaniedTokenizer*>(&tokenizer);
  return accompanied == nullptr ? tokenizer : accompanied->tokenizer();
}

}  // namespace tessera::text
