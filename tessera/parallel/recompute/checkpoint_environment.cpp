#include <tessera/parallel/recompute/checkpoint_environment.h>

#include <tessera/nn/autocast.h>
#include <tessera/parallel/replicas/random_stream.h>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstring>
#include <mutex>

namespace tessera::parallel {
namespace {

at::Tensor state_of(at::Generator& generator) {
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_state(at::Generator& generator, const at::Tensor& state) {
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() && std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

}  // namespace

Environment Environment::capture(std::span<const at::Tensor> inputs, bool random) {
  std::vector<c10::Device> devices{c10::Device(c10::kCPU)};
  for (const at::Tensor& input : inputs)
    if (input.defined() && std::find(devices.begin(), devices.end(), input.device()) == devices.end())
      devices.push_back(input.device());

  Environment now;
  now.autocast_cache_ = at::autocast::is_autocast_cache_enabled();
  now.rounding_ = nn::rounding();
  now.late_ = nn::WeightGradients::current();
  for (const c10::Device device : devices) {
    if (device.type() != c10::kCPU && device.type() != c10::kCUDA) continue;
    now.autocast_.push_back({device.type(), at::autocast::is_autocast_enabled(device.type()),
                             at::autocast::get_autocast_dtype(device.type())});
    if (!random) continue;
    at::Generator generator = thread_generator(device);
    at::Tensor state = state_of(generator);
    now.generators_.push_back({std::move(generator), std::move(state)});
  }
  return now;
}

void Environment::end() {
  std::erase_if(generators_, [](Generators& g) { return same_bytes(g.state, state_of(g.generator)); });
}

namespace {

int& recomputations() {
  static thread_local int depth = 0;
  return depth;
}

}  // namespace

bool in_recomputation() { return recomputations() > 0; }

struct Environment::Restored::Saved {
  Saved(const c10::impl::LocalDispatchKeySet& keys, const c10::intrusive_ptr<nn::WeightGradients>& gradients)
      : late(gradients), keys_guard(keys) {
    ++recomputations();
  }
  ~Saved() { --recomputations(); }

  Environment environment;
  std::optional<RandomStream> stream;
  nn::WeightGradients::Scope late;
  c10::AutoGradMode grad_mode{true};
  c10::impl::ForceDispatchKeyGuard keys_guard;
};

Environment::Restored::Restored(const Environment& environment) {
  Environment now;
  now.autocast_cache_ = at::autocast::is_autocast_cache_enabled();
  now.rounding_ = nn::rounding();
  for (const Autocast& autocast : environment.autocast_)
    now.autocast_.push_back({autocast.device, at::autocast::is_autocast_enabled(autocast.device),
                             at::autocast::get_autocast_dtype(autocast.device)});
  for (Generators g : environment.generators_) {
    at::Tensor state = state_of(g.generator);
    now.generators_.push_back({g.generator, std::move(state)});
  }

  saved_ = std::make_unique<Saved>(environment.keys_, environment.late_);
  saved_->environment = std::move(now);
  at::autocast::set_autocast_cache_enabled(environment.autocast_cache_);
  for (const Autocast& autocast : environment.autocast_) {
    at::autocast::set_autocast_dtype(autocast.device, autocast.dtype);
    at::autocast::set_autocast_enabled(autocast.device, autocast.enabled);
  }
  nn::set_rounding(environment.rounding_);
  at::autocast::increment_nesting();
  for (Generators g : environment.generators_) {
    set_state(g.generator, g.state);
    // A thread of the engine that recomputes for a replica must use the replica's stream.
    if (g.generator.device().is_cpu() && g.generator != thread_generator(g.generator.device()))
      saved_->stream.emplace(g.generator);
  }
}

Environment::Restored::~Restored() {
  const Environment& before = saved_->environment;
  for (Generators g : before.generators_) set_state(g.generator, g.state);
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  for (const Autocast& autocast : before.autocast_) {
    at::autocast::set_autocast_dtype(autocast.device, autocast.dtype);
    at::autocast::set_autocast_enabled(autocast.device, autocast.enabled);
  }
  nn::set_rounding(before.rounding_);
  at::autocast::set_autocast_cache_enabled(before.autocast_cache_);
}

}  // namespace tessera::parallel
