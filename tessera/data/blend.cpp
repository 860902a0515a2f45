#include <tessera/data/blend.h>

#include <algorithm>
#include <utility>

#include <tessera/base/error.h>

namespace tessera::data {
namespace {

class Joined : public Dataset {
 public:
  explicit Joined(std::vector<std::shared_ptr<const Dataset>> parts) : parts_(std::move(parts)) {
    for (const auto& part : parts_) {
      begins_.push_back(begins_.back() + part->size());
      longest_ = std::max(longest_, part->max_length());
    }
  }
  std::int64_t size() const override { return begins_.back(); }
  std::int64_t max_length() const override { return longest_; }
  std::int64_t length(std::int64_t row) const override {
    const std::size_t part = part_of(row);
    return parts_[part]->length(row - begins_[part]);
  }
  std::int64_t tokens() const override {
    std::int64_t tokens = 0;
    for (const auto& part : parts_) tokens += part->tokens();
    return tokens;
  }
  Row read(std::int64_t row) const override {
    const std::size_t part = part_of(row);
    return parts_[part]->read(row - begins_[part]);
  }

 protected:
  const std::vector<std::int64_t>& begins() const { return begins_; }

 private:
  std::size_t part_of(std::int64_t row) const {
    TESSERA_CHECK(row >= 0 && row < begins_.back(), "row ", row, " of ", begins_.back());
    return static_cast<std::size_t>(std::upper_bound(begins_.begin(), begins_.end(), row) - begins_.begin()) - 1;
  }

  std::vector<std::shared_ptr<const Dataset>> parts_;
  std::vector<std::int64_t> begins_ = {0};
  std::int64_t longest_ = 0;
};

class Blended final : public Joined {
 public:
  Blended(std::vector<std::shared_ptr<const Dataset>> parts, const std::vector<double>& weights, BlendMode mode)
      : Joined(std::move(parts)), blend_(corpus::BlendOrder(weights), begins()) {
    const corpus::BlendOrder order(weights);
    for (std::size_t p = 0; p < weights.size(); ++p) {
      const auto part = static_cast<std::int64_t>(p);
      const std::int64_t rows = begins()[p + 1] - begins()[p];
      const std::int64_t whole =
          mode == BlendMode::all_exhausted ? order.samples_for(part, rows) : order.samples_for(part, rows + 1) - 1;
      epoch_ = p == 0 ? whole : mode == BlendMode::all_exhausted ? std::max(epoch_, whole) : std::min(epoch_, whole);
    }
  }
  std::int64_t size() const override { return epoch_; }
  std::int64_t length(std::int64_t row) const override { return Joined::length(row % begins().back()); }
  Row read(std::int64_t row) const override { return Joined::read(row % begins().back()); }
  std::int64_t tokens() const override { return Dataset::tokens(); }  // counts repeated rows each time
  const Blend* blend() const override { return &blend_; }

 private:
  Blend blend_;
  std::int64_t epoch_ = 0;
};

}  // namespace

std::shared_ptr<const Dataset> joined(std::vector<std::shared_ptr<const Dataset>> parts) {
  TESSERA_CHECK(!parts.empty(), "no datasets to join");
  if (parts.size() == 1) return parts.front();
  return std::make_shared<Joined>(std::move(parts));
}

std::shared_ptr<const Dataset> blended(std::vector<std::shared_ptr<const Dataset>> parts,
                                       const std::vector<double>& weights, BlendMode mode) {
  TESSERA_CHECK(parts.size() == weights.size(), parts.size(), " parts, ", weights.size(), " weights");
  return std::make_shared<Blended>(std::move(parts), weights, mode);
}

Blend::Blend(corpus::BlendOrder order, std::vector<std::int64_t> begins)
    : order_(std::move(order)), begins_(std::move(begins)) {}

Blend::Place Blend::operator()(std::int64_t sample) const {
  const auto [part, number] = order_(sample);
  const auto p = static_cast<std::size_t>(part);
  return {part, begins_[p], begins_[p + 1] - begins_[p], number};
}

}  // namespace tessera::data
