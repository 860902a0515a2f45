#pragma once
// Ranks as threads, and the parts of a checkpoint that a resuming rank loads.

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/checkpoint/choose.h>
#include <tessera/checkpoint/read_into.h>
#include <tessera/checkpoint/stored_state.h>
#include <tessera/format/safetensors/safetensors_index.h>
#include <tessera/layout/region.h>

#include <ATen/ATen.h>

#include <barrier>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tessera::checkpoint {

/// Threads that act as ranks and exchange texts.
class Threads {
 public:
  explicit Threads(int size) : texts_(static_cast<std::size_t>(size)), barrier_(size) {}
  Ranks of(int rank) {
    return {rank, static_cast<int>(texts_.size()), [this, rank](const std::string& text) {
              texts_[static_cast<std::size_t>(rank)] = text;
              barrier_.arrive_and_wait();
              auto all = texts_;
              barrier_.arrive_and_wait();  // no rank writes its next text before all have read this one
              return all;
            }};
  }

 private:
  std::vector<std::string> texts_;
  std::barrier<> barrier_;
};

/// Returns the text that `body` yields on each of `size` ranks; for an error, its message.
inline std::vector<std::string> on_ranks(int size, const std::function<std::string(const Ranks&)>& body) {
  Threads threads(size);
  std::vector<std::string> results(static_cast<std::size_t>(size));
  std::vector<std::thread> running;
  for (int rank = 0; rank < size; ++rank)
    running.emplace_back([&, rank] {
      try {
        results[static_cast<std::size_t>(rank)] = body(threads.of(rank));
      } catch (const InputError& error) {
        results[static_cast<std::size_t>(rank)] = concat("error: ", error.what());
      }
    });
  for (std::thread& thread : running) thread.join();
  return results;
}

/// Loads and drops this rank's part, or all, of the (converted) weights and the optimizer's states.
inline void load_part(const std::string& folder, const Ranks& here, const std::shared_ptr<format::ReadSums>& sums,
                      bool whole = false) {
  const auto part = [&](std::int64_t numel) {
    if (whole) return std::pair(std::int64_t{0}, numel);
    return std::pair(numel * here.rank / here.size, numel * (here.rank + 1) / here.size);
  };
  const format::SafetensorsFolder weights(folder);
  for (const auto& stored : weights.tensors()) {
    const auto [begin, end] = part(layout::whole_region(stored.info.shape).numel());
    PieceReader(weights.files()[stored.file], sums).read(stored.info, begin, at::empty({end - begin}, at::kBFloat16));
  }
  const StoredState states(folder, sums);
  for (const auto& tensor : states.tensors()) {
    const auto [begin, end] = part(layout::whole_region(tensor.shape).numel());
    states.read(tensor.name, begin, at::empty({end - begin}));
  }
}

}  // namespace tessera::checkpoint
