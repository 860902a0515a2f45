/// \file
/// The cost of a managed parameter per operator: nanoseconds with plain and managed parameters, and the difference, for
/// small operators (4 x 4 matrices, i.e. nothing but dispatch); then forward and backward of 12 transformer layers,
/// with d = 256 and d = 32. Plain and managed runs alternate; the figures are the minimum over rounds. Uses one thread.
///
///   managed_bench [rounds]

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/nn/modules/transformercoder.h>
#include <torch/nn/modules/transformerlayer.h>

#include <tessera/nn/materialized.h>
#include <tessera/nn/nn.h>
#include <tessera/parallel/dispatch/managed.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

using namespace tessera;

namespace {

/// All parameters are always materialized, so this measures only the call of the materializer and its return, with one
/// mutex.
class OpenMaterializer final : public parallel::Materializer {
 public:
  void enter(std::span<const std::size_t> units, bool, const char*) override {
    const std::lock_guard lock(mutex_);
    pins_ += units.size();
  }
  void leave(std::span<const std::size_t> units) noexcept override {
    const std::lock_guard lock(mutex_);
    pins_ -= units.size();
  }

 private:
  std::mutex mutex_;
  std::size_t pins_ = 0;
};

/// Prints the milliseconds of forward and backward through 12 layers; each layer's parameters form one unit.
void print_layers(OpenMaterializer& materializer, std::int64_t d, std::int64_t tokens, int rounds) {
  const auto make = [&] {
    at::manual_seed(1);
    return torch::nn::TransformerEncoder(
        torch::nn::TransformerEncoderLayer(
            torch::nn::TransformerEncoderLayerOptions(d, 4).dim_feedforward(4 * d).dropout(0)),
        12);
  };
  auto plain = make(), managed = make();
  std::vector<std::unique_ptr<parallel::ManagedStorage>> storages;
  for (const auto& layer : managed->layers->children()) {
    std::int64_t size = 0;
    for (const at::Tensor& p : layer->parameters()) size += (p.numel() + 63) / 64 * 64;
    storages.push_back(std::make_unique<parallel::ManagedStorage>(materializer, storages.size(), size, at::kFloat,
                                                                  at::kCPU, "absent"));
    const at::Tensor buffer = at::empty({size});
    std::int64_t at = 0;
    for (const at::Tensor& p : layer->parameters()) {
      buffer.narrow(0, at, p.numel()).copy_(p.detach().reshape({-1}));
      storages.back()->adopt(p, at, p.sizes().vec(), p.strides().vec());
      at += (p.numel() + 63) / 64 * 64;
    }
    storages.back()->attach(buffer);
  }
  const at::Tensor x = at::randn({tokens, 1, d});
  const auto step = [&](torch::nn::TransformerEncoder& net) {
    const auto begin = std::chrono::steady_clock::now();
    net->forward(x).square().sum().backward();
    const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - begin;
    for (const at::Tensor& p : net->parameters()) p.mutable_grad().reset();
    return taken.count();
  };
  double plain_ms = 1e9, managed_ms = 1e9;
  for (int round = 0; round < rounds; ++round) {
    plain_ms = std::min(plain_ms, step(plain));
    managed_ms = std::min(managed_ms, step(managed));
  }
  std::printf("12 layers, d %lld, T %lld: plain %.2f ms, managed %.2f ms (%+.1f %%)\n", static_cast<long long>(d),
              static_cast<long long>(tokens), plain_ms, managed_ms, 100 * (managed_ms / plain_ms - 1));
}

double nanoseconds(const std::function<void()>& run) {
  constexpr int calls = 2000;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) run();
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count() / calls;
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 30;
  at::set_num_threads(1);
  OpenMaterializer materializer;
  const auto begin = std::chrono::steady_clock::now();
  parallel::ManagedStorage storage(materializer, 0, 96, at::kFloat, at::kCPU, "absent");
  std::printf("registering the key, once per process: %.2f ms\n",
              std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  const auto parameter = [](at::IntArrayRef sizes) { return at::randn(sizes).set_requires_grad(true); };
  const at::Tensor w = parameter({4, 4}), b = parameter({4}), managed_w = parameter({4, 4}), managed_b = parameter({4});
  storage.adopt(managed_w, 0, {4, 4}, {4, 1});
  storage.adopt(managed_b, 64, {4}, {1});
  storage.attach(at::rand({96}));
  const at::Tensor x = at::randn({4, 4}), ids = at::tensor({1, 2, 3});

  const std::pair<const char*, std::function<void(const at::Tensor&, const at::Tensor&)>> cases[] = {
      {"mul", [&](const at::Tensor& w, const at::Tensor&) { at::mul(x, w); }},
      {"mm", [&](const at::Tensor& w, const at::Tensor&) { at::mm(x, w); }},
      {"addmm", [&](const at::Tensor& w, const at::Tensor& b) { at::addmm(b, x, w); }},
      {"at::linear", [&](const at::Tensor& w, const at::Tensor& b) { at::linear(x, w, b); }},
      {"nn::linear", [&](const at::Tensor& w, const at::Tensor& b) { nn::linear(x, w, b, nn::WeightLayout::out_in); }},
      {"at::layer_norm", [&](const at::Tensor& w, const at::Tensor& b) { at::layer_norm(x, {4}, b, b); }},
      {"nn::layer_norm", [&](const at::Tensor& w, const at::Tensor& b) { nn::layer_norm(x, b, b, 1e-5); }},
      {"embedding", [&](const at::Tensor& w, const at::Tensor&) { at::embedding(w, ids); }},
      {"add", [&](const at::Tensor& w, const at::Tensor&) { at::add(x, w); }},
      {"cat", [&](const at::Tensor& w, const at::Tensor& b) { at::cat({w, w}); }},
      {"t", [&](const at::Tensor& w, const at::Tensor&) { (void)w.t(); }},
      {"view", [&](const at::Tensor& w, const at::Tensor&) { (void)w.view({2, 8}); }},
      {"detach", [&](const at::Tensor& w, const at::Tensor&) { (void)w.detach(); }},
      {"(other tensors) mul", [&](const at::Tensor&, const at::Tensor&) { at::mul(x, x); }},
      {"linear + backward",
       [&](const at::Tensor& w, const at::Tensor& b) {
         at::linear(x, w, b).sum().backward();
         w.mutable_grad().reset(), b.mutable_grad().reset();
       }},
  };
  std::printf("%-22s %9s %9s %9s\n", "operator", "plain ns", "managed", "extra");
  for (const auto& [name, run] : cases) {
    double plain = 1e9, managed = 1e9;
    for (int round = 0; round < rounds; ++round) {
      plain = std::min(plain, nanoseconds([&] { run(w, b); }));
      managed = std::min(managed, nanoseconds([&] { run(managed_w, managed_b); }));
    }
    std::printf("%-22s %9.0f %9.0f %9.0f\n", name, plain, managed, managed - plain);
  }
  double present = 1e9;
  for (int round = 0; round < rounds; ++round)
    present = std::min(present, nanoseconds([&] { const nn::Materialized nothing({&x, &w, &b}); }));
  std::printf("nn::Materialized of three plain tensors: %.1f ns\n", present);
  (void)storage.detach();
  print_layers(materializer, 256, 32, rounds);
  print_layers(materializer, 32, 8, rounds);
}
