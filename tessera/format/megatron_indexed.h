#pragma once
/// \file
/// Megatron's indexed datasets: PREFIX.bin contains the tokens of all documents one after another, PREFIX.idx the start
/// of each sequence. Layout of .idx (little-endian; Megatron-Core megatron/core/datasets/indexed_dataset.py):
///   9 bytes "MMIDIDX\0\0", u64 version = 1, u8 dtype code, u64 S = sequences, u64 D = document indices,
///   i32 length[S] (tokens), i64 offset[S] (bytes in .bin), i64 document[D] (index of the first sequence of each
///   document, then S), and for multimodal sets i8 mode[S] (read and ignored).
/// dtype codes: 1 uint8, 2 int8, 3 int16, 4 int32, 5 int64, 6 float64, 7 float32, 8 uint16. Tokens are integers: 6 and
/// 7 are refused.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::format {

/// Memory-mapped reader. The constructor checks every size and offset, so that read() cannot access memory outside the
/// files. Immutable: any number of threads may read.
class IndexedDataset {
 public:
  /// Opens PREFIX, PREFIX.bin or PREFIX.idx. Throws InputError naming the file, the rule and the numbers.
  explicit IndexedDataset(const std::string& prefix_or_path);
  ~IndexedDataset();
  IndexedDataset(IndexedDataset&&) noexcept;
  IndexedDataset& operator=(IndexedDataset&&) noexcept;

  std::int64_t token_count() const;  ///< tokens of the concatenated stream (all sequences in order)
  int bytes_per_token() const;       ///< 1, 2, 4 or 8
  std::int64_t sequence_count() const;
  std::int64_t document_count() const;
  /// Number of tokens of sequence i, and its start in the stream. For the start, i may equal sequence_count().
  std::int64_t sequence_length(std::int64_t i) const;
  std::int64_t sequence_begin(std::int64_t i) const;
  /// Index of the first sequence of document d; d = document_count() gives sequence_count().
  std::int64_t document_begin(std::int64_t d) const;

  /// Copies tokens [begin, begin + out.size()) of the concatenated stream. A range outside [0, token_count()] throws
  /// Error.
  void read(std::int64_t begin, std::span<std::int64_t> out) const;

 private:
  struct State;
  std::unique_ptr<const State> state_;
};

/// Streaming writer of PREFIX.bin and PREFIX.idx. Both are written under temporary names; finish() syncs and renames
/// them, the index last. If destroyed without finish(), it leaves nothing behind. Not thread-safe.
class IndexedWriter {
 public:
  /// Uses uint16 for vocabularies below 65,500, as Megatron does, otherwise int32. finish() replaces an existing
  /// PREFIX.bin.
  IndexedWriter(const std::string& prefix, std::int64_t vocab_size);
  ~IndexedWriter();
  IndexedWriter(const IndexedWriter&) = delete;
  IndexedWriter& operator=(const IndexedWriter&) = delete;

  /// Appends one sequence to the current document. An id outside [0, vocab_size) throws InputError.
  void add_sequence(std::span<const std::int32_t> tokens);
  void end_document();
  void finish();

  std::int64_t token_count() const;
  std::int64_t document_count() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::format
