#pragma once
/// \file
/// DataParallel cuts a data::Batch by rows:
///
///   tessera::DataParallel dp(model, {.replicas = 2});            // a models::CausalLm
///   auto losses = dp.call([&](models::CausalLm& m, const data::Batch& part) { return m.loss(part, scale); }, batch);
///   losses.sum().backward();                                      // loss() is a sum over scored positions

#include <tessera/data/dataset.h>
#include <tessera/parallel/replicas/pieces.h>

namespace tessera::parallel {

template <>
struct RowsOf<data::Batch> {
  static std::int64_t rows(const data::Batch& batch);
  /// Views of the rows' tensors; all counts are those of the rows. A batch on a device forces a host synchronization:
  /// leave it on the host, and each replica copies only its rows.
  static data::Batch slice(const data::Batch& batch, std::int64_t first, std::int64_t count);
  static data::Batch to(data::Batch rows, c10::Device device);
};

}  // namespace tessera::parallel
