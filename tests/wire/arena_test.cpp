// The arena of shared tensors: pieces never overlap, keep their contents and are aligned; memory is reused before new
// pages are touched.
#include <tessera/wire/shm/arena.h>

#include <tessera/base/error.h>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>

namespace {

using tessera::wire::shm::Arena;
using tessera::wire::shm::MemoryRange;

constexpr std::size_t page = 4096;

/// Sparse shared memory.
struct Shared {
  explicit Shared(std::size_t bytes) : bytes(bytes) {
    data = static_cast<std::byte*>(
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    EXPECT_NE(data, MAP_FAILED);
  }
  ~Shared() { munmap(data, bytes); }
  MemoryRange region() const { return {data, bytes}; }
  /// Resident bytes of the memory.
  std::size_t resident() const {
    std::vector<unsigned char> pages(bytes / page);
    EXPECT_EQ(mincore(data, bytes, pages.data()), 0);
    std::size_t count = 0;
    for (const unsigned char p : pages) count += p & 1;
    return count * page;
  }
  std::byte* data;
  std::size_t bytes;
};

TEST(Arena, PiecesAreAlignedDisjointAndKeepTheirBytes) {
  EXPECT_TRUE(rc::check([] {
    Shared memory(std::size_t{64} << 20);
    Arena arena(memory.region(), 4 << 20);
    struct Piece {
      unsigned char* data;
      std::size_t bytes;
      unsigned char mark;
    };
    std::vector<Piece> pieces;
    const auto intact = [](const Piece& p) {
      return p.data[0] == p.mark && p.data[p.bytes / 2] == p.mark && p.data[p.bytes - 1] == p.mark;
    };
    const auto operations = *rc::gen::inRange(1, 120);
    for (int i = 0; i < operations; ++i) {
      if (pieces.empty() || *rc::gen::inRange(0, 5) < 3) {
        const auto bytes =
            *rc::gen::oneOf(rc::gen::inRange<std::size_t>(1, 3000), rc::gen::inRange<std::size_t>(3000, 300000));
        Piece p{static_cast<unsigned char*>(arena.allocate(bytes)), bytes, static_cast<unsigned char>(i)};
        const auto address = reinterpret_cast<std::uintptr_t>(p.data);
        RC_ASSERT(address % 64 == 0);
        RC_ASSERT(bytes < page || address % page == 0);
        RC_ASSERT(reinterpret_cast<std::byte*>(p.data) >= memory.data);
        RC_ASSERT(reinterpret_cast<std::byte*>(p.data) + bytes <= memory.data + memory.bytes);
        for (const Piece& other : pieces)
          RC_ASSERT(p.data + p.bytes <= other.data || other.data + other.bytes <= p.data);
        std::memset(p.data, p.mark, bytes);
        pieces.push_back(p);
      } else {
        const auto which = *rc::gen::inRange<std::size_t>(0, pieces.size());
        RC_ASSERT(intact(pieces[which]));
        arena.free(pieces[which].data);
        pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(which));
      }
      const auto s = arena.statistics();
      std::size_t asked = 0;
      for (const Piece& p : pieces) asked += p.bytes;
      RC_ASSERT(s.used >= asked);
      RC_ASSERT(s.used <= 2 * asked + pieces.size() * page);
      RC_ASSERT(s.touched_free <= (4u << 20) + 64 * Arena::returnable);
    }
    for (const Piece& p : pieces) {
      RC_ASSERT(intact(p));
      arena.free(p.data);
    }
    RC_ASSERT(arena.statistics().used == 0);
  }));
}

TEST(Arena, FreedNeighboursMergeInEveryOrder) {
  EXPECT_TRUE(rc::check([] {
    Shared memory(8 << 20);
    Arena arena(memory.region(), 8 << 20);
    std::vector<void*> pieces;
    for (int i = 0; i < 8; ++i) pieces.push_back(arena.allocate(1 << 20));
    EXPECT_THROW(arena.allocate(page), tessera::Error);
    while (!pieces.empty()) {
      const auto which = *rc::gen::inRange<std::size_t>(0, pieces.size());
      arena.free(pieces[which]);
      pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(which));
    }
    RC_ASSERT(arena.statistics().largest_free == memory.bytes);
  }));
}

