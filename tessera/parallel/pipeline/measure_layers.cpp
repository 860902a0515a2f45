#include <tessera/parallel/pipeline/measure_layers.h>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/autograd.h>

#include <tessera/base/clock.h>
#include <tessera/base/error.h>
#include <tessera/comm/recorder.h>
#include <tessera/comm/run_on_all_ranks.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace tessera::parallel {
namespace {

constexpr int most_runs = 5;
constexpr double enough_seconds = 0.5;  // no further run of a layer after this many seconds
constexpr std::int64_t most_dims = 14;

/// Restores buffers and random state of a layer that is run only to measure its time.
class PutBack {
 public:
  explicit PutBack(const std::vector<LayerTensors::Item>& items)
      : generator_(at::detail::getDefaultCPUGenerator()), random_state_(generator_.get_state()) {
    for (const auto& item : items)
      if (item.is_buffer) buffers_.emplace_back(item.tensor, item.tensor.detach().clone());
  }
  ~PutBack() {
    const at::NoGradGuard none;
    for (const auto& [buffer, before] : buffers_) buffer.copy_(before);
    generator_.set_state(random_state_);
  }
  PutBack(const PutBack&) = delete;
  PutBack& operator=(const PutBack&) = delete;

 private:
  at::Generator generator_;
  at::Tensor random_state_;
  std::vector<std::pair<at::Tensor, at::Tensor>> buffers_;
};

void finish_device(const at::Tensor& tensor) {
  if (!tensor.is_cpu()) c10::impl::VirtualGuardImpl(tensor.device().type()).synchronizeDevice(tensor.device().index());
}

/// Returns the layer's time in seconds; `value` becomes its output.
double time_layer(LayerChain& chain, std::size_t layer, const std::vector<LayerTensors::Item>& items,
                  const at::Tensor& sample, at::Tensor& value) {
  const PutBack put_back(items);
  const at::AutoGradMode with_grad(true);
  at::Tensor input = value.detach();
  const bool differentiable = layer > 0 && (input.is_floating_point() || input.is_complex());
  std::vector<at::Tensor> inputs;
  for (const auto& item : items)
    if (!item.is_buffer && item.tensor.requires_grad()) inputs.push_back(item.tensor);
  if (differentiable) inputs.push_back(input.set_requires_grad(true));
  std::vector<double> seconds;
  const std::int64_t begin = monotonic_ns();
  for (int run = 0; run <= most_runs; ++run) {
    const std::int64_t start = monotonic_ns();
    const at::Tensor output = chain.run(layer, layer + 1, sample, input);
    // Not backward(), because grad() must not change.
    if (output.requires_grad() && !inputs.empty())
      (void)torch::autograd::grad({output}, inputs, {at::ones_like(output)}, /*retain_graph=*/false,
                                  /*create_graph=*/false, /*allow_unused=*/true);
    finish_device(output);
    seconds.push_back(1e-9 * static_cast<double>(monotonic_ns() - start));
    value = output.detach();
    if (1e-9 * static_cast<double>(monotonic_ns() - begin) > enough_seconds) break;
  }
  if (seconds.size() > 1) seconds.erase(seconds.begin());  // the first run builds the module and warms caches
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

}  // namespace

at::Tensor share_tensor(const comm::Group& group, int root, const at::Tensor& tensor) {
  if (group.size() == 1) return tensor;
  at::Tensor header = at::zeros({2 + most_dims}, at::kLong);
  if (group.rank() == root) {
    TESSERA_CHECK(tensor.defined() && tensor.dim() <= most_dims, "only tensors of up to ", most_dims,
                  " dimensions can be sent");
    header[0] = static_cast<std::int64_t>(tensor.scalar_type());
    header[1] = tensor.dim();
    for (std::int64_t d = 0; d < tensor.dim(); ++d) header[2 + d] = tensor.size(d);
  }
  header = header.to(group.device());
  group.broadcast(header, root).wait();
  header = header.cpu();
  const auto* const numbers = header.const_data_ptr<std::int64_t>();
  const at::Tensor shared =
      group.rank() == root
          ? tensor.to(group.device()).contiguous()
          : at::empty(at::IntArrayRef(numbers + 2, static_cast<std::size_t>(numbers[1])),
                      at::TensorOptions(static_cast<at::ScalarType>(numbers[0])).device(group.device()));
  group.broadcast(shared, root).wait();
  return shared;
}

std::vector<double> measure_layers(LayerChain& chain, const LayerTensors& tensors, const comm::Group& group,
                                   const at::Tensor& sample) {
  if (!sample.defined())
    throw InputError("pipeline: PipelineCut::by_measured() needs a sample of a micro-batch's inputs on every rank");
  const comm::Tag tag("measured layers");
  const std::size_t layers = chain.layers().size();
  const auto ranks = static_cast<std::size_t>(group.size());
  std::vector<double> seconds(layers);  // by layer; each layer is measured by one rank
  at::Tensor value = sample;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (static_cast<int>(rank) == group.rank())
      for (std::size_t i = rank * layers / ranks; i < (rank + 1) * layers / ranks; ++i)
        seconds[i] = time_layer(chain, i, tensors.of_layer[i], sample, value);
    if (rank + 1 < ranks) value = share_tensor(group, static_cast<int>(rank), value);
  }
  if (ranks > 1) comm::all_reduce_numbers(group, seconds);
  return seconds;
}

}  // namespace tessera::parallel
