#pragma once
/// \file
/// Determines which rows of a step this rank computes, and in which micro-batches.

#include <tessera/data/dataset.h>
#include <tessera/train/features/objective.h>
#include <tessera/train/features/row_shares.h>
#include <tessera/train/loop/setup.h>

#include <cstdint>
#include <vector>

namespace tessera::train {

class StepRows {
 public:
  /// Both arguments outlive this object.
  StepRows(const Setup& setup, const Objective& objective);

  /// This rank's micro-batches of step `step`, counted from 0.
  std::vector<data::Batch> read(std::int64_t step);
  /// Number of rows per rank.
  RowShares& shares() { return setup_.parts.shares != nullptr ? *setup_.parts.shares : equal_; }
  const data::Sampler& sampler() const { return sampler_; }

 private:
  data::Batch read_rows(std::int64_t step, std::int64_t micro, const std::vector<std::int64_t>& shares) const;
  data::Batch idle_batch(std::int64_t step) const;
  std::vector<data::Batch> read_token_batches(std::int64_t step) const;

  const Setup& setup_;
  const Objective& objective_;
  const data::Sampler sampler_;
  EqualShares equal_;
};

}  // namespace tessera::train