TEST(Arena, RepeatedAllocationsTouchNoNewPages) {
  Shared memory(std::size_t{256} << 20);
  Arena arena(memory.region(), std::size_t{256} << 20);
  std::size_t after_first = 0;
  for (int step = 0; step < 20; ++step) {
    std::vector<void*> pieces;
    for (const std::size_t bytes : {3u << 20, 1u << 20, 100u, 70000u, 2u << 20, 600u}) {
      pieces.push_back(arena.allocate(bytes));
      std::memset(pieces.back(), step, bytes);
    }
    for (const std::size_t i : {2u, 0u, 5u, 3u, 1u, 4u}) arena.free(pieces[i]);
    if (step == 0) after_first = memory.resident();
  }
  EXPECT_EQ(memory.resident(), after_first);
}

TEST(Arena, ReturnsWhatIsMoreThanItKeeps) {
  Shared memory(std::size_t{128} << 20);
  Arena arena(memory.region(), 8 << 20);
  void* const low = arena.allocate(1 << 20);
  void* const big = arena.allocate(40 << 20);
  void* const high = arena.allocate(1 << 20);
  std::memset(big, 1, 40 << 20);
  EXPECT_GE(memory.resident(), 40u << 20);
  arena.free(big);
  EXPECT_LE(memory.resident(), 10u << 20);
  EXPECT_GE(arena.statistics().returned, 32u << 20);
  EXPECT_LE(arena.statistics().touched_free, 8u << 20);
  auto* again = static_cast<unsigned char*>(arena.allocate(40 << 20));
  EXPECT_EQ(again[20 << 20], 0);  // a returned page is zero again
  arena.free(again);
  arena.free(low);
  arena.free(high);
  EXPECT_EQ(arena.statistics().largest_free, memory.bytes);
}

TEST(Arena, SaysWhatIsMissingWhenItIsFull) {
  Shared memory(16 << 20);
  Arena arena(memory.region(), 0);
  void* const half = arena.allocate(10 << 20);
  try {
    arena.allocate((8 << 20) + 1);
    FAIL() << "8 MB from 6 MB";
  } catch (const tessera::Error& error) {
    const std::string text = error.what();
    for (const char* part : {"8388609 bytes", "largest free block has 6 MB", "10 MB of 16 MB are used"})
      EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
  }
  arena.free(half);
  arena.free(arena.allocate(16 << 20));
}

TEST(Arena, RefusesWhatItDidNotGive) {
  Shared memory(16 << 20);
  Arena arena(memory.region(), 0);
  auto* piece = static_cast<std::byte*>(arena.allocate(1 << 20));
  EXPECT_THROW(arena.free(piece + page), tessera::Error);
  arena.free(piece);
  EXPECT_THROW(arena.free(piece), tessera::Error);
  auto* small = static_cast<std::byte*>(arena.allocate(100));
  EXPECT_THROW(arena.free(small + 64), tessera::Error);
  arena.free(small);
  EXPECT_THROW(arena.free(small), tessera::Error);
}

TEST(Arena, ServesManyThreads) {
  Shared memory(std::size_t{256} << 20);
  Arena arena(memory.region(), 1 << 20);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 300; ++i) {
        const std::size_t bytes = 1 + static_cast<std::size_t>(i * 7919 * (t + 1)) % 200000;
        auto* p = static_cast<unsigned char*>(arena.allocate(bytes));
        std::memset(p, t * 50 + i % 50, bytes);
        std::this_thread::yield();
        wrong += p[0] != t * 50 + i % 50 || p[bytes - 1] != t * 50 + i % 50;
        arena.free(p);
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(arena.statistics().used, 0u);
}

TEST(Arena, IsNotTheChildsAfterAFork) {
  Shared memory(64 << 20);
  Arena arena(memory.region(), 0);
  auto* piece = static_cast<unsigned char*>(arena.allocate(8 << 20));
  std::memset(piece, 7, 8 << 20);
  const pid_t child = fork();
  if (child == 0) {
    arena.free(piece);  // drops a tensor of the parent, whose pages must stay
    bool refused = false;
    try {
      arena.allocate(100);
    } catch (const tessera::Error&) {
      refused = true;
    }
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(piece[4 << 20], 7);
  arena.free(piece);
}

}  // namespace
