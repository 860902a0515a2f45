#include <tessera/data/mock_data.h>

#include <algorithm>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/data/block_rows.h>

namespace tessera::data {
namespace {

constexpr std::int64_t made_up_documents = 100000, longest_made_up = 4095;  // Megatron-LM's

/// The i-th number of a fixed pseudo-random sequence (splitmix64).
std::uint64_t drawn(std::uint64_t i) {
  std::uint64_t x = (i + 1) * 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31U);
}

class MadeUpBlocks final : public BlockRows {
 public:
  MadeUpBlocks(std::int64_t block_size, std::int64_t vocab_size, bool documents)
      : BlockRows(block_size, documents), last_id_(vocab_size - 1) {
    begins_.reserve(made_up_documents + 1);
    begins_.push_back(0);
    for (std::int64_t i = 0; i < made_up_documents; ++i)
      begins_.push_back(begins_.back() + 1 +
                        static_cast<std::int64_t>(drawn(static_cast<std::uint64_t>(i)) % longest_made_up));
  }
  std::int64_t size() const override { return begins_.back() / max_length(); }

 private:
  void read_ids(std::int64_t first, std::vector<std::int64_t>& out) const override {
    // the document after the one that contains `first`
    auto next = std::upper_bound(begins_.begin(), begins_.end(), first);
    for (std::int64_t at = first; at < first + max_length(); ++at) {
      if (at == *next) ++next;
      out.push_back(at + 1 == *next ? last_id_ : (at - *(next - 1) + 1) % last_id_);
    }
  }
  std::vector<std::int64_t> starts_in(std::int64_t first) const override {
    std::vector<std::int64_t> starts;
    for (auto begin = std::lower_bound(begins_.begin(), begins_.end() - 1, first);
         begin != begins_.end() - 1 && *begin < first + max_length(); ++begin)
      starts.push_back(*begin - first);
    return starts;
  }

  std::int64_t last_id_;
  std::vector<std::int64_t> begins_;  // start of each document in the stream, and the stream's end
};

}  // namespace

std::shared_ptr<const Dataset> made_up_blocks(std::int64_t block_size, std::int64_t vocab_size, bool documents) {
  check_block_size(block_size);
  if (vocab_size < 2)
    throw InputError(
        concat("--mock_data needs a vocabulary of at least 2 tokens, one to count with and one as the end; the model's "
               "has ",
               vocab_size));
  return std::make_shared<MadeUpBlocks>(block_size, vocab_size, documents);
}

}  // namespace tessera::data
