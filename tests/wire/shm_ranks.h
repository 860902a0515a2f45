#pragma once
/// \file
/// Ranks of a shared-memory group as threads of this process, each with its own segment, which the others map.
/// Torch-free, so that sanitizers can run it.

#include <tessera/wire/shm/work_queue.h>

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace tessera::wire::shm::testing {

struct Rank {
  int rank, size;
  Segment& segment;
  WorkQueue& queue;
  std::byte* next_arena;

  /// Allocates from the rank's own arena; never freed.
  std::byte* arena(std::size_t bytes) {
    std::byte* piece = next_arena;
    next_arena += (bytes + 127) / 64 * 64;
    return piece;
  }
};

/// Runs body on n threads. An exception from a body fails the test.
inline void run_team(int n, const std::function<void(Rank&)>& body, int host_ranks = 64,
                     std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  std::vector<std::string> announcements(static_cast<std::size_t>(n));
  std::barrier gate(n);
  std::vector<std::thread> threads;
  for (int r = 0; r < n; ++r) {
    threads.emplace_back([&, r] {
      Segment segment(SegmentSizes{std::size_t{1} << 30, std::size_t{1} << 30});
      CommunicatorOptions options;
      options.name = "group";
      options.rank = options.job_rank = r;
      options.host_ranks = host_ranks;
      options.timeout = timeout;
      auto communicator = std::make_unique<Communicator>(segment, options);
      announcements[static_cast<std::size_t>(r)] = communicator->announcement();
      gate.arrive_and_wait();
      communicator->connect(announcements);
      gate.arrive_and_wait();
      {
        WorkQueue queue(std::move(communicator));
        Rank rank{r, n, segment, queue, segment.arena().data};
        try {
          body(rank);
        } catch (const std::exception& error) {
          ADD_FAILURE() << "rank " << r << " of " << n << ": " << error.what();
          queue.close();
        }
        gate.arrive_and_wait();  // no rank leaves while others still use its memory
        queue.close();
      }
      gate.arrive_and_wait();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

inline launch::Entry entry_of(launch::Op op, std::uint64_t sequence, std::int64_t numel, int root = -1,
                              const char* reduction = "", const char* tag = "") {
  launch::Entry entry;
  entry.op = op;
  entry.sequence = sequence;
  entry.numel = numel;
  entry.peer = root;
  entry.fingerprint = static_cast<std::uint64_t>(op) * 1000003 + static_cast<std::uint64_t>(root + 1) * 7919 +
                      static_cast<std::uint64_t>(numel) * 31 + static_cast<std::uint64_t>(*reduction);
  std::string(reduction).copy(entry.reduction, 7);
  std::string(tag).copy(entry.tag, 31);
  std::string("int32").copy(entry.dtype, 15);
  std::string("group").copy(entry.group, 31);
  return entry;
}

}  // namespace tessera::wire::shm::testing
