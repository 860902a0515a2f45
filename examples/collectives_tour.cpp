// The collectives, one by one: the data of every rank before and after. Start it with any launcher and any number of
// ranks:
//
//   tessera launch --nproc_per_node 4 build/examples/collectives_tour
//   mpirun -n 4 build/examples/collectives_tour                        (or alone: build/examples/collectives_tour)
//
// Rank r starts with numbers r0 r1 r2 ... (so 21 is number 1 of rank 2), so that one can see where each of them goes.
// Every table is checked against the definition of its collective; the program exits with 1 if one is wrong.

#include <tessera/tessera.h>
#include "run_main.h"

#include <ATen/ATen.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <thread>

namespace {

using tessera::comm::Group;
using tessera::comm::Reduction;

/// "count" numbers of one rank: 10 r + i.
at::Tensor numbers(int rank, std::int64_t count) { return at::arange(count, at::kFloat) + 10 * rank; }

/// Returns the numbers of all ranks, [R, count].
at::Tensor everybodys(int ranks, std::int64_t count) {
  std::vector<at::Tensor> rows;
  for (int r = 0; r < ranks; ++r) rows.push_back(numbers(r, count));
  return at::stack(rows);
}

std::string text(const at::Tensor& row) {
  if (row.numel() == 0) return "-";
  std::string line;
  for (std::int64_t i = 0; i < row.numel(); ++i) {
    char number[32];
    std::snprintf(number, sizeof number, "%s%02.0f", i > 0 ? " " : "", row[i].item<double>());
    line += number;
  }
  return line;
}

/// Gathers rows of different lengths, one per rank, on rank 0, which is itself a collective: first the lengths, then
/// the rows, padded to the longest one.
std::vector<at::Tensor> on_rank_0(const Group& group, const at::Tensor& mine) {
  const std::int64_t ranks = group.size();
  at::Tensor lengths = at::empty({ranks}, at::kLong);
  group.all_gather(lengths, at::tensor({mine.numel()}, at::kLong)).wait();
  const std::int64_t longest = std::max<std::int64_t>(1, lengths.max().item<std::int64_t>());
  at::Tensor padded = at::zeros({longest});
  padded.narrow(0, 0, mine.numel()).copy_(mine);
  at::Tensor all = group.rank() == 0 ? at::empty({ranks, longest}) : at::Tensor();
  group.gather(all, padded, /*root=*/0).wait();
  std::vector<at::Tensor> rows;
  for (std::int64_t r = 0; r < ranks && group.rank() == 0; ++r)
    rows.push_back(all[r].narrow(0, 0, lengths[r].item<std::int64_t>()));
  return rows;
}

class Tour {
 public:
  explicit Tour(const Group& group) : group_(group) {}

  /// Prints the table; `expected(rank)` is the data that the rank must have after the operation.
  void show(const char* name, const std::string& story, const at::Tensor& before, const at::Tensor& after,
            const std::function<at::Tensor(int)>& expected) {
    const auto befores = on_rank_0(group_, before), afters = on_rank_0(group_, after);
    if (group_.rank() != 0) return;
    std::printf("\n%s: %s\n  rank  %-36s  after\n", name, story.c_str(), "before");
    for (int r = 0; r < group_.size(); ++r) {
      const auto i = static_cast<std::size_t>(r);
      std::printf("  %4d  %-36s  %s\n", r, text(befores[i]).c_str(), text(afters[i]).c_str());
      if (!at::equal(afters[i], expected(r))) {
        std::printf("  rank %d should hold %s\n", r, text(expected(r)).c_str());
        wrong_ = true;
      }
    }
  }
  bool wrong() const { return wrong_; }

