// Batches cut into parts.
#include <tests/context/jobs.h>
#include <tests/error_of.h>

namespace {

using namespace tessera;
using namespace tessera::testing;

std::vector<std::int64_t> numbers(const at::Tensor& x) {
  const at::Tensor flat = x.contiguous();
  return {flat.data_ptr<std::int64_t>(), flat.data_ptr<std::int64_t>() + flat.numel()};
}
using Numbers = std::vector<std::int64_t>;

TEST(CutBatch, of_two_ranks) {
  run_ranks(2, [](comm::World& world) {
    const ContextGroups ring = context_groups(world.group(), ContextMethod::p2p),
                        ulysses = context_groups(world.group(), ContextMethod::a2a);
    data::Batch batch;
    batch.ids = at::arange(10, 24).view({2, 7});
    batch.labels = batch.ids.clone();
    batch.labels[0][0] = batch.labels[1][0] = batch.labels[1][3] = data::not_scored;
    batch.document_starts = {0, 7, 10};
    batch.scored_tokens = batch.labels_not_ignored = 11;
    batch.tokens = 14;

    // Seven tokens and one of padding, in chunks of two: rank 0 holds chunks 0 and 3, rank 1 chunks 1 and 2.
    const data::Batch zigzag = cut_batch(batch, ring, data::Objective::Kind::next_token);
    const bool first = world.rank() == 0;
    EXPECT_EQ(numbers(zigzag.ids),
              first ? (Numbers{10, 11, 16, 0, 17, 18, 23, 0}) : (Numbers{12, 13, 14, 15, 19, 20, 21, 22}));
    EXPECT_EQ(numbers(zigzag.part->targets),
              first ? (Numbers{11, 12, -100, -100, 18, 19, -100, -100}) : (Numbers{13, 14, 15, 16, -100, 21, 22, 23}));
    EXPECT_EQ(numbers(zigzag.part->positions),
              first ? (Numbers{0, 1, 6, 0, 0, 1, 3, 0}) : (Numbers{2, 3, 4, 5, 2, 0, 1, 2}));
    EXPECT_EQ(zigzag.part->length, 8);
    EXPECT_EQ(zigzag.part->longest, 7);
    EXPECT_EQ(zigzag.document_starts, (Numbers{0, 8, 11}));
    EXPECT_EQ(zigzag.lengths, (Numbers{7, 7}));
    EXPECT_EQ(zigzag.scored_tokens, first ? 4 : 7);
    EXPECT_EQ(zigzag.tokens, first ? 6 : 8);

    // Consecutive tokens; without documents, the positions of one row serve all rows.
    batch.document_starts.clear();
    batch.types = at::ones({2, 7}, at::kLong);
    const data::Batch halves = cut_batch(batch, ulysses, data::Objective::Kind::masked_token);
    EXPECT_EQ(numbers(halves.ids),
              first ? (Numbers{10, 11, 12, 13, 17, 18, 19, 20}) : (Numbers{14, 15, 16, 0, 21, 22, 23, 0}));
    EXPECT_EQ(numbers(halves.part->positions), first ? (Numbers{0, 1, 2, 3}) : (Numbers{4, 5, 6, 0}));
    EXPECT_EQ(numbers(halves.types), first ? (Numbers{1, 1, 1, 1, 1, 1, 1, 1}) : (Numbers{1, 1, 1, 0, 1, 1, 1, 0}));
    EXPECT_EQ(halves.scored_tokens, first ? 5 : 6) << "labels at their own positions, not shifted";

    // A model without an attention function for parts reports that before it sends anything.
    const auto model = make_family(families()[0], at::kFloat);
    EXPECT_NE(error_of<InputError>([&] { (void)model->loss(zigzag, 1); }).find("call set_attention() first"),
              std::string::npos);
  });
}

TEST(CutBatch, of_one_rank_is_the_batch) {
  run_ranks(1, [](comm::World& world) {
    data::Batch batch;
    batch.ids = batch.labels = at::arange(3).view({1, 3});
    const data::Batch cut =
        cut_batch(batch, context_groups(world.group(), ContextMethod::p2p), data::Objective::Kind::next_token);
    EXPECT_TRUE(cut.ids.is_same(batch.ids));
    EXPECT_EQ(cut.part, nullptr);
  });
}

}  // namespace
