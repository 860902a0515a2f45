// Creates blocks from memory, from a mapped file, and from a slice of another dataset.

#include <algorithm>
#include <span>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/data/block_rows.h>
#include <tessera/data/dataset.h>
#include <tessera/format/megatron_indexed.h>

namespace tessera::data {
namespace {

// number of tokens; checking them takes well under a second
constexpr std::int64_t kCheckedAtOnce = std::int64_t{16} << 20;

// Every id must be a valid row of the embedding.
template <class Id>
void check_ids(std::span<const Id> ids, std::int64_t vocab_size, const std::string& source, std::int64_t position) {
  const auto bad = std::find_if(ids.begin(), ids.end(), [&](Id id) { return id < 0 || id >= vocab_size; });
  if (bad == ids.end()) return;
  throw InputError(concat(source, ": token ", position + (bad - ids.begin()), " has id ", *bad,
                          ", but the model's vocabulary has ", vocab_size, " entries (ids 0 to ", vocab_size - 1,
                          "): tokenizer and model do not match"));
}

class TokenBlocks final : public BlockRows {
 public:
  TokenBlocks(std::vector<std::int32_t> tokens, std::int64_t block_size)
      : BlockRows(block_size, false), tokens_(std::move(tokens)) {}
  std::int64_t size() const override { return static_cast<std::int64_t>(tokens_.size()) / max_length(); }

 private:
  void read_ids(std::int64_t first, std::vector<std::int64_t>& out) const override {
    out.insert(out.end(), tokens_.begin() + first, tokens_.begin() + first + max_length());
  }
  std::vector<std::int64_t> starts_in(std::int64_t) const override { return {}; }

  std::vector<std::int32_t> tokens_;
};

class IndexedBlocks final : public BlockRows {
 public:
  IndexedBlocks(const std::string& path, std::int64_t block_size, std::int64_t vocab_size, bool documents)
      : BlockRows(block_size, documents), file_(path), path_(path), vocab_size_(vocab_size) {
    if (file_.token_count() > kCheckedAtOnce) return;
    std::vector<std::int64_t> block;
    for (std::int64_t i = 0; i < file_.token_count() / block_size; ++i) {
      block.clear();
      IndexedBlocks::read_ids(i * block_size, block);
    }
  }
  std::int64_t size() const override { return file_.token_count() / max_length(); }
  std::int64_t token_count() const { return file_.token_count(); }

 private:
  void read_ids(std::int64_t first, std::vector<std::int64_t>& out) const override {
    const std::size_t old = out.size();
    out.resize(old + static_cast<std::size_t>(max_length()));
    const std::span<std::int64_t> ids = std::span(out).subspan(old);
    file_.read(first, ids);
    check_ids(std::span<const std::int64_t>(ids), vocab_size_, path_, first);
  }
  std::vector<std::int64_t> starts_in(std::int64_t first) const override {
    // binary search for the first document that begins at or after `first`
    std::int64_t low = 0, high = file_.document_count();
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      if (begin_of(middle) < first)
        low = middle + 1;
      else
        high = middle;
    }
    std::vector<std::int64_t> starts;
    for (; low < file_.document_count() && begin_of(low) < first + max_length(); ++low)
      if (starts.empty() || starts.back() != begin_of(low) - first) starts.push_back(begin_of(low) - first);
    return starts;
  }
  std::int64_t begin_of(std::int64_t document) const { return file_.sequence_begin(file_.document_begin(document)); }

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

}  // namespace

Row BlockRows::read(std::int64_t block) const {
  TESSERA_CHECK(block >= 0 && block < size(), "block ", block, " of ", size());
  Row row{{}, {}, {0}};
  row.ids.reserve(static_cast<std::size_t>(block_size_));
  read_ids(block * block_size_, row.ids);
  row.labels = row.ids;
  if (!documents_) return row;
  for (const std::int64_t start : starts_in(block * block_size_)) {
    if (start == 0) continue;
    row.document_starts.push_back(start);
    row.labels[static_cast<std::size_t>(start)] = not_scored;  // not predicted from the previous document
  }
  return row;
}

void check_block_size(std::int64_t block_size) {
  if (block_size < 2) {
    throw InputError(concat("block_size is ", block_size,
                            "; it must be at least 2, because a block of T tokens scores T - 1 of them"));
  }
}

void check_not_empty(const Dataset& dataset, std::int64_t tokens, const std::string& source) {
  if (dataset.size() > 0) return;
  throw InputError(concat(source, ": has ", tokens, " tokens, fewer than one block of ", dataset.max_length(),
                          ": add data or use a smaller --block_size"));
}

std::shared_ptr<const Dataset> token_blocks(std::vector<std::int32_t> tokens, std::int64_t block_size,
                                            std::int64_t vocab_size, const std::string& source) {
  check_block_size(block_size);
  check_ids(std::span<const std::int32_t>(tokens), vocab_size, source, 0);
  const auto count = static_cast<std::int64_t>(tokens.size());
  auto blocks = std::make_shared<TokenBlocks>(std::move(tokens), block_size);
  check_not_empty(*blocks, count, source);
  return blocks;
}

std::shared_ptr<const Dataset> indexed_blocks(const std::string& path, std::int64_t block_size, std::int64_t vocab_size,
                                              bool documents) {
  check_block_size(block_size);
  auto blocks = std::make_shared<IndexedBlocks>(path, block_size, vocab_size, documents);
  check_not_empty(*blocks, blocks->token_count(), path);
  return blocks;
}

std::shared_ptr<const Dataset> slice(std::shared_ptr<const Dataset> all, std::int64_t first, std::int64_t count) {
  TESSERA_CHECK(first >= 0 && count >= 0 && first + count <= all->size(), "rows [", first, ", ", first + count, ") of ",
                all->size());
  return std::make_shared<Slice>(std::move(all), first, count);
}

}  // namespace tessera::data
