// The backend shm with real processes: the conformance suite, concurrent groups, arena tensors mixed with ordinary
// ones, the death of a peer, and that a job leaves nothing behind.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <tessera/comm/recorder.h>
#include <tessera/comm/shared_memory.h>
#include <tessera/wire/shm/segment.h>

#include <tests/distributed/conformance.h>
#include <tests/distributed/harness.h>
#include <tests/stopwatch.h>

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <random>

namespace {

using namespace tessera;
using namespace tessera::testing;
using comm::empty_shared;

RankOptions patient() {
  RankOptions options;
  options.timeout_s = 120;
  return options;
}

class Shm : public ::testing::TestWithParam<int> {};

TEST_P(Shm, conforms) {
  run_ranks(
      GetParam(),
      [](comm::World& world) {
        EXPECT_EQ(world.group().backend(), "shm");
        conformance_all(world.group());
      },
      patient());
}

TEST_P(Shm, sixteen_megabytes) {
  run_ranks(GetParam(), [](comm::World& world) { check_large(world.group()); }, patient());
}

INSTANTIATE_TEST_SUITE_P(Ranks, Shm, ::testing::Values(2, 3, 4, 8));

TEST(ShmGroups, overlapping_groups_work_at_the_same_time) {
  run_ranks(
      4,
      [](comm::World& world) {
        const int rank = world.rank();
        Group low = world.new_group({0, 1}, "low"), high = world.new_group({2, 3}, "high");
        Group even = world.new_group({0, 2}, "even"), odd = world.new_group({1, 3}, "odd");
        const Group half = rank < 2 ? low : high, parity = rank % 2 == 0 ? even : odd;
        for (int round = 0; round < 20; ++round) {
          std::vector<at::Tensor> tensors;
          std::vector<Work> works;
          for (const std::int64_t n : {10, 40000, 300000}) {
            for (int g = 0; g < 3; ++g) tensors.push_back(at::full({n}, rank + 1.0f));
            // Each half starts them in a different order: groups do not wait for each other.
            const auto at = tensors.size() - 3;
            if (rank < 2) {
              works.push_back(half.all_reduce(tensors[at]));
              works.push_back(parity.all_reduce(tensors[at + 1]));
            } else {
              works.push_back(parity.all_reduce(tensors[at + 1]));
              works.push_back(half.all_reduce(tensors[at]));
            }
            works.push_back(world.group().all_reduce(tensors[at + 2]));
          }
          for (auto work = works.rbegin(); work != works.rend(); ++work) work->wait();
          for (std::size_t i = 0; i < tensors.size(); i += 3) {
            EXPECT_EQ(tensors[i][-1].item<float>(), rank < 2 ? 3 : 7);
            EXPECT_EQ(tensors[i + 1][-1].item<float>(), rank % 2 == 0 ? 4 : 6);
            EXPECT_EQ(tensors[i + 2][-1].item<float>(), 10);
          }
        }
      },
      patient());
}

// Arena tensors on some ranks and ordinary ones on others, at odd offsets, give the same result.
TEST(ShmArena, mixes_with_ordinary_tensors) {
  run_ranks(
      3,
      [](comm::World& world) {
        const Group& group = world.group();
        const int rank = group.rank(), size = group.size();
        for (const std::int64_t n : {1000, 100001}) {
          for (int mask = 0; mask < 8; ++mask) {
            const bool shared = (mask >> rank & 1) != 0;
            const auto make = [&](std::int64_t count) {
              const at::Tensor t = shared ? empty_shared({count + 1}) : at::empty({count + 1});
              return t.narrow(0, 1, count);
            };
            at::Tensor t = make(n), whole = make(n * size), part = make(n);
            const at::Tensor mine = sample(group, at::kFloat, n, rank);
            t.copy_(mine);
            group.all_reduce(t).wait();
            expect_equal(t, expected_reduction(group, at::kFloat, n, Reduction::sum),
                         concat("all_reduce, mask ", mask));
            part.copy_(mine);
            group.all_gather(whole, part).wait();
            for (int r = 0; r < size; ++r) {
              expect_equal(whole.narrow(0, r * n, n), sample(group, at::kFloat, n, r),
                           concat("all_gather, mask ", mask));
            }
            whole.copy_(sample(group, at::kFloat, n * size, rank));
            group.reduce_scatter(part, whole, Reduction::mean).wait();
            expect_equal(part, expected_reduction(group, at::kFloat, n * size, Reduction::mean).narrow(0, rank * n, n),
                         concat("reduce_scatter, mask ", mask));
          }
        }
      },
      patient());
}

// The caller may overwrite its tensor as soon as wait() returns, even if other ranks read it in place.
TEST(ShmArena, nobody_reads_a_tensor_after_its_wait) {
  run_ranks(
      4,
      [](comm::World& world) {
        const Group& group = world.group();
        at::Tensor input = empty_shared({200000 * 4}), part = empty_shared({200000}),
                   whole = empty_shared({200000 * 4});
        for (int round = 0; round < 30; ++round) {
          input.fill_(group.rank() + round);
          group.reduce_scatter(part, input).wait();
          input.fill_(-1000);
          EXPECT_EQ(part.min().item<float>(), 6 + 4 * round);
          EXPECT_EQ(part.max().item<float>(), 6 + 4 * round);
          part.fill_(group.rank());
          group.all_gather(whole, part).wait();
          part.fill_(-1000);
          EXPECT_EQ(whole.sum().item<double>(), 200000 * 6.0);
        }
      },
      patient());
}

/// Files in /dev/shm whose names contain the pid: other programs have files there, too.
std::vector<std::string> shared_memory_files(const std::string& pid) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
    if (const std::string name = entry.path().filename(); name.find(pid) != std::string::npos) names.push_back(name);
  return names;
}

