#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/text/byte_tokenizer.h>
#include <tessera/text/tokenizer_json.h>

#include <filesystem>

namespace tessera::text {

std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& name_or_path) {
  if (name_or_path == "byte") return make_byte_tokenizer();
  std::string path = name_or_path;
  if (is_directory(path)) {
    path = path_join(path, "tokenizer.json");
    if (!path_exists(path))
      throw InputError(
          concat("the folder '", name_or_path,
                 "' has no tokenizer.json (slow tokenizers' vocab.json and merges.txt alone are not read; ",
                 "transformers writes tokenizer.json with save_pretrained of a fast tokenizer)"));
  }
  if (!path_exists(path))
    throw InputError(concat("the tokenizer '", name_or_path,
                            "' does not exist: expected a folder with tokenizer.json, such a file, or the word byte"));
  constexpr std::uint64_t most_bytes = 256u << 20;
  const std::string config = path_join(std::filesystem::path(path).parent_path().string(), "tokenizer_config.json");
  return parse_tokenizer_json(read_file(path, most_bytes), path,
                              path_exists(config) ? read_file(config, most_bytes) : "");
}

}  // namespace tessera::text
