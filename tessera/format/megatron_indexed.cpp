#include <tessera/base/byte_cursor.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/format/megatron_indexed.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace tessera::format {
namespace {

constexpr char magic[9] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'};

/// Bytes of an integer dtype code; 0 if the code is not an integer type.
int integer_bytes(int code) {
  switch (code) {
    case 1:
    case 2:
      return 1;
    case 3:
    case 8:
      return 2;
    case 4:
      return 4;
    case 5:
      return 8;
    default:
      return 0;
  }
}

std::string prefix_of(const std::string& path) {
  return path.ends_with(".bin") || path.ends_with(".idx") ? path.substr(0, path.size() - 4) : path;
}

/// Reads the fields of an index, in order.
class Fields {
 public:
  Fields(std::span<const std::byte> bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  template <class T>
  T take(const char* what) {
    return bytes_.number<T>([&] { truncated(1, sizeof(T), what); });
  }
  /// Reads `count` elements of T, checked against the remaining bytes without overflow. They may be unaligned, so they
  /// are copied.
  template <class T>
  std::vector<T> take_many(std::uint64_t count, const char* what) {
    if (count > bytes_.left() / sizeof(T)) truncated(count, sizeof(T), what);
    std::vector<T> values(count);
    const auto part = bytes_.take(count * sizeof(T), [&] { truncated(count, sizeof(T), what); });
    if (count > 0) std::memcpy(values.data(), part.data(), part.size());
    return values;
  }

 private:
  [[noreturn]] void truncated(std::uint64_t count, std::size_t width, const char* what) const {
    throw InputError(concat(path_, ": truncated: ", what, " (", count, " of ", width, " bytes) at offset ",
                            bytes_.position(), " do not fit into the ", bytes_.left(), " bytes left"));
  }

  ByteCursor bytes_;
  const std::string& path_;
};

template <class T>
void widen(const std::byte* from, std::span<std::int64_t> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, from + i * sizeof(T), sizeof(T));
    out[i] = static_cast<std::int64_t>(value);
  }
}

}  // namespace

struct IndexedDataset::State {
  MappedFile bin;
  int code = 0, width = 0;
  std::vector<std::int64_t> offsets;    ///< bytes in .bin, per sequence
  std::vector<std::int64_t> begins;     ///< position in the stream, per sequence, and the total at the end
  std::vector<std::int64_t> documents;  ///< first sequence of each document, and the number of sequences at the end
};

IndexedDataset::IndexedDataset(const std::string& prefix_or_path) {
  const std::string prefix = prefix_of(prefix_or_path), idx_path = prefix + ".idx", bin_path = prefix + ".bin";
  for (const std::string& path : {bin_path, idx_path})
    if (!path_exists(path))
      throw InputError(
          concat("'", path, "' does not exist; an indexed dataset needs both ", prefix, ".bin and ", prefix, ".idx"));
  auto state = std::make_unique<State>();
  state->bin = MappedFile(bin_path);
  const MappedFile idx(idx_path);
  Fields fields(idx.bytes(), idx_path);

  const auto found = fields.take<std::array<char, 9>>("the magic");
  if (std::memcmp(found.data(), magic, sizeof magic) != 0)
    throw InputError(concat(idx_path, ": not a Megatron index (it does not begin with MMIDIDX)"));
  if (const auto version = fields.take<std::uint64_t>("the version"); version != 1)
    throw InputError(concat(idx_path, ": version ", version, "; only version 1 is known"));
  state->code = fields.take<std::uint8_t>("the dtype code");
  state->width = integer_bytes(state->code);
  if (state->width == 0)
    throw InputError(
        concat(idx_path, ": dtype code ", state->code, " is not an integer type (1-5, 8), which tokens need"));
  const auto sequences = fields.take<std::uint64_t>("the number of sequences"),
             documents = fields.take<std::uint64_t>("the number of documents");
  const auto lengths = fields.take_many<std::int32_t>(sequences, "sequence lengths");
  state->offsets = fields.take_many<std::int64_t>(sequences, "sequence offsets");
  state->documents = fields.take_many<std::int64_t>(documents, "document indices");

  const auto bin_size = static_cast<std::int64_t>(state->bin.bytes().size());
  state->begins.resize(sequences + 1, 0);
  for (std::uint64_t i = 0; i < sequences; ++i) {
    const std::int64_t length = lengths[i], offset = state->offsets[i];
    if (length < 0) throw InputError(concat(idx_path, ": sequence ", i, " has length ", length));
    // length is at most 2^31 and width at most 8, so the product cannot overflow
    if (offset < 0 || offset > bin_size || length * state->width > bin_size - offset)
      throw InputError(concat(idx_path, ": sequence ", i, " is bytes [", offset, ", ", offset, " + ", length, " x ",
                              state->width, ") of ", bin_path, ", which has ", bin_size));
    state->begins[i + 1] = state->begins[i] + length;
  }
  for (std::uint64_t d = 0; d < documents; ++d) {
    const std::int64_t first = state->documents[d], before = d == 0 ? 0 : state->documents[d - 1];
    if (first < before || first > static_cast<std::int64_t>(sequences))
      throw InputError(concat(idx_path, ": document ", d, " begins at sequence ", first, "; expected ", before, " to ",
                              sequences, ", ascending"));
  }
  // Megatron's index ends with the number of sequences; without it, the last document extends to the end.
  if (state->documents.empty() || state->documents.back() != static_cast<std::int64_t>(sequences))
    state->documents.push_back(static_cast<std::int64_t>(sequences));
  state_ = std::move(state);
}