TEST(ShmFailures, a_killed_peer_is_named_within_a_second_and_leaves_nothing) {
  for (const std::int64_t n : {std::int64_t{100}, std::int64_t{1} << 20, std::int64_t{16} << 20}) {
    RankOptions options;
    options.end_after_failure = false;
    options.timeout_s = 300;
    const auto outcomes = run_ranks_outcomes(
        4,
        [n](comm::World& world) {
          post(concat(getpid()));
          at::Tensor t = at::ones({n});
          world.group().all_reduce(t).wait();
          std::vector<Work> works;
          const comm::Tag tag("bucket 5");
          std::thread killer;
          if (world.rank() == 2) {
            killer = std::thread([] {
              std::this_thread::sleep_for(std::chrono::milliseconds(30));
              raise(SIGKILL);
            });
          }
          std::optional<Stopwatch> last;  // time of the operation in flight
          try {
            while (true) {
              last.emplace();
              world.group().all_reduce(t).wait();
            }
          } catch (const Error& error) {
            post(error.what());
            post(std::to_string(last->seconds() / last->limit(1)));
          }
          if (killer.joinable()) killer.join();
        },
        options);
    for (const std::size_t rank : {0u, 1u, 3u}) {
      const auto& posted = outcomes[rank].posted;
      ASSERT_EQ(posted.size(), 3u) << outcomes[rank].error;
      for (const char* word : {"rank 2 (pid ", "is gone", "bucket 5"}) {
        EXPECT_NE(posted[1].find(word), std::string::npos) << word << " is not in: " << posted[1];
      }
      EXPECT_LT(std::stod(posted[2]), 1) << "times the limit: " << posted[1];
    }
    for (const RankOutcome& outcome : outcomes)
      EXPECT_EQ(shared_memory_files(outcome.posted.at(0)), std::vector<std::string>{});
  }
}

TEST(ShmFailures, a_peer_that_leaves_is_named) {
  RankOptions options;
  options.end_after_failure = false;
  const auto outcomes = run_ranks_outcomes(
      2,
      [](comm::World& world) {
        world.group().barrier().wait();
        if (world.rank() == 1) _exit(0);
        try {
          world.group().recv(at::ones({4}), 1).wait();
        } catch (const Error& error) {
          post(error.what());
        }
      },
      options);
  ASSERT_EQ(outcomes[0].posted.size(), 1u);
  EXPECT_NE(outcomes[0].posted[0].find("rank 1 (pid "), std::string::npos) << outcomes[0].posted[0];
}

// A small /dev/shm, as in containers, does not matter: memfd has no such limit.
TEST(ShmSmall, works_with_64_megabytes_of_dev_shm) {
  RankOptions options = patient();
  options.before_init = [](launch::RankEnvironment&, InitOptions&) {
    if (unshare(CLONE_NEWNS) != 0) return;  // not root: the limit is not set, but the rest still runs
    mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
    mount("none", "/dev/shm", "tmpfs", 0, "size=64m");
  };
  run_ranks(
      2,
      [](comm::World& world) {
        at::Tensor t = empty_shared({40 << 20});  // 160 MB
        t.fill_(1);
        world.group().all_reduce(t).wait();
        EXPECT_EQ(t[-1].item<float>(), 2);
      },
      options);
}

TEST(ShmSmall, works_under_limits_of_file_size_and_address_space) {
  for (const int which : {RLIMIT_FSIZE, RLIMIT_AS}) {
    RankOptions options = patient();
    options.before_init = [which](launch::RankEnvironment&, InitOptions&) {
      const rlim_t bytes = which == RLIMIT_FSIZE ? rlim_t{256} << 20 : rlim_t{40} << 30;
      const rlimit limit{bytes, bytes};
      setrlimit(static_cast<__rlimit_resource>(which), &limit);
    };
    run_ranks(2, [](comm::World& world) { check_reductions(world.group(), at::kFloat, 200001); }, options);
  }
}

