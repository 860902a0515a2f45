#include <tessera/checkpoint/weights_glance.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/corpus/cache/content_hash.h>

namespace tessera::checkpoint {
namespace {

constexpr std::uint64_t glance_pieces = 64, glance_piece = 4096, glance_whole = 1 << 20;
constexpr std::size_t glance_digits = 16;

/// An optimizer's states do not change the model.
bool changes_model(std::string_view name) {
  return !name.starts_with("optimizer") &&
         (name.ends_with(".safetensors") || name.ends_with(".bin") || name.ends_with(".gguf") || name == "config.json");
}

/// The sampled bytes of a file with `bytes` bytes.
std::string glance(const std::string& path, std::uint64_t bytes) {
  std::ifstream file(path, std::ios::binary);
  const auto read = [&](std::uint64_t at, std::uint64_t count) {
    std::string piece(count, '\0');
    file.seekg(static_cast<std::streamoff>(at));
    file.read(piece.data(), static_cast<std::streamsize>(count));
    if (!file) throw InputError(concat("cannot read '", path, "' (", count, " bytes at ", at, " of ", bytes, ")"));
    return piece;
  };
  if (bytes <= glance_whole) return read(0, bytes);
  const std::uint64_t distance = (bytes - glance_piece) / (glance_pieces - 1);
  std::string pieces;
  for (std::uint64_t i = 0; i + 1 < glance_pieces; ++i) pieces += read(i * distance, glance_piece);
  return pieces + read(bytes - glance_piece, glance_piece);
}

}  // namespace

std::string describe_weights(const std::string& place) {
  if (!path_exists(place)) return "";
  std::vector<std::string> names;
  const bool folder = is_directory(place);
  if (folder)
    for (const std::string& name : list_folder(place))
      if (changes_model(name) && !is_directory(path_join(place, name))) names.push_back(name);
  if (!folder) names.push_back("");
  std::string all;
  std::uint64_t sum = 0;
  for (const std::string& name : names) {
    const std::string path = folder ? path_join(place, name) : place;
    std::error_code error;
    const std::uint64_t bytes = std::filesystem::file_size(path, error);
    if (error) return "";  // a dangling link: the code that needs the file reports it
    sum += bytes;
    all += concat(name, "\n", bytes, "\n", corpus::hash_of(glance(path, bytes)).hex(), "\n");
  }
  return concat(names.size(), names.size() == 1 ? " file, " : " files, ", sum, " bytes, contents ",
                corpus::hash_of(all).hex().substr(0, glance_digits));
}

}  // namespace tessera::checkpoint
