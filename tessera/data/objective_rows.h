#pragma once
/// \file
/// A dataset that applies an objective to its batches.

#include <tessera/data/objective.h>

#include <memory>
#include <utility>

namespace tessera::data {

/// The rows of another dataset; the objective is applied to its batches.
class ObjectiveRows final : public Dataset {
 public:
  ObjectiveRows(std::shared_ptr<const Dataset> rows, Objective objective)
      : rows_(std::move(rows)), objective_(std::move(objective)) {}
  std::int64_t size() const override { return rows_->size(); }
  std::int64_t max_length() const override { return rows_->max_length(); }
  std::int64_t length(std::int64_t row) const override { return rows_->length(row); }
  Row read(std::int64_t row) const override { return rows_->read(row); }
  Row read_sample(std::int64_t row, std::int64_t sample) const override { return rows_->read_sample(row, sample); }
  std::int64_t tokens() const override { return rows_->tokens(); }
  const Blend* blend() const override { return rows_->blend(); }
  bool streamed() const override { return rows_->streamed(); }
  Batch complete(Batch batch, const std::vector<std::string>& images, std::int64_t first) const override {
    return objective_(rows_->complete(std::move(batch), images, first), first);
  }

 private:
  std::shared_ptr<const Dataset> rows_;
  Objective objective_;
};

}  // namespace tessera::data
