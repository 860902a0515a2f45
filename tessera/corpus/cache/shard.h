#pragma once
/// \file
/// A file of tokens. In order: the tokens, uint16 or int32; where each record begins, int64 counted in tokens of this
/// file; for examples a bit per token that says whether it is scored; and at the end a fixed number of bytes with the
/// counts and a checksum of themselves. Every section begins at a multiple of 8. Little-endian.

#include <tessera/base/file.h>
#include <tessera/corpus/cache/descriptor.h>
#include <tessera/format/manifest/crc32c.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tessera::corpus {

struct ShardForm {
  int width = 2;        ///< bytes of a token: 2 (ids below 65536) or 4
  bool marked = false;  ///< has a bit per token
};

/// Writes one file; tokens go to the disk as they come, the rest is kept until finish(). One thread at a time.
class ShardWriter {
 public:
  /// Replaces the file. Throws Error.
  ShardWriter(const std::string& path, ShardForm form);

  /// The next token begins a record.
  void begin_record();
  /// `scored` empty: all are, or the form has no marks. Throws Error when the disk is full; ids must fit the width.
  void add(std::span<const std::int32_t> ids, const std::vector<bool>& scored = {});
  std::uint64_t tokens() const { return tokens_; }
  std::uint64_t records() const { return begins_.size(); }
  /// Bytes in memory that only finish() will write.
  std::uint64_t kept() const { return begins_.size() * 8 + marks_.size(); }

  /// Writes the rest, without waiting for the disk. Returns size and checksums of the file.
  format::Digest finish() &&;

 private:
  void write(std::span<const std::byte> bytes);
  void flush();
  void align();

  std::string path_;
  Descriptor file_;
  ShardForm form_;
  std::vector<std::byte> buffer_;
  std::vector<std::int64_t> begins_;
  std::vector<std::uint8_t> marks_;
  std::uint64_t tokens_ = 0, written_ = 0;
  format::DigestBuilder digest_;
};

/// One such file, mapped. Reading leaves its pages to the system, so that what a process holds does not grow with what
/// it has read. Immutable: any number of threads.
class Shard {
 public:
  /// Maps and checks counts, sizes and the checksum of the end (not of the tokens). Throws InputError.
  explicit Shard(const std::string& path);

  std::uint64_t tokens() const { return tokens_; }
  std::uint64_t records() const { return records_; }
  const ShardForm& form() const { return form_; }
  /// Appends tokens [begin, begin + count).
  void read(std::uint64_t begin, std::uint64_t count, std::vector<std::int64_t>& out) const;
  /// Appends whether each of them is scored.
  void read_marks(std::uint64_t begin, std::uint64_t count, std::vector<bool>& out) const;
  /// Where record i begins; the number of tokens for i == records().
  std::uint64_t record_begin(std::uint64_t i) const;
  /// The first record that begins at or behind a token.
  std::uint64_t first_record_from(std::uint64_t token) const;
  /// Gives the pages that were read back to the system: to be called after each use, so that the memory of a process
  /// does not grow with the data.
  void forget() const;

 private:
  const std::byte* section(std::uint64_t offset) const { return file_.bytes().data() + offset; }

  MappedFile file_;
  ShardForm form_;
  std::uint64_t tokens_ = 0, records_ = 0;
  std::uint64_t begins_at_ = 0, marks_at_ = 0;  // offsets of sections
};

}  // namespace tessera::corpus
