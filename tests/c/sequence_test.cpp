// Random call sequences by ranks that are threads of one process: every call must return, and a group that has not
// failed must give correct results.
#include <gtest/gtest.h>

#include <tessera/base/file.h>
#include <tessera/c/tessera_c.h>

#include <atomic>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace tessera::testing {
namespace {

constexpr int buffer = 70'000;

// One rank's calls. `plan` is the same on all ranks; `own`, for misuse and local calls, differs.
class Caller {
 public:
  Caller(int rank, int size, tessera_world world, std::uint64_t seed)
      : rank_(rank), size_(size), world_(world), plan_(seed), own_(seed * 31 + static_cast<std::uint64_t>(rank)) {
    EXPECT_EQ(tessera_world_group(world_, &all_), TESSERA_OK);
    groups_.push_back(all_);
    for (auto* data : {&a_, &b_}) data->resize(static_cast<std::size_t>(4 * (buffer + 1000) * size_));
  }

  void run(int steps, bool disagree) {
    for (int step = 0; step < steps; ++step) {
      together(disagree && step == steps - 1 && rank_ == size_ - 1);
      misuse();
    }
    for (const tessera_work work : works_) {
      tessera_work_wait(work, -1, nullptr);
      EXPECT_EQ(tessera_work_free(work), TESSERA_OK);
    }
  }

 private:
  int pick(std::mt19937_64& random, int n) { return static_cast<int>(random() % static_cast<std::uint64_t>(n)); }

  void together(bool differently) {
    const int what = pick(plan_, 14), dtype = pick(plan_, 12), op = pick(plan_, 8), root = pick(plan_, size_);
    const int large = pick(plan_, 6) == 0 ? buffer / 16 : 300;
    const std::int64_t n = pick(plan_, large + 1) + (differently && what > 1 ? 1 : 0);
    const tessera_group group = groups_[static_cast<std::size_t>(pick(plan_, static_cast<int>(groups_.size())))];
    tessera_work work = 0;
    tessera_work* const handle = pick(plan_, 3) == 0 ? &work : nullptr;
    settle();  // one operation at a time may use a buffer
    void *a = a_.data(), *b = b_.data();
    switch (what) {
      case 0:
        if (n % 3 == 0 && groups_.size() < 6) {
          tessera_group made = 0;
          if (tessera_group_split(all_, 0, static_cast<std::int32_t>(own_()), "fuzz", &made) == TESSERA_OK) {
            groups_.push_back(made);
          }
        }
        break;
      case 1:
        if (groups_.size() > 1 && n % 2 == 0) {
          tessera_barrier(groups_.back(), nullptr, nullptr);
          tessera_group_destroy(groups_.back());
          groups_.pop_back();
        }
        break;
      case 2:
      case 3:
        tessera_all_reduce(group, a, pick(plan_, 2) == 0 ? a : b, n, dtype, op, nullptr, handle);
        break;
      case 4:
        tessera_reduce(group, a, b, n, dtype, op, root, nullptr, handle);
        break;
      case 5:
        tessera_broadcast(group, a, n, dtype, root, nullptr, handle);
        break;
      case 6:
        tessera_all_gather(group, a, b, n, dtype, nullptr, handle);
        break;
      case 7:
        tessera_gather(group, a, b, n, dtype, root, nullptr, handle);
        break;
      case 8:
        tessera_scatter(group, a, b, n, dtype, root, nullptr, handle);
        break;
      case 9:
        tessera_reduce_scatter(group, a, b, n, dtype, op, nullptr, handle);
        break;
      case 10:
        tessera_all_to_all(group, a, b, n, dtype, nullptr, handle);
        break;
      case 11: {
        std::vector<std::int64_t> counts;
        for (int r = 0; r < size_; ++r) counts.push_back(n / (r + 1));
        tessera_all_gather_v(group, a, b, counts.data(), dtype, nullptr, handle);
        break;
      }
      case 12: {
        tessera_batch_begin(group);
        for (int i = 0; i < 3; ++i) {
          const auto at = static_cast<std::size_t>(16 * i * (n + 1));
          tessera_all_reduce(group, a_.data() + at, a_.data() + at, n, dtype, TESSERA_SUM, nullptr, nullptr);
        }
        tessera_batch_end(group, handle);
        break;
      }
      default:
        check_sum(group);
    }
    if (work != 0) works_.push_back(work);
  }