IndexedDataset::~IndexedDataset() = default;
IndexedDataset::IndexedDataset(IndexedDataset&&) noexcept = default;
IndexedDataset& IndexedDataset::operator=(IndexedDataset&&) noexcept = default;

std::int64_t IndexedDataset::token_count() const { return state_->begins.back(); }
int IndexedDataset::bytes_per_token() const { return state_->width; }
std::int64_t IndexedDataset::sequence_count() const { return static_cast<std::int64_t>(state_->offsets.size()); }
std::int64_t IndexedDataset::document_count() const { return static_cast<std::int64_t>(state_->documents.size()) - 1; }
std::int64_t IndexedDataset::sequence_begin(std::int64_t i) const {
  return state_->begins.at(static_cast<std::size_t>(i));
}
std::int64_t IndexedDataset::sequence_length(std::int64_t i) const { return sequence_begin(i + 1) - sequence_begin(i); }
std::int64_t IndexedDataset::document_begin(std::int64_t d) const {
  return state_->documents.at(static_cast<std::size_t>(d));
}

void IndexedDataset::read(std::int64_t begin, std::span<std::int64_t> out) const {
  const auto size = static_cast<std::int64_t>(out.size());
  TESSERA_CHECK(begin >= 0 && size <= token_count() && begin <= token_count() - size, "tokens [", begin, ", ", begin,
                " + ", size, ") of ", token_count());
  const auto& begins = state_->begins;
  auto sequence = static_cast<std::size_t>(std::upper_bound(begins.begin(), begins.end(), begin) - begins.begin()) - 1;
  for (std::size_t done = 0; done < out.size(); ++sequence) {
    const std::int64_t at = begin + static_cast<std::int64_t>(done), inside = at - begins[sequence];
    const auto count =
        static_cast<std::size_t>(std::min(begins[sequence + 1] - at, size - static_cast<std::int64_t>(done)));
    const std::byte* from = state_->bin.bytes().data() + state_->offsets[sequence] + inside * state_->width;
    const auto part = out.subspan(done, count);
    switch (state_->code) {
      case 1:
        widen<std::uint8_t>(from, part);
        break;
      case 2:
        widen<std::int8_t>(from, part);
        break;
      case 3:
        widen<std::int16_t>(from, part);
        break;
      case 4:
        widen<std::int32_t>(from, part);
        break;
      case 5:
        widen<std::int64_t>(from, part);
        break;
      default:
        widen<std::uint16_t>(from, part);
        break;
    }
    done += count;
  }
}

}  // namespace tessera::format
