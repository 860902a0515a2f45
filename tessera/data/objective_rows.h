#pragma once
/// \file
/// A dataset that knows what is to be predicted of its rows.

#include <tessera/data/objective.h>

#include <memory>
#include <utility>

namespace tessera::data {

/// The rows of another dataset; make_batch() applies the objective to its batches.
class ObjectiveRows final : public Dataset {
 public:
  ObjectiveRows(std::shared_ptr<const Dataset> rows, Objective objective)
      : rows_(std::move(rows)), objective_(std::move(objective)) {}
  std::int64_t size() const override { return rows_->size(); }
  std::int64_t max_length() const override { return rows_->max_length(); }
  std::int64_t length(std::int64_t row) const override { return rows_->length(row); }
  Row read(std::int64_t row) const override { return rows_->read(row); }
  std::int64_t tokens() const override { return rows_->tokens(); }
  const Blend* blend() const override { return rows_->blend(); }
  bool streamed() const override { return rows_->streamed(); }
  const Objective& objective() const { return objective_; }

 private:
  std::shared_ptr<const Dataset> rows_;
  Objective objective_;
};

}  // namespace tessera::data