 private:
  const Group& group_;
  bool wrong_ = false;
};

void run(const Group& group, Tour& tour, bool one_host) {
  const int rank = group.rank(), ranks = group.size();
  const at::Tensor none = at::empty({0});
  const at::Tensor pairs = everybodys(ranks, 2), wide = everybodys(ranks, ranks);

  {
    at::Tensor data = numbers(rank, 2);
    group.broadcast(data, /*root=*/0).wait();
    tour.show("broadcast", "rank 0's numbers to every rank (DDP: the weights at the start)", numbers(rank, 2), data,
              [&](int) { return pairs[0]; });
  }
  {
    const at::Tensor all = rank == 0 ? numbers(0, 2 * ranks) : at::Tensor();
    at::Tensor mine = at::empty({2});
    group.scatter(mine, all, /*root=*/0).wait();
    tour.show("scatter", "rank 0 gives every rank its part (DataParallel: the batch)", rank == 0 ? all : none, mine,
              [&](int r) { return numbers(0, 2 * ranks).narrow(0, 2 * r, 2); });
  }
  {
    at::Tensor all = rank == 0 ? at::empty({2 * ranks}) : at::Tensor();
    group.gather(all, numbers(rank, 2), /*root=*/0).wait();
    tour.show("gather", "rank 0 collects every rank's part (DataParallel: the outputs)", numbers(rank, 2),
              rank == 0 ? all : none, [&](int r) { return r == 0 ? pairs.flatten() : none; });
  }
  {
    at::Tensor data = numbers(rank, 2);
    group.reduce(data, /*root=*/0, Reduction::sum).wait();
    tour.show("reduce", "the sum over ranks, on rank 0 (DataParallel: the gradients)", numbers(rank, 2), data,
              [&](int r) { return r == 0 ? pairs.sum(0) : pairs[r]; });
  }
  {
    at::Tensor data = numbers(rank, 2);
    group.all_reduce(data, Reduction::sum).wait();
    tour.show("all-reduce", "the sum over ranks, on every rank (DDP: the gradients)", numbers(rank, 2), data,
              [&](int) { return pairs.sum(0); });
  }
  {
    at::Tensor all = at::empty({2 * ranks});
    group.all_gather(all, numbers(rank, 2)).wait();
    tour.show("all-gather", "every rank's part, on every rank (FSDP: the parameters)", numbers(rank, 2), all,
              [&](int) { return pairs.flatten(); });
  }
  {
    at::Tensor mine = at::empty({1});
    group.reduce_scatter(mine, numbers(rank, ranks), Reduction::sum).wait();
    tour.show("reduce-scatter", "part r of the sum, on rank r (ZeRO: the gradients)", numbers(rank, ranks), mine,
              [&](int r) { return wide.sum(0).narrow(0, r, 1); });
  }
  {
    at::Tensor received = at::empty({ranks});
    group.all_to_all(received, numbers(rank, ranks)).wait();
    tour.show("all-to-all", "number r of every rank to rank r: a transposed matrix (experts: the tokens)",
              numbers(rank, ranks), received, [&](int r) { return wide.select(1, r); });
  }
  if (ranks > 1) {
    at::Tensor received = at::empty({2});
    const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    // started first on every rank, so that neither waits for the other
    auto sending = group.send(numbers(rank, 2), next);
    group.recv(received, previous).wait();
    sending.wait();
    tour.show("send, recv", "from every rank to the next one, in a ring (pipelines: activations)", numbers(rank, 2),
              received, [&](int r) { return pairs[(r + ranks - 1) % ranks]; });
  }

  using Clock = std::chrono::steady_clock;
  const auto seconds = [] { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); };
  std::this_thread::sleep_for(std::chrono::milliseconds(20 * rank));
  at::Tensor came = at::tensor({seconds()}, at::kDouble);
  group.barrier().wait();
  at::Tensor left = at::tensor({seconds()}, at::kDouble);
  group.all_reduce(came, Reduction::max).wait();
  group.all_reduce(left, Reduction::min).wait();
  // clocks of different hosts are not comparable
  const bool held = !one_host || left.item<double>() >= came.item<double>();
  if (!held) throw tessera::Error("barrier: a rank left before the last one came");
  if (rank == 0)
    std::printf("\nbarrier: no rank left before the last one, which came %d ms late, had arrived\n", 20 * (ranks - 1));
}

}  // namespace

static void example(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto environment = tessera::launch::read_rank_environment(&arguments);  // removes --local-rank=N
  if (!arguments.empty()) throw tessera::InputError("collectives_tour: unknown argument '" + arguments[0] + "'");
  tessera::comm::World& world = tessera::init(environment, {});
  const Group& group = world.group();
  if (group.rank() == 0) std::printf("%d ranks, backend %s\n", group.size(), group.backend().c_str());
  Tour tour(group);
  run(group, tour, world.local_size() == world.size());
  if (tour.wrong()) throw tessera::Error("collectives_tour: a collective gave a wrong result (see above)");
  tessera::shutdown();
}

int main(int argc, char** argv) { return run_main(example, argc, argv); }
