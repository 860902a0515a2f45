// Rates of CRC-32C and of copying with a checksum, compared with memcpy: the cost of the checksum in a checkpoint's
// copy into memory.
//   checksum_rate [MiB]      (default 512: beyond the caches)
// Each rate is the best of several interleaved passes on one thread.

#include <tessera/format/manifest/crc32c.h>

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace {

double seconds(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

struct Row {
  std::string name;
  std::function<void()> work;
  double best = 1e9;
};

void report(const char* what, std::size_t bytes, int passes, std::vector<Row> rows) {
  for (int pass = 0; pass < passes; ++pass)
    for (Row& row : rows) row.best = std::min(row.best, seconds(row.work));
  std::printf("%s\n", what);
  for (const Row& row : rows)
    std::printf("  %-20s %7.2f GB/s  %4.0f %% of %s\n", row.name.c_str(), static_cast<double>(bytes) / row.best / 1e9,
                100 * rows[0].best / row.best, rows[0].name.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t large = (argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 512) << 20, small = 256 << 10;
  const auto pages = [](std::size_t size) {
    void* address = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (address == MAP_FAILED) std::abort();
    return static_cast<std::byte*>(address);
  };
  std::byte *from = pages(large), *to = pages(large);
  for (std::size_t i = 0; i < large; i += 8) std::memcpy(from + i, &i, 8);
  volatile std::uint32_t sink = 0;

  const auto pass = [&](std::size_t size, int times) {
    for (int i = 0; i < times; ++i) sink = tessera::format::crc32c({from, size}, sink);
  };
  std::vector<Row> copies = {{"memcpy", [&] { std::memcpy(to, from, large); }}};
  copies.push_back({"DigestBuilder::copy", [&] {
                      tessera::format::DigestBuilder digest;
                      digest.copy(to, {from, large});
                      sink = std::move(digest).finish().chunks[0];
                    }});
  copies.push_back({"memcpy, then digest", [&] {
                      std::memcpy(to, from, large);
                      sink = tessera::format::digest_of({to, large}).chunks[0];
                    }});
  report("CRC-32C of 256 KiB in the cache", 64 * small, 20, {{"crc32c", [&] { pass(small, 64); }}});
  report("CRC-32C from memory", large, 5, {{"crc32c", [&] { pass(large, 1); }}});
  report("copies from memory to memory", large, 7, copies);
}
