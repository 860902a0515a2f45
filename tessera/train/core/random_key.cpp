#include <tessera/train/core/random_key.h>

#include <ATen/Context.h>

#include <mutex>

namespace tessera::train {
namespace {

std::uint64_t splitmix64(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace

std::uint64_t random_key(std::uint64_t seed, std::int64_t step, std::int64_t first_row) {
  return splitmix64(splitmix64(splitmix64(seed) + static_cast<std::uint64_t>(step)) +
                    static_cast<std::uint64_t>(first_row));
}

void key_random_numbers(c10::Device device, std::uint64_t seed, std::int64_t step, std::int64_t first_row) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(random_key(seed, step, first_row));
}

}  // namespace tessera::train
