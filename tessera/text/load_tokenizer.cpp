#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/text/bpe/bpe_files.h>
#include <tessera/text/byte_tokenizer.h>
#include <tessera/text/sentencepiece/model_json.h>
#include <tessera/text/tokenizer_files.h>
#include <tessera/text/tokenizer_json.h>
#include <tessera/text/wordpiece/wordpiece_json.h>

#include <algorithm>
#include <array>
#include <filesystem>

namespace tessera::text {
namespace {

constexpr std::uint64_t most_bytes = 256u << 20;
/// The files searched for in a folder, in this order.
constexpr std::array<const char*, 5> file_names{"tokenizer.json", "tokenizer.model", "spiece.model",
                                                "sentencepiece.bpe.model", "vocab.txt"};

/// The tokenizer file of a folder (for vocab.json with merges.txt, the former); "": none.
std::string find_file(const std::string& folder) {
  for (const char* name : file_names)
    if (std::string path = path_join(folder, name); path_exists(path)) return path;
  if (path_exists(path_join(folder, "vocab.json")) && path_exists(path_join(folder, "merges.txt")))
    return path_join(folder, "vocab.json");
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".tiktoken") return entry.path().string();
  return "";
}

std::string file_of_folder(const std::string& folder) {
  if (std::string path = find_file(folder); !path.empty()) return path;
  throw InputError(concat("the folder '", folder,
                          "' has no tokenizer; expected one of tokenizer.json, tokenizer.model, spiece.model, "
                          "sentencepiece.bpe.model, vocab.txt, vocab.json with merges.txt, *.tiktoken"));
}

/// The tokenizer.json that is equivalent to any of these files.
std::string json_of(std::string bytes, const std::string& path, const std::string& config_json,
                    const std::string& config_path) {
  if (path.ends_with(".txt")) return tokenizer_json_of_vocabulary(bytes, path, config_json, config_path);
  const auto config = [&] { return config_json.empty() ? Value() : parse_json(config_json, config_path); };
  const std::string name = std::filesystem::path(path).filename().string();
  const std::string folder = std::filesystem::path(path).parent_path().string();
  if (name == "vocab.json") {
    const std::string merges = path_join(folder, "merges.txt");
    return dump_json(tokenizer_json_of_merges(parse_json(bytes, path), read_file(merges, most_bytes), config(), folder),
                     -1);
  }
  if (!path.ends_with(".model") && !path.ends_with(".tiktoken")) return bytes;
  // Llama 3's tokenizer.model is in tiktoken's format
  const Value tree = looks_like_tiktoken(bytes)
                         ? tokenizer_json_of_tiktoken(bytes, config(), path)
                         : tokenizer_json_of(read_sentencepiece_model(bytes, path), config(), path);
  log::info(path, " is converted to a tokenizer.json, which is saved with models");
  return dump_json(tree, -1);
}

}  // namespace

bool holds_tokenizer(const std::string& folder) { return is_directory(folder) && !find_file(folder).empty(); }

bool is_saved_by_all(std::string_view name) { return name == "tokenizer.json" || name == "tokenizer_config.json"; }

bool is_tokenizer_file(std::string_view name) {
  static constexpr std::array<std::string_view, 8> others{
      "special_tokens_map.json", "added_tokens.json",     "vocab.json", "merges.txt", "chat_template.jinja",
      "chat_template.json",      "processor_config.json", "tekken.json"};
  const bool of_its_code = name.starts_with("tokenization_") && name.ends_with(".py");
  return is_saved_by_all(name) || of_its_code || name.ends_with(".tiktoken") ||
         std::find(file_names.begin(), file_names.end(), name) != file_names.end() ||
         std::find(others.begin(), others.end(), name) != others.end();
}

std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& name_or_path) {
  if (name_or_path == "byte") return make_byte_tokenizer();
  const std::string path = is_directory(name_or_path) ? file_of_folder(name_or_path) : name_or_path;
  if (!path_exists(path))
    throw InputError(
        concat("the tokenizer '", name_or_path,
               "' does not exist: expected a folder with tokenizer.json or another tokenizer's files, one such "
               "file, or the word byte"));
  const std::string config_path =
      path_join(std::filesystem::path(path).parent_path().string(), "tokenizer_config.json");
  const std::string config = path_exists(config_path) ? read_file(config_path, most_bytes) : "";
  return parse_tokenizer_json(json_of(read_file(path, most_bytes), path, config, config_path), path, config);
}

}  // namespace tessera::text
