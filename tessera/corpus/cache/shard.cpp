#include <tessera/corpus/cache/shard.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <tessera/base/error.h>

namespace tessera::corpus {
namespace {

constexpr std::array<char, 8> magic = {'T', 'E', 'S', 'T', 'O', 'K', 'N', '1'};
constexpr std::size_t buffered = 1 << 20;

struct Footer {
  std::array<char, 8> magic = {};
  std::uint32_t width = 0, marked = 0;
  std::uint64_t tokens = 0, records = 0;
  std::uint32_t unused = 0, crc = 0;  // crc covers the bytes before it
};
static_assert(sizeof(Footer) == 40);

std::uint32_t checksum(const Footer& footer) {
  return format::crc32c(std::as_bytes(std::span(&footer, 1)).first(offsetof(Footer, crc)));
}

constexpr std::uint64_t aligned(std::uint64_t bytes) { return (bytes + 7) / 8 * 8; }

}  // namespace

ShardWriter::ShardWriter(const std::string& path, ShardForm form) : path_(path), form_(form) {
  TESSERA_CHECK(form.width == 2 || form.width == 4, "tokens of ", form.width, " bytes");
  file_ = Descriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (file_.get() < 0) throw Error(concat("cannot create '", path, "': ", std::strerror(errno)));
  buffer_.reserve(buffered);
}

void ShardWriter::begin_record() { begins_.push_back(static_cast<std::int64_t>(tokens_)); }

void ShardWriter::add(std::span<const std::int32_t> ids, const std::vector<bool>& scored) {
  TESSERA_CHECK(scored.empty() || scored.size() == ids.size(), ids.size(), " ids, ", scored.size(), " marks");
  const auto width = static_cast<std::size_t>(form_.width), old = buffer_.size();
  buffer_.resize(old + ids.size() * width);
  std::uint32_t all = 0;  // all ids or-ed together: negative ones set the highest bit
  std::byte* to = buffer_.data() + old;
  for (const std::int32_t id : ids) {
    all |= static_cast<std::uint32_t>(id);
    std::memcpy(to, &id, width);  // little-endian: the low bytes come first
    to += width;
  }
  TESSERA_CHECK(all <= (width == 4 ? 0x7FFFFFFFu : 0xFFFFu), "a token that does not fit ", width, " bytes");
  if (form_.marked) {
    marks_.resize((tokens_ + ids.size() + 7) / 8);
    for (std::size_t i = 0; i < ids.size(); ++i)
      if (scored.empty() || scored[i])
        marks_[(tokens_ + i) / 8] |= static_cast<std::uint8_t>(1u << ((tokens_ + i) % 8));
  }
  tokens_ += ids.size();
  if (buffer_.size() >= buffered) flush();
}

void ShardWriter::write(std::span<const std::byte> bytes) {
  write_all(file_.get(), bytes, path_);
  digest_.update(bytes);
  written_ += bytes.size();
}

void ShardWriter::flush() {
  write(buffer_);
  buffer_.clear();
}

void ShardWriter::align() {
  constexpr std::array<std::byte, 8> zeros = {};
  write(std::span(zeros).first(aligned(written_) - written_));
}

format::Digest ShardWriter::finish() && {
  flush();
  align();
  write(std::as_bytes(std::span(begins_)));
  write(std::as_bytes(std::span(marks_)));
  align();
  Footer footer{magic, static_cast<std::uint32_t>(form_.width), form_.marked ? 1u : 0u, tokens_, begins_.size(), 0, 0};
  footer.crc = checksum(footer);
  write(std::as_bytes(std::span(&footer, 1)));
  return std::move(digest_).finish();
}

Shard::Shard(const std::string& path) : file_(path) {
  const std::uint64_t size = file_.bytes().size();
  Footer footer;
  if (size < sizeof footer) throw InputError(concat(path, ": has ", size, " bytes: not a token file"));
  std::memcpy(&footer, section(size - sizeof footer), sizeof footer);
  if (footer.magic != magic || footer.crc != checksum(footer))
    throw InputError(concat(path, ": does not have the footer of a token file: it is damaged"));
  const bool possible =
      (footer.width == 2 || footer.width == 4) && footer.marked <= 1 && footer.tokens <= size && footer.records <= size;
  form_ = {static_cast<int>(footer.width), footer.marked == 1};
  tokens_ = footer.tokens;
  records_ = footer.records;
  begins_at_ = aligned(tokens_ * footer.width);
  marks_at_ = begins_at_ + records_ * 8;
  const std::uint64_t end = aligned(marks_at_ + (form_.marked ? (tokens_ + 7) / 8 : 0));
  if (!possible || end + sizeof footer != size)
    throw InputError(concat(path, ": has ", size, " bytes, which does not match ", footer.tokens, " tokens and ",
                            footer.records, " records: it is damaged"));
  forget();
}

void Shard::read(std::uint64_t begin, std::uint64_t count, std::vector<std::int64_t>& out) const {
  TESSERA_CHECK(begin <= tokens_ && count <= tokens_ - begin, "tokens [", begin, ", ", begin + count, ") of ", tokens_);
  const std::size_t old = out.size();
  out.resize(old + count);
  const auto width = static_cast<std::uint64_t>(form_.width);
  if (width == 2) {
    const auto* from = reinterpret_cast<const std::uint16_t*>(section(begin * width));
    std::copy_n(from, count, out.begin() + static_cast<std::ptrdiff_t>(old));
  } else {
    const auto* from = reinterpret_cast<const std::int32_t*>(section(begin * width));
    std::copy_n(from, count, out.begin() + static_cast<std::ptrdiff_t>(old));
  }
}

void Shard::read_marks(std::uint64_t begin, std::uint64_t count, std::vector<bool>& out) const {
  TESSERA_CHECK(begin <= tokens_ && count <= tokens_ - begin, "marks [", begin, ", ", begin + count, ") of ", tokens_);
  if (!form_.marked) {
    out.insert(out.end(), count, true);
    return;
  }
  const auto* marks = reinterpret_cast<const std::uint8_t*>(section(marks_at_));
  for (std::uint64_t i = begin; i < begin + count; ++i) out.push_back((marks[i / 8] >> (i % 8) & 1) != 0);
}

std::uint64_t Shard::record_begin(std::uint64_t i) const {
  TESSERA_CHECK(i <= records_, "record ", i, " of ", records_);
  if (i == records_) return tokens_;
  std::int64_t begin;
  std::memcpy(&begin, section(begins_at_ + i * 8), sizeof begin);
  // checksums detect damage (tessera cache verify), but a damaged file must not cause invalid memory accesses here,
  // either
  if (begin < 0 || static_cast<std::uint64_t>(begin) > tokens_)
    throw InputError(concat(file_.path(), ": record ", i, " begins at token ", begin, " of ", tokens_,
                            ": it is damaged (tessera cache verify)"));
  return static_cast<std::uint64_t>(begin);
}

std::uint64_t Shard::first_record_from(std::uint64_t token) const {
  std::uint64_t low = 0, high = records_;
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (record_begin(middle) < token)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

void Shard::forget() const {
  // The whole mapping: around a page that is touched, Linux maps as much as it chooses, up to several megabytes with
  // large folios. This is only a hint: pages that leave this mapping stay in the page cache, for all processes.
  ::madvise(const_cast<std::byte*>(file_.bytes().data()), file_.bytes().size(), MADV_DONTNEED);
}

}  // namespace tessera::corpus
