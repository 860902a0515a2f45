#include <tessera/data/cached_rows.h>

#include <utility>

#include <tessera/base/error.h>
#include <tessera/data/block_rows.h>

namespace tessera::data {
namespace {

class StoredBlocks final : public BlockRows {
 public:
  StoredBlocks(std::shared_ptr<const corpus::TokenStore> store, std::int64_t block_size, bool documents)
      : BlockRows(block_size, documents), store_(std::move(store)) {}
  std::int64_t size() const override { return store_->tokens() / max_length(); }

 private:
  void read_ids(std::int64_t first, std::vector<std::int64_t>& out) const override {
    store_->read(first, max_length(), out);
  }
  std::vector<std::int64_t> starts_in(std::int64_t first) const override {
    return store_->starts_in(first, max_length());
  }

  std::shared_ptr<const corpus::TokenStore> store_;
};

class StoredExamples final : public ExampleSource {
 public:
  StoredExamples(std::shared_ptr<const corpus::TokenStore> store, std::int64_t longest)
      : store_(std::move(store)), longest_(longest) {}
  std::int64_t size() const override { return store_->records(); }
  std::int64_t length(std::int64_t example) const override { return store_->length(example); }
  std::int64_t longest() const override { return longest_; }
  void lengths(std::int64_t first, std::int64_t count, const std::function<void(std::int64_t)>& take) const override {
    store_->for_each_length(first, count, take);
  }
  void append(std::int64_t example, std::vector<std::int64_t>& ids, std::vector<std::int64_t>& labels) const override {
    const std::size_t old = ids.size();
    std::vector<bool> scored;
    store_->read_record(example, ids, scored);
    for (std::size_t i = 0; i < scored.size(); ++i) labels.push_back(scored[i] ? ids[old + i] : not_scored);
  }

 private:
  std::shared_ptr<const corpus::TokenStore> store_;
  std::int64_t longest_;
};

}  // namespace

std::shared_ptr<const Dataset> stored_blocks(std::shared_ptr<const corpus::TokenStore> store, std::int64_t block_size,
                                             bool documents, const std::string& source) {
  check_block_size(block_size);
  const std::int64_t tokens = store->tokens();
  auto blocks = std::make_shared<StoredBlocks>(std::move(store), block_size, documents);
  check_not_empty(*blocks, tokens, source);
  return blocks;
}

std::shared_ptr<const ExampleSource> stored_examples(std::shared_ptr<const corpus::TokenStore> store,
                                                     std::int64_t longest) {
  return std::make_shared<StoredExamples>(std::move(store), longest);
}

}  // namespace tessera::data