  void check_sum(tessera_group group) {
    std::int64_t number = 1;
    if (tessera_all_reduce(group, &number, &number, 1, TESSERA_INT64, TESSERA_SUM, nullptr, nullptr) == TESSERA_OK) {
      EXPECT_EQ(number, size_);
    }
  }

  void settle() {
    for (const tessera_work work : works_) {
      std::int32_t ended = 0;
      if (pick(own_, 2) == 0) tessera_work_test(work, &ended);
      tessera_work_wait(work, -1, nullptr);
      EXPECT_EQ(tessera_work_free(work), TESSERA_OK);
    }
    works_.clear();
  }

  // Each of these is refused and has no effect.
  void misuse() {
    const auto handle = own_() % 3 == 0 ? own_() : own_() % 2'000'020;
    std::int32_t n = 0;
    tessera_group group = 0;
    switch (pick(own_, 10)) {
      case 0:
        tessera_rank(handle == world_ ? 0 : handle, nullptr);
        break;
      case 1:
        EXPECT_NE(tessera_all_reduce(all_, a_.data(), b_.data(), -1 - static_cast<std::int64_t>(own_() >> 2),
                                     pick(own_, 12), 0, nullptr, nullptr),
                  TESSERA_OK);
        break;
      case 2:
        EXPECT_NE(tessera_broadcast(all_, a_.data(), 1, 20 + pick(own_, 100), 0, nullptr, nullptr), TESSERA_OK);
        break;
      case 3:
        EXPECT_NE(tessera_recv(all_, a_.data(), 1, 0, size_ + pick(own_, 9), 0, nullptr, nullptr, nullptr), TESSERA_OK);
        break;
      case 4:
        EXPECT_NE(tessera_work_free(handle), TESSERA_OK);
        break;
      case 5:
        EXPECT_NE(tessera_memory_free(&n), TESSERA_OK);
        break;
      case 6:
        EXPECT_NE(tessera_group_create(world_, &rank_, 0, "x", &group), TESSERA_OK);
        break;
      case 7:
        EXPECT_NE(tessera_all_gather_v(all_, a_.data(), b_.data(), nullptr, 0, nullptr, nullptr), TESSERA_OK);
        break;
      case 8: {
        char text[64];
        std::int64_t needed = 0;
        EXPECT_EQ(tessera_report(world_, text, pick(own_, 64), &needed), TESSERA_OK);
        break;
      }
      default: {
        void* memory = nullptr;
        EXPECT_EQ(tessera_memory_allocate(1 + pick(own_, 5'000), &memory), TESSERA_OK);
        EXPECT_EQ(tessera_memory_free(memory), TESSERA_OK);
      }
    }
  }

  const std::int32_t rank_;
  const int size_;
  const tessera_world world_;
  tessera_group all_ = 0;
  std::mt19937_64 plan_, own_;
  std::vector<tessera_group> groups_;
  std::vector<tessera_work> works_;
  std::vector<std::uint8_t> a_, b_;
};

void run_sequence(std::uint64_t seed, int size, const char* transport, bool disagree) {
  SCOPED_TRACE("seed " + std::to_string(seed) + ", " + std::to_string(size) + " ranks, " + transport);
  const TemporaryFolder folder;
  std::vector<std::thread> ranks;
  for (int r = 0; r < size; ++r) {
    ranks.emplace_back([&, r] {
      tessera_options options;
      tessera_options_init(&options);
      options.transport = transport;
      options.timeout_ms = 20'000;
      options.connect_timeout_ms = 20'000;
      tessera_world world = 0;
      ASSERT_EQ(tessera_init_folder(folder.path().c_str(), r, size, "fuzz", &options, &world), TESSERA_OK)
          << tessera_last_error();
      Caller(r, size, world, seed).run(25, disagree);
      EXPECT_EQ(tessera_shutdown(world), TESSERA_OK);
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

// TESSERA_C_SEQUENCES sets the number of sequences; a campaign uses thousands.
TEST(Sequences, EndAndGiveWhatTheyShould) {
  const char* wanted = std::getenv("TESSERA_C_SEQUENCES");
  const int count = wanted == nullptr ? 12 : std::atoi(wanted);
  for (int i = 0; i < count; ++i) {
    const auto seed = static_cast<std::uint64_t>(i) + (wanted == nullptr ? 0 : 1000);
    run_sequence(seed, 1 + i % 3, i % 2 == 0 ? "shm" : "tcp", i % 4 == 3);
  }
}

}  // namespace
}  // namespace tessera::testing
