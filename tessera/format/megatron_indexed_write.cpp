#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/format/megatron_indexed.h>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace tessera::format {

struct IndexedWriter::State {
  std::string prefix, temporary;
  std::int64_t vocab_size = 0;
  int fd = -1;
  bool narrow = false;  ///< tokens are uint16 instead of int32
  std::vector<std::byte> buffer;
  std::vector<std::int32_t> lengths;
  std::vector<std::int64_t> documents = {0};
  std::int64_t tokens = 0;

  void flush() {
    write_all(fd, buffer, temporary);
    buffer.clear();
  }
};

IndexedWriter::IndexedWriter(const std::string& prefix, std::int64_t vocab_size) : state_(std::make_unique<State>()) {
  state_->prefix = prefix;
  state_->temporary = concat(prefix, ".bin.tmp.", ::getpid());
  state_->vocab_size = vocab_size;
  state_->narrow = vocab_size < 65500;  // megatron-core, DType.optimal_dtype
  state_->fd = ::open(state_->temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (state_->fd < 0) throw Error(concat("cannot create '", state_->temporary, "': ", std::strerror(errno)));
}

IndexedWriter::~IndexedWriter() {
  if (state_->fd < 0) return;
  ::close(state_->fd);
  ::unlink(state_->temporary.c_str());
}

void IndexedWriter::add_sequence(std::span<const std::int32_t> tokens) {
  if (tokens.size() > INT32_MAX)
    throw InputError(
        concat(state_->prefix, ": a sequence of ", tokens.size(), " tokens; the format allows at most 2^31 - 1"));
  const std::size_t width = state_->narrow ? 2 : 4, old = state_->buffer.size();
  state_->buffer.resize(old + tokens.size() * width);
  std::byte* out = state_->buffer.data() + old;
  for (const std::int32_t token : tokens) {
    if (token < 0 || token >= state_->vocab_size)
      throw InputError(concat(state_->prefix, ": token ", token, " is outside the vocabulary of ", state_->vocab_size));
    const auto narrow = static_cast<std::uint16_t>(token);
    std::memcpy(out, state_->narrow ? static_cast<const void*>(&narrow) : &token, width);
    out += width;
  }
  state_->lengths.push_back(static_cast<std::int32_t>(tokens.size()));
  state_->tokens += static_cast<std::int64_t>(tokens.size());
  if (state_->buffer.size() > (std::size_t{4} << 20)) state_->flush();
}

void IndexedWriter::end_document() { state_->documents.push_back(static_cast<std::int64_t>(state_->lengths.size())); }

void IndexedWriter::finish() {
  State& s = *state_;
  s.flush();
  if (::fsync(s.fd) != 0 || ::close(s.fd) != 0)
    throw Error(concat("cannot finish '", s.temporary, "': ", std::strerror(errno)));
  s.fd = -1;
  const std::string bin = s.prefix + ".bin";
  if (::rename(s.temporary.c_str(), bin.c_str()) != 0)
    throw Error(concat("cannot rename '", s.temporary, "' to '", bin, "': ", std::strerror(errno)));

  std::string index("MMIDIDX\0\0", 9);
  const auto append = [&](const auto value) { index.append(reinterpret_cast<const char*>(&value), sizeof value); };
  append(std::uint64_t{1});
  append(static_cast<std::uint8_t>(s.narrow ? 8 : 4));
  append(static_cast<std::uint64_t>(s.lengths.size()));
  append(static_cast<std::uint64_t>(s.documents.size()));
  for (const std::int32_t length : s.lengths) append(length);
  std::int64_t offset = 0;
  for (const std::int32_t length : s.lengths) {
    append(offset);
    offset += std::int64_t{length} * (s.narrow ? 2 : 4);
  }
  for (const std::int64_t document : s.documents) append(document);
  write_file_atomically(s.prefix + ".idx", index);
}

std::int64_t IndexedWriter::token_count() const { return state_->tokens; }
std::int64_t IndexedWriter::document_count() const { return static_cast<std::int64_t>(state_->documents.size()) - 1; }

}  // namespace tessera::format
