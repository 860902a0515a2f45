// Every family on every mesh of tp, sp and dp gives the results of one process: losses, norms, gradients, weights.
#include <tests/tensor/families.h>

namespace {

using namespace tessera;
using namespace tessera::testing;

void check(int ranks, const std::vector<Form>& forms, const Training& training, double of) {
  std::map<std::string, Run> wanted;
  for (const Family& family : families()) wanted[family.name] = train_alone(family, training);
  RankOptions limits;
  limits.timeout_s = 120;
  run_ranks(
      ranks,
      [&](comm::World& world) {
        for (const Form& form : forms)
          for (const Family& family : families())
            expect_same(train_on_mesh(world, family, form, training), wanted.at(family.name), of,
                        concat(family.name, " on ", form.mesh, " ", form.strategy,
                               form.sequence_parallel ? " with sequence parallelism" : ""));
      },
      limits);
}

TEST(TensorParity, two_ranks) { check(2, {{"tp=2", "ddp"}, {"tp=2", "ddp", true}}, {}, 1e-5); }

TEST(TensorParity, two_ranks_in_fp64) {
  check(2, {{"tp=2", "ddp"}, {"tp=2", "ddp", true}}, {.steps = 2, .dtype = at::kDouble}, 1e-11);
}

TEST(TensorParity, four_ranks_share_the_two_key_heads) {
  check(4, {{"tp=4", "ddp"}, {"tp=4", "ddp", true}}, {.steps = 3}, 1e-5);
}

TEST(TensorParity, with_every_strategy) {
  check(4,
        {{"dp=2,tp=2", "full_shard"},
         {"dp=2,tp=2", "zero1", true},
         {"dp=2,tp=2", "zero2"},
         {"dp=2,tp=2", "shard_grad_op", true},
         {"dp=2,tp=2", "ddp", true},
         {"dp=2,tp=2", "full_shard", true}},
        {.steps = 3}, 1e-5);
}

TEST(TensorParity, packed_documents_and_accumulation) {
  check(4, {{"dp=2,tp=2", "full_shard", true}, {"dp=2,tp=2", "zero1"}},
        {.steps = 3, .documents = true, .accumulation = 2}, 1e-5);
}

TEST(TensorParity, dropout_drops_the_same_on_every_mesh) {
  check(2, {{"tp=2", "ddp"}, {"tp=2", "ddp", true}}, {.steps = 2, .dtype = at::kDouble, .dropout = 0.2}, 1e-11);
  check(2, {{"dp=2", "full_shard"}, {"dp=2", "ddp"}}, {.steps = 3, .dropout = 0.2}, 1e-5);
  check(4, {{"tp=4", "ddp", true}, {"dp=2,tp=2", "full_shard", true}},
        {.steps = 3, .documents = true, .accumulation = 2, .dropout = 0.2}, 1e-5);
}

}  // namespace
