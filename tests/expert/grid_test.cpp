// Every family with experts on every grid of tp, ep and etp equals one process: losses, norms, gradients, routers.
#include <tests/expert/mixtures.h>

namespace {

using namespace tessera;
using namespace tessera::testing;

const std::vector<std::string> families_with_experts = {"mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "deepseek_v3"};

struct Case {
  Grid grid;
  int passes;  ///< passes of one process: number of data-parallel ranks
};

void check(int ranks, const std::vector<Case>& cases, double capacity, nn::DropBy drop = nn::DropBy::probability) {
  for (const std::string& family : families_with_experts) {
    const Mixture mixture{.name = family, .capacity = capacity, .drop = drop};
    const std::int64_t experts = load_mixture(mixture)->balance().experts;
    std::map<int, MixtureRun> wanted;
    for (const Case& test : cases)
      if (!wanted.contains(test.passes)) wanted[test.passes] = mixture_alone(mixture, test.passes);
    if (capacity > 0) {
      EXPECT_GT(wanted.begin()->second.dropped, 0) << family;
    }
    RankOptions limits;
    limits.timeout_s = 120;
    run_ranks(
        ranks,
        [&](comm::World& world) {
          for (const Case& test : cases) {
            if (experts % layout::parse_mesh(test.grid.mesh, ranks).ep != 0) continue;
            expect_same_mixture(mixture_on_grid(world, mixture, test.grid), wanted.at(test.passes), 1e-11,
                                concat(family, " on ", test.grid.mesh, test.grid.sequence_parallel ? " with sp" : ""));
          }
        },
        limits);
  }
}

TEST(ExpertGrid, two_ranks_of_tp_cut_every_expert) { check(2, {{{"tp=2"}, 1}, {{"tp=2", true}, 1}}, 0); }

TEST(ExpertGrid, two_ranks_of_tp_have_whole_experts) {
  check(2, {{{"tp=2,ep=2,etp=1"}, 1}, {{"tp=2,ep=2,etp=1", true}, 1}}, 0);
}

TEST(ExpertGrid, four_ranks) {
  check(4,
        {{{"dp=2,tp=2,ep=2"}, 2},
         {{"dp=2,tp=2,ep=2", true}, 2},
         {{"dp=2,tp=2,ep=4,etp=1"}, 2},
         {{"dp=2,tp=2,ep=2,etp=1", true, "full_shard"}, 2},
         {{"tp=4,ep=2,etp=2", true}, 1}},
        0);
}

TEST(ExpertGrid, capacity) {
  check(2, {{{"tp=2"}, 1}, {{"tp=2", true}, 1}, {{"tp=2,ep=2,etp=1", true}, 1}}, 0.7);
  check(4, {{{"dp=2,tp=2,ep=2", true}, 2}, {{"dp=2,tp=2,ep=4,etp=1"}, 2}}, 0.7, nn::DropBy::position);
}

}  // namespace
