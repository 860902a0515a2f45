#pragma once
/// \file
/// Records one step of a user's unmodified module: operators with sizes and types, FLOP, and bytes saved for backward,
/// by layer. Written as JSON for `tessera plan --model FILE` (docs/planning.md).
///
///   const auto step = tessera::record_step(*net, {.rows = 4, .row_tokens = 256}, [&] {
///     loss(net->forward(batch.x), batch.y).backward();
///   });
///   tessera::write_recorded(step, "recorded.json");

#include <torch/nn/module.h>

#include <tessera/layout/units.h>
#include <tessera/plan/recorded.h>

#include <cstdint>
#include <functional>
#include <string>

namespace tessera {

/// Facts that cannot be derived from the module.
struct RecordOptions {
  std::int64_t rows = 1;        ///< rows of the micro-batch that `body` runs
  std::int64_t row_tokens = 1;  ///< tokens per row, as counted in tokens/s
  /// The modules that are layers: the pieces of a pipeline and of recomputation. Kind none: the elements of one list or
  /// Sequential that have the same class and together the most parameters; if nothing repeats, the root's children.
  layout::WrapPolicy layers = {};
};

/// Runs `body`, which must do one forward and one backward of a micro-batch, and records the operators of this thread
/// and of the backward. The module is not changed; gradients are as body leaves them. Preferably record the size that a
/// device will run: different numbers of rows are predicted in proportion.
///
/// A layer begins where an operator first receives one of its parameters; only this separates several lists in a row,
/// or layers that use one another's parameters. Fused functions of tessera/nn that are not products are counted by the
/// memory they request. Recurrent cells that LibTorch runs as one operator count no FLOP.
///
/// Throws InputError when body runs no backward, or two forwards; Error when another step is being recorded. Exceptions
/// of body are passed through.
plan::RecordedStep record_step(const torch::nn::Module& module, const RecordOptions& options,
                               const std::function<void()>& body);
plan::RecordedStep record_step(const torch::nn::Module& module, const std::function<void()>& body);

/// As JSON, by rename. Throws Error for a path that cannot be written.
void write_recorded(const plan::RecordedStep& step, const std::string& path);

}  // namespace tessera
