// Blocks from memory, from a mapped file, from a part of another dataset.

#include <algorithm>
#include <span>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/data/dataset.h>
#include <tessera/format/indexed.h>

namespace tessera::data {
namespace {

constexpr std::int64_t kCheckedAtOnce = std::int64_t{16} << 20;  // tokens: well under a second

void check_block_size(std::int64_t block_size) {
  if (block_size < 2) {
    throw InputError(
        concat("block_size is ", block_size, "; it must be at least 2, for a block of T tokens scores T - 1 of them"));
  }
}

// Every id must name a row of the embedding.
template <class Id>
void check_ids(std::span<const Id> ids, std::int64_t vocab_size, const std::string& source, std::int64_t position) {
  const auto bad = std::find_if(ids.begin(), ids.end(), [&](Id id) { return id < 0 || id >= vocab_size; });
  if (bad == ids.end()) return;
  throw InputError(concat(source, ": token ", position + (bad - ids.begin()), " has id ", *bad,
                          ", but the model's vocabulary has ", vocab_size, " entries (ids 0 to ", vocab_size - 1,
                          "): tokenizer and model do not belong together"));
}

/// Rows of one length, one document each, everything scored that can be.
class Blocks : public Dataset {
 public:
  explicit Blocks(std::int64_t block_size) : block_size_(block_size) {}
  std::int64_t max_length() const override { return block_size_; }
  std::int64_t length(std::int64_t) const override { return block_size_; }
  Row read(std::int64_t block) const override {
    TESSERA_CHECK(block >= 0 && block < size(), "block ", block, " of ", size());
    Row row{std::vector<std::int64_t>(static_cast<std::size_t>(block_size_)), {}, {0}};
    read_ids(block * block_size_, row.ids);
    row.labels = row.ids;
    return row;
  }

 protected:
  virtual void read_ids(std::int64_t first, std::span<std::int64_t> out) const = 0;
  std::int64_t block_size_;
};

class TokenBlocks final : public Blocks {
 public:
  TokenBlocks(std::vector<std::int32_t> tokens, std::int64_t block_size)
      : Blocks(block_size), tokens_(std::move(tokens)) {}
  std::int64_t size() const override { return static_cast<std::int64_t>(tokens_.size()) / block_size_; }

 private:
  void read_ids(std::int64_t first, std::span<std::int64_t> out) const override {
    std::copy_n(tokens_.begin() + first, out.size(), out.begin());
  }

  std::vector<std::int32_t> tokens_;
};

class IndexedBlocks final : public Blocks {
 public:
  IndexedBlocks(const std::string& path, std::int64_t block_size, std::int64_t vocab_size)
      : Blocks(block_size), file_(path), path_(path), vocab_size_(vocab_size) {
    if (file_.token_count() > kCheckedAtOnce) return;
    std::vector<std::int64_t> block(static_cast<std::size_t>(block_size_));
    for (std::int64_t i = 0; i < file_.token_count() / block_size_; ++i)
      IndexedBlocks::read_ids(i * block_size_, block);
  }
  std::int64_t size() const override { return file_.token_count() / block_size_; }
  std::int64_t token_count() const { return file_.token_count(); }

 private:
  void read_ids(std::int64_t first, std::span<std::int64_t> out) const override {
    file_.read(first, out);
    check_ids(std::span<const std::int64_t>(out), vocab_size_, path_, first);
  }

  format::IndexedDataset file_;
  std::string path_;
  std::int64_t vocab_size_;
};

class Slice final : public Dataset {
 public:
  Slice(std::shared_ptr<const Dataset> all, std::int64_t first, std::int64_t count)
      : all_(std::move(all)), first_(first), count_(count) {}
  std::int64_t size() const override { return count_; }
  std::int64_t max_length() const override { return all_->max_length(); }
  std::int64_t length(std::int64_t row) const override { return all_->length(first_ + checked(row)); }
  Row read(std::int64_t row) const override { return all_->read(first_ + checked(row)); }

 private:
  std::int64_t checked(std::int64_t row) const {
    TESSERA_CHECK(row >= 0 && row < count_, "row ", row, " of ", count_);
    return row;
  }

  std::shared_ptr<const Dataset> all_;
  std::int64_t first_, count_;
};

void check_not_empty(const Dataset& dataset, std::int64_t tokens, const std::string& source) {
  if (dataset.size() > 0) return;
  throw InputError(concat(source, ": has ", tokens, " tokens, fewer than one block of ", dataset.max_length(),
                          ": give more data or a smaller --block_size"));
}

}  // namespace

std::shared_ptr<const Dataset> token_blocks(std::vector<std::int32_t> tokens, std::int64_t block_size,
                                            std::int64_t vocab_size, const std::string& source) {
  check_block_size(block_size);
  check_ids(std::span<const std::int32_t>(tokens), vocab_size, source, 0);
  const auto count = static_cast<std::int64_t>(tokens.size());
  auto blocks = std::make_shared<TokenBlocks>(std::move(tokens), block_size);
  check_not_empty(*blocks, count, source);
  return blocks;
}

std::shared_ptr<const Dataset> indexed_blocks(const std::string& path, std::int64_t block_size,
                                              std::int64_t vocab_size) {
  check_block_size(block_size);
  auto blocks = std::make_shared<IndexedBlocks>(path, block_size, vocab_size);
  check_not_empty(*blocks, blocks->token_count(), path);
  return blocks;
}

std::shared_ptr<const Dataset> slice(std::shared_ptr<const Dataset> all, std::int64_t first, std::int64_t count) {
  TESSERA_CHECK(first >= 0 && count >= 0 && first + count <= all->size(), "rows [", first, ", ", first + count, ") of ",
                all->size());
  return std::make_shared<Slice>(std::move(all), first, count);
}

}  // namespace tessera::data
