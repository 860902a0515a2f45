#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/text/byte_tokenizer.h>
#include <tessera/text/tokenizer_json.h>
#include <tessera/text/wordpiece/wordpiece_json.h>

#include <filesystem>

namespace tessera::text {

std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& name_or_path) {
  if (name_or_path == "byte") return make_byte_tokenizer();
  constexpr std::uint64_t most_bytes = 256u << 20;
  const auto read_if_there = [&](const std::string& path) {
    return path_exists(path) ? read_file(path, most_bytes) : "";
  };
  std::string path = name_or_path;
  if (is_directory(path)) {
    path = path_join(name_or_path, "tokenizer.json");
    const std::string vocabulary = path_join(name_or_path, "vocab.txt");
    if (!path_exists(path) && path_exists(vocabulary)) path = vocabulary;
    if (!path_exists(path))
      throw InputError(concat(
          "the folder '", name_or_path,
          "' has no tokenizer.json and no vocab.txt (slow tokenizers' vocab.json and merges.txt alone are not read; ",
          "transformers writes tokenizer.json with save_pretrained of a fast tokenizer)"));
  }
  if (!path_exists(path))
    throw InputError(
        concat("the tokenizer '", name_or_path,
               "' does not exist: expected a folder with tokenizer.json or vocab.txt, such a file, or the word byte"));
  const std::string config_path =
      path_join(std::filesystem::path(path).parent_path().string(), "tokenizer_config.json");
  const std::string config = read_if_there(config_path);
  std::string json = read_file(path, most_bytes);
  if (path.ends_with(".txt")) json = tokenizer_json_of_vocabulary(json, path, config, config_path);
  return parse_tokenizer_json(std::move(json), path, config);
}

}  // namespace tessera::text