// ---- segments
// --------------------------------------------------------------------------------------------------------

using wire::shm::PeerSegment;
using wire::shm::Segment;

std::string refusal(const std::string& address) {
  try {
    PeerSegment peer(address);
    return "accepted";
  } catch (const Error& error) {
    return error.what();
  }
}

std::string with(const std::string& address, int place, const std::string& word) {
  std::istringstream in(address);
  std::string text, part;
  for (int i = 0; in >> part; ++i) text += (i == 0 ? "" : " ") + (i == place ? word : part);
  return text;
}

TEST(ShmSegment, foreign_and_stale_ones_are_refused) {
  Segment segment(wire::shm::SegmentSizes{std::size_t{64} << 20, std::size_t{64} << 20});
  const std::string address = segment.address();
  EXPECT_EQ(refusal(address), "accepted");
  EXPECT_NE(refusal("").find("not the address"), std::string::npos);
  EXPECT_NE(refusal("rubbish").find("not the address"), std::string::npos);
  EXPECT_NE(refusal(with(address, 3, std::string(32, 'a'))).find("stale"), std::string::npos);
  EXPECT_NE(refusal(with(address, 2, "4194304")).find("bytes instead of"), std::string::npos);
  EXPECT_NE(refusal(with(address, 1, "999")).find("refused"), std::string::npos);
  EXPECT_NE(refusal(with(address, 0, "4194303")).find("may have ended"), std::string::npos);

  const auto imitation = [&](const char* content, mode_t mode, std::size_t bytes) {
    const int fd = static_cast<int>(syscall(SYS_memfd_create, "imitation", MFD_CLOEXEC));
    EXPECT_EQ(ftruncate(fd, static_cast<off_t>(bytes)), 0);
    EXPECT_EQ(fchmod(fd, mode), 0);
    EXPECT_GE(pwrite(fd, content, 8, 0), 0);
    const std::string answer = refusal(concat(getpid(), " ", fd, " ", bytes, " ", std::string(32, 'a')));
    close(fd);
    return answer;
  };
  EXPECT_NE(imitation("TESSSHM", 0600, 4 << 20).find("different build"), std::string::npos);
  EXPECT_NE(imitation("ELFELFE", 0600, 4 << 20).find("foreign"), std::string::npos);
  EXPECT_NE(imitation("TESSSHM", 0644, 4 << 20).find("mode"), std::string::npos);
}

TEST(ShmSegment, of_another_user_are_refused) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  Segment segment(wire::shm::SegmentSizes{std::size_t{4} << 20, 0});
  const pid_t child = fork();
  if (child == 0) {
    if (setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0) _exit(1);
    const std::string answer = refusal(segment.address());
    if (write(ends[1], answer.data(), answer.size()) < 0) _exit(2);
    _exit(0);
  }
  close(ends[1]);
  char text[1000] = {};
  EXPECT_GT(read(ends[0], text, sizeof text - 1), 0);
  close(ends[0]);
  waitpid(child, nullptr, 0);
  EXPECT_NE(std::string(text).find("refused"), std::string::npos) << text;
}

TEST(ShmSegment, cannot_be_shrunk_under_its_readers) {
  Segment segment(wire::shm::SegmentSizes{std::size_t{4} << 20, 0});
  std::istringstream words(segment.address());
  int pid = 0, fd = 0;
  words >> pid >> fd;
  EXPECT_NE(ftruncate(fd, 4096), 0);
  EXPECT_EQ(errno, EPERM);
}

// The heap: pieces never overlap, and adjacent free pieces are merged.
TEST(ShmSegment, its_heap_gives_pieces_that_do_not_overlap) {
  constexpr std::size_t heap = std::size_t{64} << 20;
  Segment segment(wire::shm::SegmentSizes{heap, 0});
  std::mt19937 random(3);
  std::vector<std::pair<std::byte*, std::size_t>> pieces;
  for (int i = 0; i < 3000; ++i) {
    if (pieces.size() > 20 && random() % 2 == 0) {
      const auto at = random() % pieces.size();
      segment.free(pieces[at].first);
      pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(at));
      continue;
    }
    if (pieces.size() > 60) continue;
    const std::size_t bytes = random() % 300000 + 1;
    std::byte* piece = segment.allocate(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(piece) % 4096, 0u);
    for (const auto& [other, size] : pieces) EXPECT_TRUE(piece + bytes <= other || other + size <= piece);
    pieces.emplace_back(piece, bytes);
  }
  for (const auto& piece : pieces) segment.free(piece.first);
  segment.free(segment.allocate(heap));
  EXPECT_THROW(segment.allocate(heap + 1), Error);
}

}  // namespace
