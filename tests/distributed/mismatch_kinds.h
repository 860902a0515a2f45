#pragma once
/// \file
/// The ways in which ranks can call different collectives, and what a rank observes then. Used by the tests of all
/// transports.

#include <ATen/ATen.h>

#include <tessera/comm/recorder.h>
#include <tests/distributed/harness.h>
#include <tests/stopwatch.h>

#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace tessera::testing {

/// Two groups of all ranks.
struct MismatchGroups {
  comm::Group world, again;
};

struct MismatchKind {
  const char* name;
  std::vector<const char*> words;  ///< expected in the error, if the transport compares the operations themselves
  void (*start)(const MismatchGroups& groups, int rank);  ///< performs the mismatched calls
  int ranks = 2;
  bool one_leaves = false;    ///< rank 1 ends after start() without an error
  bool by_transport = false;  ///< not part of the recorded signature: only a transport that compares operations can
                              ///< detect it
};

inline const std::vector<MismatchKind>& mismatch_kinds() {
  using comm::Reduction;
  using comm::Tag;
  using Groups = MismatchGroups;
  static constexpr auto ones = [](std::int64_t n, at::ScalarType dtype = at::kFloat) { return at::ones({n}, dtype); };
  static const std::vector<MismatchKind> kinds = {
      {"operation",
       {"all_reduce", "broadcast"},
       [](const Groups& g, int rank) {
         (rank == 0 ? g.world.all_reduce(ones(1000)) : g.world.broadcast(ones(1000), 0)).wait();
       }},
      {"dtype",
       {"float32", "float64"},
       [](const Groups& g, int rank) { g.world.all_reduce(ones(1000, rank == 0 ? at::kFloat : at::kDouble)).wait(); }},
      {"dtype of the same width",
       {"float32", "int32"},
       [](const Groups& g, int rank) { g.world.all_reduce(ones(1000, rank == 0 ? at::kFloat : at::kInt)).wait(); }},
      {"size",
       {"1000 x float32", "2000 x float32"},
       [](const Groups& g, int rank) { g.world.all_reduce(ones(rank == 0 ? 1000 : 2000)).wait(); }},
      {"size of large ones",
       {"1048576 x float32", "1048584 x float32"},
       [](const Groups& g, int rank) { g.world.all_reduce(ones((1 << 20) + 8 * rank)).wait(); }},
      {"nothing against something",
       {"all_reduce"},
       [](const Groups& g, int rank) { g.world.all_reduce(ones(rank == 0 ? 1000 : 0)).wait(); }},
      {"root", {"broadcast"}, [](const Groups& g, int rank) { g.world.broadcast(ones(1000), rank).wait(); }},
      {"reduction",
       {"sum", "max"},
       [](const Groups& g, int rank) {
         g.world.all_reduce(ones(1000), rank == 0 ? Reduction::sum : Reduction::max).wait();
       }},
      // Only the tag differs: the numbers would be added to those of a different unit.
      {"tag",
       {"tag 'layer 3'", "tag 'layer 4'"},
       [](const Groups& g, int rank) {
         const Tag tag(rank == 0 ? "layer 3" : "layer 4");
         g.world.all_reduce(ones(1000)).wait();
       }},
      {"order",
       {"all_reduce", "broadcast"},
       [](const Groups& g, int rank) {
         if (rank == 0) g.world.all_reduce(ones(1000)).wait();
         g.world.broadcast(ones(500), 0).wait();
         if (rank == 1) g.world.all_reduce(ones(1000)).wait();
       }},
      {"order of buckets, asynchronous",
       {"1000 x float32", "3000 x float32"},
       [](const Groups& g, int rank) {
         comm::Work a = g.world.all_reduce(ones(rank == 0 ? 1000 : 3000));
         comm::Work b = g.world.all_reduce(ones(rank == 0 ? 3000 : 1000));
         a.wait();
         b.wait();
       }},
      {"order of two groups",
       {"group 'world'", "group 'again'"},
       [](const Groups& g, int rank) {
         (rank == 0 ? g.world : g.again).all_reduce(ones(1000)).wait();
         (rank == 0 ? g.again : g.world).all_reduce(ones(1000)).wait();
       }},
      {"a call left out",
       {"all_reduce", "barrier"},
       [](const Groups& g, int rank) {
         if (rank == 0) g.world.all_reduce(ones(1000)).wait();
         g.world.barrier().wait();
       }},
      {"a call too many",
       {"all_reduce", "barrier"},
       [](const Groups& g, int rank) {
         g.world.all_reduce(ones(1000)).wait();
         if (rank == 1) g.world.barrier().wait();
         g.world.all_reduce(ones(1000)).wait();
       }},
      {"the last call left out",
       {"all_reduce"},
       [](const Groups& g, int rank) {
         if (rank == 0) g.world.all_reduce(ones(1000)).wait();
       },
       2,
       true},
      {"splits",
       {"all_to_all"},
       [](const Groups& g, int rank) {
         const std::vector<std::int64_t> splits =
             rank == 0 ? std::vector<std::int64_t>{2, 4} : std::vector<std::int64_t>{3, 2};
         g.world.all_to_all(ones(6 - rank), ones(6 - rank), splits, splits).wait();
       },
       2,
       false,
       true},
      {"parts of a scatter",
       {"scatter", "8 x float32", "5 x float32"},
       [](const Groups& g, int rank) { g.world.scatter(ones(4 + rank), rank == 0 ? ones(8) : at::Tensor(), 0).wait(); },
       2,
       false,
       true},
      {"a collective against a message",
       {"all_reduce", "recv"},
       [](const Groups& g, int rank) {
         if (rank == 0) return g.world.all_reduce(ones(1000)).wait();
         g.world.recv(ones(1000), 0).wait();
       }},
      {"size of a message",
       {"send", "64 x float32"},
       [](const Groups& g, int rank) {
         (rank == 0 ? g.world.send(ones(64), 1, 3) : g.world.recv(ones(65), 0, 3)).wait();
       },
       2,
       false,
       true},
      {"dtype of a message",
       {"send", "64 x float32"},
       [](const Groups& g, int rank) {
         (rank == 0 ? g.world.send(ones(64), 1, 3) : g.world.recv(ones(64, at::kInt), 0, 3)).wait();
       },
       2,
       false,
       true},
      {"both receive, nobody sends",
       {"recv"},
       [](const Groups& g, int rank) { g.world.recv(ones(1000), 1 - rank).wait(); }},
      {"all_gather against reduce_scatter",
       {"all_gather", "reduce_scatter"},
       [](const Groups& g, int rank) {
         at::Tensor whole = ones(2000), part = ones(1000);
         (rank == 0 ? g.world.all_gather(whole, part) : g.world.reduce_scatter(part, whole)).wait();
       }},
      {"one of three ranks",
       {"4096 x float32", "4095 x float32"},
       [](const Groups& g, int rank) { g.world.all_reduce(ones(rank == 1 ? 4096 : 4095)).wait(); },
       3},
  };
  return kinds;
}

