// libFuzzer entry for checkpoints of DeepSpeed's ZeRO: any files in the folder give weights with as many bytes as their
// shapes require and no more than the files can hold, or InputError.
//
// An input is a folder: a byte (odd: every tied weight is written), then files, each after the mark: its name, a line
// feed, the number of storages, the size of each (a byte, in units of 4 bytes), the pickle. The surrounding archive and
// the numbers in the storages are generated here: torch_file_fuzz covers archives, and nothing depends on a weight's
// value. A file with only a name repeats the file before it, because the ranks' descriptions are often alike.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/format/deepspeed/deepspeed_checkpoint.h>
#include <tessera/format/manifest/manifest.h>
#include <tessera/format/torch/zip.h>

namespace {

using namespace tessera;

constexpr std::string_view mark = "\xff\xfe==";
constexpr std::size_t most_files = 8, most_storages = 16;
constexpr const char* folder_path = "fuzzed";

/// Contents by path.
using Files = std::map<std::string, std::shared_ptr<const std::string>>;

// ---- archives as torch.save writes them ----

/// Appends little-endian numbers, each of the given number of bytes.
void put(std::string& out, std::initializer_list<std::pair<std::size_t, int>> numbers) {
  for (auto [value, bytes] : numbers)
    for (; bytes > 0; --bytes, value >>= 8) out += static_cast<char>(value & 255);
}

/// An uncompressed ZIP archive under construction.
struct Archive {
  std::string entries, directory;
  std::size_t count = 0;

  void add(const std::string& name, std::string_view bytes) {
    const std::size_t begin = entries.size(), crc = format::crc32(std::as_bytes(std::span(bytes)));
    put(entries,
        {{0x04034b50, 4}, {20, 2}, {0, 8}, {crc, 4}, {bytes.size(), 4}, {bytes.size(), 4}, {name.size(), 2}, {0, 2}});
    entries += name;
    entries += bytes;
    put(directory,
        {{0x02014b50, 4}, {20, 2}, {20, 2}, {0, 8}, {crc, 4}, {bytes.size(), 4}, {bytes.size(), 4}, {name.size(), 2}});
    put(directory, {{0, 8}, {0, 4}, {begin, 4}});
    directory += name;
    ++count;
  }
  std::string whole() const {
    std::string out = entries + directory;
    put(out, {{0x06054b50, 4}, {0, 4}, {count, 2}, {count, 2}, {directory.size(), 4}, {entries.size(), 4}, {0, 2}});
    return out;
  }
};

/// `description`: sizes of storages and a pickle.
std::string torch_file(std::string_view description) {
  const std::size_t said = static_cast<unsigned char>(description[0]) % (most_storages + 1);
  const std::size_t storages = std::min(said, description.size() - 1);
  Archive archive;
  archive.add("a/data.pkl", description.substr(1 + storages));
  for (std::size_t i = 0; i < storages; ++i)
    archive.add(concat("a/data/", i),
                std::string(4 * static_cast<unsigned char>(description[1 + i]), static_cast<char>(i + 1)));
  return archive.whole();
}

// ---- the folder ----

Files read_files(std::string_view text) {
  Files files;
  std::shared_ptr<const std::string> last;
  for (std::size_t at = text.find(mark); at != std::string_view::npos && files.size() < most_files;) {
    text.remove_prefix(at + mark.size());
    at = text.find(mark);
    const std::string_view file = text.substr(0, at);
    const std::size_t line = std::min(file.find('\n'), file.size());
    const std::string name(file.substr(0, line));
    if (!format::is_plain_file_name(name)) continue;  // not a valid file name
    if (line + 1 < file.size()) last = std::make_shared<const std::string>(torch_file(file.substr(line + 1)));
    if (last != nullptr) files[name] = last;
  }
  return files;
}

std::shared_ptr<format::deepspeed::StateFile> open(const Files& files, const std::string& path) {
  const auto file = files.find(path.substr(std::string_view(folder_path).size() + 1));
  if (file == files.end()) std::abort();  // only listed files may be opened
  return std::make_shared<format::deepspeed::StateFile>(path, std::as_bytes(std::span(*file->second)));
}

// ---- guarantees ----

std::uint64_t bytes_of(const format::TensorSource& tensor) {
  std::uint64_t bytes = format::dtype_size(tensor.dtype);
  for (const std::int64_t n : tensor.shape) bytes *= static_cast<std::uint64_t>(n);
  return bytes;
}

/// `stored`: bytes of all files. Buffers in half precision are widened.
void check(const format::TorchWeights& weights, std::uint64_t stored, bool keep_tied) {
  std::set<std::string_view> names;
  std::uint64_t bytes = 0;
  for (const format::TensorSource& tensor : weights.tensors) {
    if (!names.insert(tensor.name).second) std::abort();
    if (std::any_of(tensor.shape.begin(), tensor.shape.end(), [](std::int64_t n) { return n < 0; })) std::abort();
    const auto span = tensor.bytes();
    if (span.size() != bytes_of(tensor) || span.size() > 2 * stored) std::abort();
    std::uint64_t sum = 0;  // reads every byte
    for (const std::byte byte : span) sum += static_cast<std::uint64_t>(byte);
    if (sum > span.size() * 255) std::abort();
    bytes += span.size();
  }
  if (bytes != weights.bytes) std::abort();
  if (keep_tied && !weights.tied.empty()) std::abort();
  for (const auto& [name, source] : weights.tied)
    if (names.contains(name) || !names.contains(source)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const bool keep_tied = data[0] & 1;
  const Files files = read_files({reinterpret_cast<const char*>(data) + 1, size - 1});
  std::vector<std::string> names;
  std::uint64_t stored = 0;
  for (const auto& [name, contents] : files) {
    names.push_back(name);
    stored += contents->size();
  }
  try {
    const auto folder = format::deepspeed::sort_states(folder_path, names);
    const auto opened = [&files](const std::string& path) { return open(files, path); };
    check(format::read_deepspeed_checkpoint(folder, opened, keep_tied), stored, keep_tied);
  } catch (const InputError&) {
  }
  return 0;
}
