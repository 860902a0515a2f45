#pragma once
/// \file
/// The common base of all blocks, no matter where their tokens are stored.

#include <tessera/data/dataset.h>

#include <string>
#include <vector>

namespace tessera::data {

/// Rows of the same length in which every token that can be scored is scored.
class BlockRows : public Dataset {
 public:
  /// `documents`: a document that begins inside a block is separate; it does not attend to earlier tokens, and its
  /// first token is not scored. Otherwise a block is one document.
  BlockRows(std::int64_t block_size, bool documents) : block_size_(block_size), documents_(documents) {}
  std::int64_t max_length() const override { return block_size_; }
  std::int64_t length(std::int64_t) const override { return block_size_; }
  Row read(std::int64_t block) const override;
  std::int64_t tokens() const override { return size() * block_size_; }

 protected:
  /// Appends block_size tokens from position `first` of the stream.
  virtual void read_ids(std::int64_t first, std::vector<std::int64_t>& out) const = 0;
  /// Positions in the block at which documents begin, counted from `first`, ascending.
  virtual std::vector<std::int64_t> starts_in(std::int64_t first) const = 0;

 private:
  std::int64_t block_size_;
  bool documents_;
};

/// Throws InputError for a block size below 2.
void check_block_size(std::int64_t block_size);
/// Throws InputError naming `source` for a dataset without rows.
void check_not_empty(const Dataset& dataset, std::int64_t tokens, const std::string& source);

}  // namespace tessera::data
