#pragma once
/// \file
/// Examples in memory, for tests.

#include <tessera/data/dataset.h>
#include <tessera/data/examples.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace tessera::data {

class MadeExamples final : public ExampleSource {
 public:
  void add(const std::vector<std::int32_t>& ids, const std::vector<bool>& scored) {
    std::vector<std::int64_t> labels;
    for (std::size_t i = 0; i < ids.size(); ++i) labels.push_back(scored[i] ? ids[i] : not_scored);
    ids_.emplace_back(ids.begin(), ids.end());
    labels_.push_back(std::move(labels));
  }
  std::int64_t size() const override { return static_cast<std::int64_t>(ids_.size()); }
  std::int64_t length(std::int64_t example) const override {
    return static_cast<std::int64_t>(ids_.at(static_cast<std::size_t>(example)).size());
  }
  std::int64_t longest() const override {
    std::int64_t longest = 0;
    lengths(0, size(), [&](std::int64_t length) { longest = std::max(longest, length); });
    return longest;
  }
  void lengths(std::int64_t first, std::int64_t count, const std::function<void(std::int64_t)>& take) const override {
    for (std::int64_t i = first; i < first + count; ++i) take(length(i));
  }
  void append(std::int64_t example, std::vector<std::int64_t>& ids, std::vector<std::int64_t>& labels) const override {
    const auto& own = ids_.at(static_cast<std::size_t>(example));
    const auto& marks = labels_.at(static_cast<std::size_t>(example));
    ids.insert(ids.end(), own.begin(), own.end());
    labels.insert(labels.end(), marks.begin(), marks.end());
  }

 private:
  std::vector<std::vector<std::int64_t>> ids_, labels_;
};

}  // namespace tessera::data
