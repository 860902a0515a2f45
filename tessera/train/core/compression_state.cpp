#include <tessera/train/core/compression_state.h>

#include <ATen/ATen.h>

#include <cstdio>
#include <optional>
#include <utility>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/checkpoint/tensor_bridge.h>
#include <tessera/format/safetensors/safetensors.h>
#include <tessera/parallel/compression/compression.h>
#include <tessera/train/saving/tensor_parts.h>

namespace tessera::train {
namespace {

constexpr const char* kOrder = "order of gradients";
constexpr const char* kDivision = "division: ";  // prefix of the name of a file's first tensor

/// optimizer-compression-00002-of-00004.safetensors
std::string file_of_rank(const std::string& stem, int rank, int size) {
  char numbers[64];
  std::snprintf(numbers, sizeof numbers, "-%05d-of-%05d.safetensors", rank + 1, size);
  return concat(stem, "-compression", numbers);
}

/// Describes how gradients are reduced; the stored state is valid only while this stays the same.
std::string division_of(const Sharded& sharded) {
  const ShardingOptions& options = sharded.options();
  const comm::Group tensor = tensor_group(sharded);
  return concat(word_of(static_cast<Strategy>(options.strategy)), ", ", sharded.shard_ranks(), " x ",
                sharded.replicate_ranks(), " ranks, tp ", tensor ? tensor.size() : 1, ", pp ",
                options.stages ? options.stages.size() : 1, ", ", options.compression->name());
}

/// Whether a method has state; fp16 and bf16 have none.
bool remembers(const Sharded& sharded) {
  const auto& compression = sharded.options().compression;
  if (!compression || sharded.shard_ranks() * sharded.replicate_ranks() == 1) return false;
  return compression->name() != "fp16" && compression->name() != "bf16";
}

/// Number of ranks whose files are in the folder and the name of the first file; nullopt if the folder has none.
std::optional<std::pair<int, std::string>> first_file(const std::string& folder, const std::string& stem) {
  const std::string begin = concat(stem, "-compression-00001-of-");
  for (const std::string& name : list_folder(folder)) {
    int size = 0;
    if (name.starts_with(begin) && std::sscanf(name.c_str() + begin.size(), "%d.safetensors", &size) == 1)
      return std::pair(size, name);
  }
  return std::nullopt;
}

std::string stored_division(const format::SafetensorsFile& file) {
  for (const format::TensorInfo& info : file.tensors())
    if (info.name.starts_with(kDivision)) return info.name.substr(std::string(kDivision).size());
  return "an unknown one";
}

}  // namespace

RankTensors compression_state(const Sharded& sharded, const comm::Group& all, const std::string& stem) {
  if (!remembers(sharded)) return {};
  RankTensors own{.file = file_of_rank(stem, all.rank(), all.size()), .tensors = {}};
  for (const auto& [name, tensor] : sharded.options().compression->state())
    own.tensors.emplace_back(concat("state: ", name), tensor.detach().cpu().clone());
  own.tensors.emplace_back(concat(kDivision, division_of(sharded)), at::zeros({0}));
  std::vector<std::int64_t> order;
  for (const std::size_t i : sharded.gradient_order()) order.push_back(static_cast<std::int64_t>(i));
  own.tensors.emplace_back(kOrder, at::tensor(order, at::kLong));
  return own;
}

void restore_compression(Sharded& sharded, const comm::Group& all, const std::string& folder, const std::string& stem) {
  if (!remembers(sharded)) {
    if (all.rank() == 0 && first_file(folder, stem))
      log::warning(folder,
                   " contains the state of --grad_compression, which is now off or runs on one process: the parts of ",
                   "gradients that earlier steps did not send (error feedback) are lost");
    return;
  }
  const auto anew = [&](const auto&... why) {
    if (all.rank() == 0)
      log::warning("--grad_compression ", sharded.options().compression->name(), ": ", folder, " ", why...,
                   ": the parts of gradients that earlier steps did not send (error feedback) are lost, and "
                   "compression starts from scratch");
  };
  const auto first = first_file(folder, stem);
  if (!first) return anew("contains no state of it");
  const bool same_ranks = first->first == all.size();
  const format::SafetensorsFile file(
      path_join(folder, same_ranks ? file_of_rank(stem, all.rank(), all.size()) : first->second));
  const std::string was = stored_division(file), is = division_of(sharded);
  const bool fits = same_ranks && was == is;
  std::vector<std::pair<std::string, at::Tensor>> state;
  std::vector<std::size_t> order;
  for (const format::TensorInfo& info : file.tensors()) {
    const std::string of_method = info.name.starts_with("state: ") ? info.name.substr(7) : "";
    // The step count does not depend on the rank, so it is always restored and a warm-up is not repeated.
    if (!of_method.empty() && (fits || of_method == "steps" || of_method == "told"))
      state.emplace_back(of_method, checkpoint::read_tensor(file, info).clone());
    if (info.name == kOrder && fits) {
      const at::Tensor stored = checkpoint::read_tensor(file, info);
      for (std::int64_t i = 0; i < stored.numel(); ++i)
        order.push_back(static_cast<std::size_t>(stored[i].item<std::int64_t>()));
    }
  }
  sharded.options().compression->restore(state);
  if (!fits)
    return anew("was written by ", first->first, " ranks (", was, "), and this run has ", all.size(), " (", is, ")");
  if (!order.empty() && !sharded.set_gradient_order(order)) anew("has the gradients of other parameters");
}

}  // namespace tessera::train
