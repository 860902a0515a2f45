#pragma once
/// \file
/// Runs ranks that use the C interface as forked processes, so that one of them can be killed.

#include <tessera/base/file.h>
#include <tessera/c/tessera_c.h>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace tessera::testing {

/// One rank's failed checks, collected until its end.
struct Complaints {
  std::string text;
  int count = 0;
  void add(const std::string& what) {
    if (++count <= 10) text += what + "\n";
  }
};

struct Rank {
  int rank = 0, size = 1;
  tessera_world world = 0;
  tessera_group group = 0;
  Complaints complaints = {};

  void expect(bool holds, const std::string& what) {
    if (!holds) complaints.add(what);
  }
  /// Checks the call's status; returns its message.
  std::string status(tessera_status got, tessera_status expected, const std::string& what) {
    const std::string sentence = got == TESSERA_OK ? "" : tessera_last_error();
    if (got != expected) {
      complaints.add(what + ": " + tessera_status_name(got) + " instead of " + tessera_status_name(expected) + ": " +
                     sentence);
    }
    return sentence;
  }
  void ok(tessera_status got, const std::string& what) { status(got, TESSERA_OK, what); }
};

inline tessera_options options_of(const char* transport) {
  tessera_options options;
  tessera_options_init(&options);
  options.transport = transport;
  options.timeout_ms = 60'000;
  options.connect_timeout_ms = 60'000;
  return options;
}

/// The number of ranks if tests/scripts/mpi.sh started this process under mpirun, else 0.
inline int ranks_of_mpirun() {
  const char* const ranks = std::getenv("TESSERA_TEST_MPI_RANKS");
  return ranks == nullptr ? 0 : std::atoi(ranks);
}

/// Runs body in this process, a rank under mpirun.
inline void run_rank(int n, const char* transport, const std::function<void(Rank&)>& body) {
  static int worlds = 0;
  const std::string name = "test " + std::to_string(worlds++);
  Rank rank{-1, n};
  const tessera_options options = options_of(transport);
  rank.ok(tessera_init_environment(name.c_str(), &options, &rank.world), "init");
  rank.ok(tessera_rank(rank.world, &rank.rank), "rank");
  rank.ok(tessera_size(rank.world, &rank.size), "size");
  rank.expect(rank.size == n, "a world of " + std::to_string(rank.size) + " ranks");
  rank.ok(tessera_world_group(rank.world, &rank.group), "world group");
  char used[16] = {};
  rank.ok(tessera_group_transport(rank.group, used, sizeof used, nullptr), "transport");
  rank.expect(std::string(used) == transport, used);
  if (rank.complaints.count == 0) body(rank);
  tessera_shutdown(rank.world);
  EXPECT_EQ(rank.complaints.count, 0) << "rank " << rank.rank << " of " << n << ":\n" << rank.complaints.text;
}

/// Runs body on n processes that join through a folder, or in this one under mpirun; their complaints fail the test.
/// `killed`: this rank may end abnormally, and its complaints are ignored.
inline void run_processes(int n, const char* transport, const std::function<void(Rank&)>& body, int killed = -1) {
  if (ranks_of_mpirun() > 0) return run_rank(n, transport, body);
  const TemporaryFolder folder;
  std::vector<pid_t> children;
  std::fflush(nullptr);
  for (int r = 0; r < n; ++r) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    Rank rank{r, n};
    const tessera_options options = options_of(transport);
    rank.ok(tessera_init_folder((folder.path() + "/store").c_str(), r, n, "test", &options, &rank.world), "init");
    rank.ok(tessera_world_group(rank.world, &rank.group), "world group");
    if (rank.complaints.count == 0) body(rank);
    if (r != killed) tessera_shutdown(rank.world);  // ends the connections in order: peers may still read from them
    if (rank.complaints.count > 0) {
      std::fprintf(stderr, "rank %d of %d (%s): %d complaints\n%s", r, n, transport, rank.complaints.count,
                   rank.complaints.text.c_str());
    }
    std::fflush(nullptr);
    _exit(rank.complaints.count == 0 ? 0 : 1);
  }
  for (int r = 0; r < n; ++r) {
    int status = 0;
    ASSERT_EQ(waitpid(children[static_cast<std::size_t>(r)], &status, 0), children[static_cast<std::size_t>(r)]);
    if (r == killed) continue;
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "rank " << r << " of " << n << ", " << transport;
  }
}

}  // namespace tessera::testing
