#include <gtest/gtest.h>

#include <cmath>

#include <tessera/train/inference/unigram.h>

namespace tessera::train {
namespace {

class Tokens : public data::Dataset {
 public:
  explicit Tokens(std::vector<std::int64_t> ids) : ids_(std::move(ids)) {}
  std::int64_t size() const override { return static_cast<std::int64_t>(ids_.size()) / 4; }
  std::int64_t max_length() const override { return 4; }
  std::int64_t length(std::int64_t) const override { return 4; }
  data::Row read(std::int64_t row) const override {
    const std::vector<std::int64_t> ids(ids_.begin() + row * 4, ids_.begin() + (row + 1) * 4);
    return {ids, ids, {0}};
  }

 private:
  std::vector<std::int64_t> ids_;
};

TEST(UnigramEntropy, OfEvenFrequenciesIsTheLogarithm) {
  EXPECT_NEAR(unigram_entropy(Tokens({0, 1, 2, 3, 3, 2, 1, 0}), 8), std::log(4.0), 1e-12);
}

TEST(UnigramEntropy, OfOneTokenIsZero) { EXPECT_EQ(unigram_entropy(Tokens({5, 5, 5, 5}), 8), 0); }

TEST(UnigramEntropy, WeighsByFrequency) {
  EXPECT_NEAR(unigram_entropy(Tokens({0, 0, 0, 1}), 2), -(0.75 * std::log(0.75) + 0.25 * std::log(0.25)), 1e-12);
}

TEST(UnigramEntropy, LooksAtTheBeginningOnly) { EXPECT_EQ(unigram_entropy(Tokens({0, 0, 0, 0, 1, 1, 1, 1}), 2, 4), 0); }

}  // namespace
}  // namespace tessera::train
