// Training on parts of sequences compared with one process on whole sequences (docs/parallelism.md).
#include <tests/context/jobs.h>

namespace {

using namespace tessera;
using namespace tessera::testing;

struct Cell {
  Job job;
  Placement placement;
  std::string text() const {
    static constexpr const char* rows[] = {"plain", "packed", "prompts"};
    return concat(job.family->folder, ", ", rows[static_cast<int>(job.rows)], ", accumulation ", job.accumulation,
                  job.half ? ", bf16" : "", job.recompute ? ", recomputed" : "", ", dropout ", job.dropout, ", ",
                  placement.text());
  }
};

std::vector<Placement> placements(int ranks) {
  if (ranks == 2)
    return {{.method = ContextMethod::p2p}, {.method = ContextMethod::all_gather}, {.method = ContextMethod::a2a}};
  return {{.cp = 4, .method = ContextMethod::p2p},
          {.cp = 4, .method = ContextMethod::a2a},
          {.cp = 4, .method = ContextMethod::a2a_p2p},
          {.dp = 2, .strategy = "full_shard"},
          {.dp = 2, .method = ContextMethod::a2a, .strategy = "zero1"},
          {.strategy = "hybrid_shard", .replicas = 2},
          {.method = ContextMethod::p2p, .tp = 2},
          {.method = ContextMethod::a2a, .tp = 2, .sequence_parallel = true}};
}

bool fits(const Family& family, const Placement& placement) {
  const bool two_heads = std::string(family.folder).starts_with("bert");
  return !two_heads || placement.method != ContextMethod::a2a || placement.cp * placement.tp == 2;
}

/// Every family in every placement (with `few` the most different ones); kinds of batches take turns, beginning with
/// `first`.
std::vector<Cell> cells(int ranks, std::size_t first, bool few) {
  std::vector<Cell> all;
  std::size_t turn = first;
  for (const Family& family : families()) {
    if (few && !family.in_few) continue;
    for (const Placement& placement : placements(ranks)) {
      if (!fits(family, placement)) continue;
      Job job{.family = &family, .rows = static_cast<Rows>(turn % 3)};
      job.accumulation = turn % 4 == 1 ? 3 : 1;
      job.half = turn % 5 == 2;
      job.recompute = turn % 7 == 3;
      job.dropout = turn % 2 == 0 ? 0.2 : 0;
      job.steps = job.half ? 3 : 4;  // bf16 is slow on processors without bf16 matrix instructions
      all.push_back({job, placement});
      ++turn;
    }
    ++turn;  // so that a placement does not always get the same kind
  }
  return all;
}

class ContextParity : public ::testing::TestWithParam<int> {};  // ranks
INSTANTIATE_TEST_SUITE_P(Ranks, ContextParity, ::testing::Values(2, 4));

// Products in bf16 round to 4e-3, and differently for parts of different sizes.
TEST_P(ContextParity, losses_and_norms_of_some_steps) {
  const std::vector<Cell> all = cells(GetParam(), 0, /*few=*/GetParam() == 4);
  std::vector<JobRecord> expected;
  for (const Cell& cell : all) expected.push_back(train_whole(cell.job));
  run_ranks(
      GetParam(),
      [&](comm::World& world) {
        for (std::size_t i = 0; i < all.size(); ++i) {
          const JobRecord got = train_parts(world, all[i].job, all[i].placement);
          expect_equal_jobs(got, expected[i], all[i].job.half ? 3e-2 : 1e-5, all[i].text());
          if (::testing::Test::HasFailure()) return;
        }
      },
      60);
}

TEST_P(ContextParity, gradients_in_fp64) {
  std::vector<Cell> all = cells(GetParam(), 1, /*few=*/false);
  std::vector<JobRecord> expected;
  for (Cell& cell : all) {
    cell.job.type = at::kDouble;
    cell.job.half = false;
    cell.job.steps = 1;
    expected.push_back(train_whole(cell.job));
  }
  run_ranks(
      GetParam(),
      [&](comm::World& world) {
        for (std::size_t i = 0; i < all.size(); ++i) {
          const JobRecord got = train_parts(world, all[i].job, all[i].placement);
          EXPECT_EQ(got.gradients.size(), expected[i].gradients.size());
          for (const auto& [name, want] : expected[i].gradients) {
            const double size = std::max(1.0, want.abs().max().item<double>());
            EXPECT_LE((got.gradients.at(name) - want).abs().max().item<double>(), 1e-11 * size)
                << all[i].text() << ": " << name;
          }
          if (::testing::Test::HasFailure()) return;
        }
      },
      60);
}

}  // namespace
