#include <tessera/faces/state_dict.h>

#include <ATen/ATen.h>

#include <map>
#include <string>
#include <vector>

#include <tessera/checkpoint/tensor_bridge.h>
#include <tessera/config/core/run_config.h>
#include <tessera/format/safetensors/safetensors.h>
#include <tessera/parallel/tensor_parallel.h>

namespace tessera::faces {

StateDict state_dict(Training& training) {
  const bool keeps = training.all().rank() == 0 || !row_of(training.config().sharding.strategy).shard_parameters;
  StateDict state;
  const auto keep = [&](const std::string& name, const at::Tensor& value) {
    if (keeps) state[name] = value.detach().to(at::kCPU, value.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
  };
  std::map<std::string, at::Tensor> cut;  // needed to assemble the parts of tp
  for (const auto& list : {training.sharded().named_parameters(), training.sharded().frozen_parameters()})
    for (const ShardedParameter& parameter : list) cut[parameter.name] = parameter.local;
  training.sharded().visit_parameters([&](const std::string& name, const at::Tensor& value) {
    const auto found = cut.find(name);
    keep(name, found == cut.end() ? value : gather_tensor_parts(found->second, value));
  });
  for (const auto& buffer : training.module().named_buffers()) keep(buffer.key(), buffer.value());
  return state;
}

void write_state_dict(const StateDict& tensors, const std::string& path) {
  std::vector<format::TensorSource> sources;
  for (const auto& [name, tensor] : tensors) sources.push_back(checkpoint::tensor_source(name, tensor));
  format::write_safetensors(path, std::move(sources));
}

}  // namespace tessera::faces
