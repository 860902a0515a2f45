// Every row of the table (docs/sharding.md) x {ddp, zero1, zero2, full_shard} x {2, 3 processes}: equal to one process,
// or refused with the named error.
#include <tests/distributed/harness.h>
#include <tests/error_of.h>
#include <tests/sharding/access_table.h>

namespace {

using namespace tessera;
using namespace tessera::testing;

void expect_equal(const at::Tensor& got, const at::Tensor& want, const std::string& what) {
  ASSERT_EQ(got.sizes(), want.sizes()) << what;
  EXPECT_LE((got - want).abs().max().item<double>(), 2e-5) << what;
}

void try_row(comm::World& world, const Access& row, const std::string& strategy) {
  const std::string what = concat(row.name, ", ", strategy, ", ", world.size(), " processes");
  at::manual_seed(3);
  Run job{.world = &world, .strategy = strategy};
  const std::string& refusal = row.sharded_refusal.empty() || strategy == "ddp" ? row.refusal : row.sharded_refusal;
  const std::string error = error_of<std::exception>([&] { row.program(job); });
  if (!refusal.empty()) {
    EXPECT_NE(error.find(refusal), std::string::npos)
        << what << ": " << (error.empty() ? "no error" : error) << "; expected: " << refusal;
    return;
  }
  ASSERT_EQ(error, "") << what;
  at::manual_seed(3);
  Run alone;
  row.program(alone);
  const auto got = job.weights(), want = alone.weights();
  ASSERT_GE(got.size(), 5u) << what;
  for (const auto& [name, value] : got) expect_equal(value, want.at(name), concat(what, ": ", name));
  ASSERT_EQ(job.notes.size(), alone.notes.size()) << what;
  for (std::size_t i = 0; i < alone.notes.size(); ++i)
    expect_equal(job.notes[i], alone.notes[i], concat(what, ": note ", i));
}

class AccessTable : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Processes, AccessTable, ::testing::Values(2, 3));

TEST_P(AccessTable, equals_one_process_or_is_refused_by_name) {
  EXPECT_GE(accesses_by_optimizers().size() + accesses_by_modules().size(), 60u);
  run_ranks(
      GetParam(),
      [](comm::World& world) {
        for (const auto* rows : {&accesses_by_optimizers(), &accesses_by_modules(), &accesses_in_loops()})
          for (const Access& row : *rows)
            for (const char* strategy : {"ddp", "zero1", "zero2", "full_shard"}) try_row(world, row, strategy);
      },
      120);
}

}  // namespace