/// The observation of one rank: seconds from start() to the error, and the error; empty if nothing was detected within
/// five times the limit.
struct MismatchSeen {
  double seconds = 0, limit = 0;  ///< the limit: one second, scaled on a busy machine
  std::string error;
};

/// Runs one kind with a backend; returns each rank's observation, nullopt for ranks that report none (they left or
/// died: `texts`).
inline std::vector<std::optional<MismatchSeen>> run_mismatch(const MismatchKind& kind, const std::string& backend,
                                                             std::string& texts) {
  RankOptions options;
  options.timeout_s = 300;
  options.init.backend = backend;
  options.end_after_failure = false;
  const auto body = [&](comm::World& world) {
    std::vector<int> everyone;
    for (int r = 0; r < world.size(); ++r) everyone.push_back(r);
    const MismatchGroups groups{world.group(), world.new_group(everyone, "again")};
    for (int i = 0; i < 3; ++i) groups.world.all_reduce(at::ones({100})).wait();
    groups.world.barrier().wait();
    const Stopwatch watch;
    const auto say = [&](const std::string& error) { post(concat(watch.seconds(), " ", watch.limit(1), "\n", error)); };
    try {
      {
        const comm::Tag tag("step 7");
        kind.start(groups, world.rank());
      }
      if (kind.one_leaves) return;
      // A mismatch that the transport accepted is detected while the program continues.
      while (watch.seconds() < watch.limit(5)) {
        groups.world.all_reduce(at::ones({100})).wait();
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      say("");
    } catch (const Error& error) {
      say(error.what());
    }
  };
  std::vector<std::optional<MismatchSeen>> seen;
  for (const RankOutcome& outcome : run_ranks_outcomes(kind.ranks, body, options)) {
    texts += concat("\n    rank ", seen.size(), ": ", outcome.error);
    seen.emplace_back();
    for (const RankOutcome::Failure& failure : outcome.failures) texts += " " + failure.text;
    if (outcome.posted.empty()) continue;
    const std::string& text = outcome.posted.front();
    const std::size_t end = text.find('\n');
    seen.back() = MismatchSeen{std::stod(text), std::stod(text.substr(text.find(' '))), text.substr(end + 1)};
    texts +=
        concat(text.substr(0, end), " s: ", seen.back()->error.empty() ? "nothing was thrown" : seen.back()->error);
  }
  return seen;
}

inline bool has_word(const std::string& text, const std::string& word) { return text.find(word) != std::string::npos; }

}  // namespace tessera::testing
