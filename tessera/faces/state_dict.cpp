#include <tessera/faces/state_dict.h>

#include <ATen/ATen.h>

#include <vector>

#include <tessera/checkpoint/tensor_bridge.h>
#include <tessera/format/safetensors/safetensors.h>

namespace tessera::faces {

StateDict state_dict(Training& training) {
  const bool keeps = training.group().rank() == 0 || !row_of(training.config().sharding.strategy).shard_parameters;
  StateDict state;
  const auto keep = [&](const std::string& name, const at::Tensor& value) {
    if (keeps) state[name] = value.detach().to(at::kCPU, value.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
  };
  training.sharded().visit_parameters(keep);
  for (const auto& buffer : training.module().named_buffers()) keep(buffer.key(), buffer.value());
  return state;
}

void write_state_dict(const StateDict& tensors, const std::string& path) {
  std::vector<format::TensorSource> sources;
  for (const auto& [name, tensor] : tensors) sources.push_back(checkpoint::tensor_source(name, tensor));
  format::write_safetensors(path, std::move(sources));
}

}  // namespace tessera::faces
