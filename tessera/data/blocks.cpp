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

class TokenBlocks final : public BlockDataset {
 public:
  TokenBlocks(std::vector<std::int32_t> tokens, std::int64_t block_size)
      : tokens_(std::move(tokens)), block_size_(block_size) {}
  std::int64_t block_size() const override { return block_size_; }
  std::int64_t size() const override { return static_cast<std::int64_t>(tokens_.size()) / block_size_; }
  void read(std::int64_t block, std::int64_t* out) const override {
    TESSERA_CHECK(block >= 0 && block < size(), "block ", block, " of ", size());
    std::copy_n(tokens_.begin() + block * block_size_, block_size_, out);
  }

 private:
  std::vector<std::int32_t> tokens_;
  std::int64_t block_size_;
};

class IndexedBlocks final : public BlockDataset {
 public:
  IndexedBlocks(const std::string& path, std::int64_t block_size, std::int64_t vocab_size)
      : file_(path), path_(path), block_size_(block_size), vocab_size_(vocab_size) {
    if (file_.token_count() > kCheckedAtOnce) return;
    std::vector<std::int64_t> block(static_cast<std::size_t>(block_size_));
    for (std::int64_t i = 0; i < size(); ++i) read(i, block.data());
  }
  std::int64_t block_size() const override { return block_size_; }
  std::int64_t size() const override { return file_.token_count() / block_size_; }
  void read(std::int64_t block, std::int64_t* out) const override {
    TESSERA_CHECK(block >= 0 && block < size(), "block ", block, " of ", size());
    const std::span<std::int64_t> ids(out, static_cast<std::size_t>(block_size_));
    file_.read(block * block_size_, ids);
    check_ids(std::span<const std::int64_t>(ids), vocab_size_, path_, block * block_size_);
  }
  std::int64_t token_count() const { return file_.token_count(); }

 private:
  format::IndexedDataset file_;
  std::string path_;
  std::int64_t block_size_, vocab_size_;
};

class BlockSlice final : public BlockDataset {
 public:
  BlockSlice(std::shared_ptr<const BlockDataset> all, std::int64_t first, std::int64_t count)
      : all_(std::move(all)), first_(first), count_(count) {}
  std::int64_t block_size() const override { return all_->block_size(); }
  std::int64_t size() const override { return count_; }
  void read(std::int64_t block, std::int64_t* out) const override {
    TESSERA_CHECK(block >= 0 && block < count_, "block ", block, " of ", count_);
    all_->read(first_ + block, out);
  }

 private:
  std::shared_ptr<const BlockDataset> all_;
  std::int64_t first_, count_;
};

void check_not_empty(const BlockDataset& dataset, std::int64_t tokens, const std::string& source) {
  if (dataset.size() > 0) return;
  throw InputError(concat(source, ": has ", tokens, " tokens, fewer than one block of ", dataset.block_size(),
                          ": give more data or a smaller --block_size"));
}

}  // namespace

std::shared_ptr<const BlockDataset> token_blocks(std::vector<std::int32_t> tokens, std::int64_t block_size,
                                                 std::int64_t vocab_size, const std::string& source) {
  check_block_size(block_size);
  check_ids(std::span<const std::int32_t>(tokens), vocab_size, source, 0);
  const auto count = static_cast<std::int64_t>(tokens.size());
  auto blocks = std::make_shared<TokenBlocks>(std::move(tokens), block_size);
  check_not_empty(*blocks, count, source);
  return blocks;
}

std::shared_ptr<const BlockDataset> indexed_blocks(const std::string& path, std::int64_t block_size,
                                                   std::int64_t vocab_size) {
  check_block_size(block_size);
  auto blocks = std::make_shared<IndexedBlocks>(path, block_size, vocab_size);
  check_not_empty(*blocks, blocks->token_count(), path);
  return blocks;
}

std::shared_ptr<const BlockDataset> slice_blocks(std::shared_ptr<const BlockDataset> all, std::int64_t first,
                                                 std::int64_t count) {
  TESSERA_CHECK(first >= 0 && count >= 0 && first + count <= all->size(), "blocks [", first, ", ", first + count,
                ") of ", all->size());
  return std::make_shared<BlockSlice>(std::move(all), first, count);
}

}  // namespace tessera::data
