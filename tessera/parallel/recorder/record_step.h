#pragma once
/// \file
/// What one step of somebody's unedited module does: operators with sizes and types, FLOP, bytes that backward needs,
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

/// What the module cannot tell.
struct RecordOptions {
  std::int64_t rows = 1;        ///< rows of the micro-batch that the body runs
  std::int64_t row_tokens = 1;  ///< tokens of a row: what tokens/s count
  /// Which modules are layers: pieces of a pipeline, what is computed again. Kind none: those elements of one list or
  /// Sequential that have the same class and together the most parameters; where nothing repeats, the root's children.
  layout::WrapPolicy layers = {};
};

/// Runs `body`, which does one forward and one backward of a micro-batch, and writes down what this thread and the
/// backward do meanwhile. The module is not changed, gradients are what body leaves. A step of the size that a device
/// will have is the best one: other numbers of rows are predicted in proportion.
///
/// A layer begins where an operator first receives one of its parameters. Several lists in a row, or layers that use
/// one another's parameters, are told apart by that alone. Work of fused functions of tessera/nn that are no products
/// counts by the memory they ask for. Recurrent cells that LibTorch runs as one operator count no FLOP.
///
/// Throws InputError when body runs no backward, or two forwards; Error when another step is being recorded. What body
/// throws comes through.
plan::RecordedStep record_step(const torch::nn::Module& module, const RecordOptions& options,
                               const std::function<void()>& body);
plan::RecordedStep record_step(const torch::nn::Module& module, const std::function<void()>& body);

/// As JSON, by rename. Throws Error for a path that cannot be written.
void write_recorded(const plan::RecordedStep& step, const std::string& path);

}  // namespace tessera
