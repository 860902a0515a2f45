#pragma once
/// \file
/// A file of tokens. Its sections, in order: the tokens, uint16 or int32; the start of each record, int64, in tokens of
/// this file; for examples, one bit per token: whether it is scored; and a footer of fixed size with the counts and its
/// own checksum. Every section begins at a multiple of 8. Little-endian.

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
  int width = 2;        ///< bytes per token: 2 (ids below 65536) or 4
  bool marked = false;  ///< one bit per token is stored: whether it is scored
};

/// Writes one file. Tokens are written as they arrive; the rest is kept in memory until finish(). Use from one thread
/// at a time.
class ShardWriter {
 public:
  /// Replaces the file. Throws Error.
  ShardWriter(const std::string& path, ShardForm form);

  /// Starts a new record at the next token.
  void begin_record();
  /// Adds tokens. `scored` empty: all are scored, or the form has no marks. Throws Error when the disk is full; ids
  /// must fit the width.
  void add(std::span<const std::int32_t> ids, const std::vector<bool>& scored = {});
  std::uint64_t tokens() const { return tokens_; }
  std::uint64_t records() const { return begins_.size(); }
  /// Bytes in memory that finish() will write.
  std::uint64_t kept() const { return begins_.size() * 8 + marks_.size(); }

  /// Writes the rest, without syncing to disk. Returns size and checksums of the file.
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

/// A mapped token file. Pages are released after reading, so a process's memory does not grow with the amount it has
/// read. Immutable: any number of threads.
class Shard {
 public:
  /// Maps the file and checks counts, sizes and the footer's checksum (but not the tokens' checksum). Throws
  /// InputError.
  explicit Shard(const std::string& path);

  std::uint64_t tokens() const { return tokens_; }
  std::uint64_t records() const { return records_; }
  const ShardForm& form() const { return form_; }
  /// Appends tokens [begin, begin + count).
  void read(std::uint64_t begin, std::uint64_t count, std::vector<std::int64_t>& out) const;
  /// Appends whether each of these tokens is scored.
  void read_marks(std::uint64_t begin, std::uint64_t count, std::vector<bool>& out) const;
  /// Position of the first token of record i; the number of tokens for i == records().
  std::uint64_t record_begin(std::uint64_t i) const;
  /// The first record that begins at or after a token.
  std::uint64_t first_record_from(std::uint64_t token) const;
  /// Releases the pages that were read. Call it after each use, so that a process's memory does not grow with the data.
  void forget() const;

 private:
  const std::byte* section(std::uint64_t offset) const { return file_.bytes().data() + offset; }

  MappedFile file_;
  ShardForm form_;
  std::uint64_t tokens_ = 0, records_ = 0;
  std::uint64_t begins_at_ = 0, marks_at_ = 0;  // offsets of sections
};

}  // namespace tessera::corpus
