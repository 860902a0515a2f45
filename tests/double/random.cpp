#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/GeneratorImpl.h>

#include <tests/double/order.h>
#include <tests/double/random.h>

#include <cstring>
#include <mutex>
#include <vector>

namespace cuda_double {
namespace {

class Source final : public c10::GeneratorImpl {
 public:
  explicit Source(c10::DeviceIndex device)
      : GeneratorImpl(c10::Device(c10::kCUDA, device), c10::DispatchKeySet(c10::DispatchKey::CUDA)) {}

  void set_current_seed(std::uint64_t seed) override {
    seed_ = seed;
    offset_ = 0;
  }
  void set_offset(std::uint64_t offset) override { offset_ = offset; }
  std::uint64_t get_offset() const override { return offset_; }
  std::uint64_t current_seed() const override { return seed_; }
  std::uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom(false));
    return seed_;
  }
  void set_state(const c10::TensorImpl& state) override {
    TORCH_CHECK(state.numel() == 16, "RNG state of ", state.numel(), " bytes where CUDA's has 16");
    const auto* bytes = static_cast<const char*>(state.data());
    std::memcpy(&seed_, bytes, 8);
    std::memcpy(&offset_, bytes + 8, 8);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    const at::Tensor state = at::empty({16}, at::TensorOptions(at::kCPU).dtype(at::kByte));
    auto* bytes = static_cast<char*>(state.data_ptr());
    std::memcpy(bytes, &seed_, 8);
    std::memcpy(bytes + 8, &offset_, 8);
    return state.getIntrusivePtr();
  }

  /// splitmix64 of seed and offset (Steele, Lea and Flood 2014).
  std::uint64_t take() {
    std::uint64_t x = seed_ + 0x9E3779B97F4A7C15u * (offset_ + 1);
    offset_ += 4;  // CUDA's operators take a multiple of four
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
  }

 private:
  GeneratorImpl* clone_impl() const override {
    auto* copy = new Source(device_.index());
    copy->seed_ = seed_;
    copy->offset_ = offset_;
    return copy;
  }

  std::uint64_t seed_ = c10::default_rng_seed_val, offset_ = 0;
};

}  // namespace

at::Generator new_generator(int device) {
  return at::make_generator<Source>(static_cast<c10::DeviceIndex>(device < 0 ? current_device() : device));
}

const at::Generator& default_generator(int device) {
  static const auto* all = [] {
    auto* list = new std::vector<at::Generator>;
    for (int d = 0; d < device_count(); ++d) list->push_back(new_generator(d));
    return list;
  }();
  return all->at(static_cast<std::size_t>(device < 0 ? current_device() : device));
}

std::uint64_t take_seed(at::Generator generator) {
  const std::lock_guard lock(generator.mutex());
  return generator.get<Source>()->take();
}

}  // namespace cuda_double
