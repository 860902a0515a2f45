#include <tessera/train/saving/gathered.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <exception>
#include <map>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/checkpoint/tensor_bridge.h>
#include <tessera/comm/recorder.h>

namespace tessera::train {

void GatheredTensors::add(const std::string& name, at::ScalarType type, std::vector<std::int64_t> shape,
                          std::function<at::Tensor()> whole) {
  TESSERA_CHECK(!sorted_, "tensors are added before they are gathered");
  items_.push_back({{name, checkpoint::dtype_of(type), std::move(shape), {}}, type, std::move(whole)});
}

void GatheredTensors::sort() {
  if (std::exchange(sorted_, true)) return;
  checkpoint::TensorSources order;
  std::map<std::string, std::size_t> index;
  for (std::size_t i = 0; i < items_.size(); ++i) {
    order.push_back(items_[i].source);
    index[items_[i].source.name] = i;
  }
  format::sort_for_writing(order);
  std::vector<Item> items;
  for (const format::TensorSource& source : order) items.push_back(std::move(items_[index.at(source.name)]));
  items_ = std::move(items);
}

at::Tensor GatheredTensors::make(std::size_t index) {
  TESSERA_CHECK(index == next_, "tensor ", index, " is asked for, but ", next_,
                " is the next one that all ranks gather");
  ++next_;
  const comm::Tag tag("gather for saving");
  return items_[index].whole();
}

checkpoint::TensorSources GatheredTensors::sources() {
  sort();
  const auto slot = std::make_shared<at::Tensor>();
  checkpoint::TensorSources sources;
  for (std::size_t i = 0; i < items_.size(); ++i)
    sources.push_back(checkpoint::tensor_source(
        items_[i].source.name, items_[i].type, items_[i].source.shape, [this, i] { return make(i); }, slot));
  return sources;
}

void GatheredTensors::finish() {
  sort();
  while (next_ < items_.size()) make(next_);
}

GatheredTensors trained_weights(const Sharded& sharded) {
  GatheredTensors tensors;
  for (const ShardedParameter& parameter : sharded.named_parameters())
    tensors.add(parameter.name, parameter.local.scalar_type(), parameter.shape,
                [&sharded, &parameter] { return sharded.gather_like(parameter, parameter.local.detach()); });
  return tensors;
}

GatheredTensors optimizer_states(const Sharded& sharded, const optim::Optimizer& optimizer) {
  GatheredTensors tensors;
  for (const auto& [name, state] : optimizer.state()) {
    if (optimizer.is_replicated(name)) {
      tensors.add(name, state.scalar_type(), state.sizes().vec(), [state = state] { return state; });
      continue;
    }
    const ShardedParameter& parameter = parameter_of_state(sharded, name);
    tensors.add(name, state.scalar_type(), parameter.shape,
                [&sharded, &parameter, state = state] { return sharded.gather_like(parameter, state); });
  }
  return tensors;
}

void write_gathered(const std::vector<GatheredTensors*>& in_order, const std::function<void()>& write) {
  std::exception_ptr failed;
  try {
    if (write) write();
  } catch (...) {
    failed = std::current_exception();
  }
  for (GatheredTensors* tensors : in_order) tensors->finish();
  if (failed) std::rethrow_exception(failed);
}

const ShardedParameter& parameter_of_state(const Sharded& sharded, const std::string& state_name) {
  const std::string name = state_name.substr(state_name.find('.') + 1);
  const auto& all = sharded.named_parameters();
  const auto found = std::find_if(all.begin(), all.end(), [&](const ShardedParameter& p) { return p.name == name; });
  TESSERA_CHECK(found != all.end(), "optimizer state ", state_name, " belongs to no trained parameter");
  return *found;
}

}  // namespace tessera::train
