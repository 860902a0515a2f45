/// \file
/// The cost of a checkpoint's checksum on one thread: {"crc_gb_s", "copy_gb_s", "copy_with_crc_gb_s"}, as medians over
/// rounds on memory larger than the caches.
///
///   checksum_bench [MEGABYTES [ROUNDS]]

#include <tessera/format/manifest/crc32c.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

using namespace tessera;

namespace {

/// GB/s of `work` over `bytes`.
template <class Work>
double rate(std::size_t bytes, const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return static_cast<double>(bytes) * 1e-9 /
         std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t bytes = static_cast<std::size_t>(argc > 1 ? std::atoll(argv[1]) : 512) << 20;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 5;
  std::vector<std::byte> from(bytes, std::byte{7}), to(bytes, std::byte{1});
  std::vector<double> crc, copy, both;
  for (int i = 0; i < rounds; ++i) {
    format::DigestBuilder alone, copying;
    crc.push_back(rate(bytes, [&] { alone.update(from); }));
    copy.push_back(rate(bytes, [&] { std::memcpy(to.data(), from.data(), bytes); }));
    both.push_back(rate(bytes, [&] { copying.copy(to.data(), from); }));
    if (!(std::move(alone).finish() == std::move(copying).finish()))
      return std::fprintf(stderr, "two checksums of the same bytes differ\n"), 1;
  }
  std::printf("{\"crc_gb_s\": %.3f, \"copy_gb_s\": %.3f, \"copy_with_crc_gb_s\": %.3f}\n", median(crc), median(copy),
              median(both));
  return 0;
}
