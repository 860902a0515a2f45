// The part of a parameter that a tensor-parallel rank holds, and the rules of a plan that define it.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <tessera/base/error.h>
#include <tessera/layout/tensor_plan.h>
#include <tests/error_of.h>

#include <numeric>
#include <string>
#include <tuple>
#include <vector>

namespace tessera::layout {
namespace {

using testing::error_of;
using Shape = std::vector<std::int64_t>;
using Ranges = std::vector<std::pair<std::int64_t, std::int64_t>>;

TensorPart part_of(const Shape& shape, const TensorRule& rule, int rank, int ranks) {
  return tensor_part("w", shape, rule, rank, ranks);
}

/// Uniform in [begin, end): rapidcheck's inRange stays near the low end in early cases.
std::int64_t any_of(std::int64_t begin, std::int64_t end) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(begin, end));
}

struct Any {
  Shape shape;
  TensorRule rule;
  int ranks = 1;
};

/// A rule, a number of ranks and a parameter that they can divide.
Any any_cut() {
  using enum TensorStyle;
  Any any;
  any.ranks = static_cast<int>(any_of(1, 7));
  any.rule = {.pattern = "w",
              .style = *rc::gen::element(colwise, colwise_gather_output, rowwise, rowwise_split_input,
                                         embedding_rowwise, sequence_parallel, replicated)};
  const bool vector = any.rule.style != embedding_rowwise && any_of(0, 4) == 0;
  any.rule.transposed = any.rule.style != embedding_rowwise && any_of(0, 2) == 1;
  const bool by_outputs = any.rule.style == colwise || any.rule.style == colwise_gather_output;
  std::int64_t cut = 1;
  if (by_outputs) {
    any.rule.blocks = static_cast<int>(any_of(1, 4));
    const std::int64_t width = any_of(1, 4);
    if (any.rule.style == colwise && any_of(0, 3) == 0) {  // fewer heads than ranks
      any.rule.heads = any_of(1, 4);
      any.ranks = static_cast<int>(any.rule.heads * any_of(1, 4));
    } else if (any_of(0, 2) == 0) {
      any.rule.heads = any.ranks * any_of(1, 3);
    }
    cut = any.rule.blocks * width * (any.rule.heads > 0 ? any.rule.heads : any.ranks);
  } else if (any.rule.style == embedding_rowwise) {
    cut = any.ranks + any_of(0, 20);  // any sufficient number
  } else {
    cut = any.ranks * any_of(1, 5);
  }
  const std::int64_t other = any_of(1, 5);
  if (vector)
    any.shape = {by_outputs ? cut : other};
  else if (any.rule.style == embedding_rowwise || by_outputs != any.rule.transposed)
    any.shape = {cut, other};
  else
    any.shape = {other, cut};
  return any;
}

std::int64_t numel(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

/// Row-major indices in the tensor of the elements [begin, end) of a box.
std::vector<std::int64_t> elements(const Shape& tensor, const Region& box) {
  std::vector<std::int64_t> places;
  for (std::int64_t place = box.begin; place < box.end; ++place) {
    std::int64_t left = place, element = 0, stride = 1;
    for (std::size_t d = tensor.size(); d-- > 0;) {
      element += (box.offset[d] + left % box.shape[d]) * stride;
      left /= box.shape[d];
      stride *= tensor[d];
    }
    places.push_back(element);
  }
  return places;
}

/// For each element of the flattened part, its index in the flattened whole: by definition.
std::vector<std::int64_t> by_definition(const TensorPart& part) {
  std::vector<std::int64_t> indices;  // along dim
  if (part.dim >= 0)
    for (const auto& [begin, end] : part.ranges)
      for (std::int64_t i = begin; i < end; ++i) indices.push_back(i);
  const Shape own = part.shape();
  std::vector<std::int64_t> places;
  for (std::int64_t e = 0; e < numel(own); ++e) {
    std::int64_t left = e, place = 0, stride = 1;
    for (std::size_t d = own.size(); d-- > 0;) {
      const std::int64_t i = left % own[d];
      place += (static_cast<int>(d) == part.dim ? indices[static_cast<std::size_t>(i)] : i) * stride;
      left /= own[d];
      stride *= part.whole[d];
    }
    places.push_back(place);
  }
  return places;
}

RC_GTEST_PROP(TensorPlan, PartsOfAllRanksAreTheWholeAsOftenAsItIsShared, ()) {
  const Any any = any_cut();
  std::vector<int> times(static_cast<std::size_t>(numel(any.shape)));
  int sharers = 0;
  for (int rank = 0; rank < any.ranks; ++rank) {
    const TensorPart part = part_of(any.shape, any.rule, rank, any.ranks);
    RC_ASSERT(part.whole == any.shape);
    RC_ASSERT(rank == 0 || part.sharers == sharers);
    sharers = part.sharers;
    for (const std::int64_t place : by_definition(part)) ++times[static_cast<std::size_t>(place)];
    // Ranks that share a part are adjacent, and only the first of them counts it.
    if (part.dim >= 0) {
      const TensorPart first = part_of(any.shape, any.rule, rank - rank % sharers, any.ranks);
      RC_ASSERT(first.ranges == part.ranges);
    }
  }
  const bool cut = part_of(any.shape, any.rule, 0, any.ranks).dim >= 0;
  RC_ASSERT(times == std::vector<int>(times.size(), cut ? sharers : any.ranks));
}

RC_GTEST_PROP(TensorPlan, BoxesMapEveryElement, ()) {
  const Any any = any_cut();
  const TensorPart part = part_of(any.shape, any.rule, static_cast<int>(any_of(0, any.ranks)), any.ranks);
  const Shape own = part.shape();
  const auto wanted = by_definition(part);
  const std::int64_t begin = any_of(0, numel(own) + 1), end = any_of(begin, numel(own) + 1);
  std::vector<std::int64_t> got(wanted.size(), -1);
  std::size_t boxes = 0;
  for (const TensorBox& box : boxes_of(part, begin, end)) {
    check_region(box.whole, part.whole, "whole");
    check_region(box.own, own, "own");
    const auto from = elements(own, box.own), to = elements(part.whole, box.whole);
    RC_ASSERT(from.size() == to.size());
    ++boxes;
    for (std::size_t i = 0; i < from.size(); ++i) {
      const auto place = static_cast<std::size_t>(from[i]);
      if (from[i] < begin || from[i] >= end) continue;  // such elements must not occur (asserted below)
      RC_ASSERT(got[place] == -1);
      got[place] = to[i];
    }
    for (const std::int64_t place : from) RC_ASSERT(place >= begin && place < end);
  }
  RC_ASSERT(boxes <= std::max<std::size_t>(part.ranges.size(), 1));
  for (std::int64_t e = 0; e < numel(own); ++e) {
    const auto place = static_cast<std::size_t>(e);
    RC_ASSERT(got[place] == (e >= begin && e < end ? wanted[place] : -1));
  }
}

TEST(TensorPlan, parts_by_hand) {
  using enum TensorStyle;
  const auto ranges = [](const Shape& shape, const TensorRule& rule, int rank, int ranks) {
    return part_of(shape, rule, rank, ranks).ranges;
  };
  EXPECT_EQ(ranges({8, 3}, {"w", colwise}, 1, 2), (Ranges{{4, 8}}));
  EXPECT_EQ(part_of({3, 8}, {.pattern = "w", .style = colwise, .transposed = true}, 1, 2).dim, 1);
  EXPECT_EQ(part_of({8, 4}, {"w", rowwise}, 1, 2).dim, 1);
  EXPECT_EQ(part_of({8, 4}, {.pattern = "w", .style = rowwise, .transposed = true}, 1, 2).dim, 0);
  EXPECT_EQ(part_of({8}, {"w", rowwise}, 1, 2).dim, -1) << "its bias is added to the sum";
  EXPECT_EQ(part_of({8}, {"w", colwise_gather_output}, 1, 2).dim, -1) << "its bias is added to the gathered result";
  // q, k and v of GPT-2, 4 heads of 2 columns each: heads 2 and 3 of every block.
  EXPECT_EQ(ranges({24, 8}, {"w", colwise, 3, 4}, 1, 2), (Ranges{{4, 8}, {12, 16}, {20, 24}}));
  // 2 key heads of 3 columns over 4 ranks: two ranks each.
  for (int rank = 0; rank < 4; ++rank) {
    const TensorPart part = part_of({6, 8}, {"w", colwise, 1, 2}, rank, 4);
    EXPECT_EQ(part.ranges, (rank < 2 ? Ranges{{0, 3}} : Ranges{{3, 6}}));
    EXPECT_EQ(part.sharers, 2);
  }
  // A vocabulary of 37 over 4 ranks.
  std::vector<std::int64_t> rows;
  for (int rank = 0; rank < 4; ++rank) rows.push_back(part_of({37, 2}, {"w", embedding_rowwise}, rank, 4).extent());
  EXPECT_EQ(rows, (std::vector<std::int64_t>{9, 9, 9, 10}));
  EXPECT_EQ(ranges({37, 2}, {"w", colwise_gather_output}, 3, 4), (Ranges{{27, 37}}));
  EXPECT_TRUE(part_of({8}, {"w", sequence_parallel}, 0, 2).summed);
  EXPECT_TRUE(part_of({8, 2}, {"w", replicated_with_grad_allreduce}, 0, 2).summed);
  EXPECT_FALSE(part_of({8}, {"w", replicated}, 0, 2).summed);
}

TEST(TensorPlan, patterns) {
  const std::string weight = "model.layers.3.mlp.up_proj.weight";
  for (const char* pattern :
       {"model.layers.3.mlp.up_proj.weight", "model.layers.3.mlp.up_proj", "layers.*.mlp.up_proj", "mlp.up_proj.weight",
        "up_proj", "up_proj.weight", "up_proj.*", "weight", "model.layers.*.mlp.*.weight", "*", "up*", "*_proj",
        "u*p*j", "mlp.*p_proj*", "down_proj|up_proj", "layers.3.mlp.up_proj|x"})
    EXPECT_TRUE(matches(pattern, weight)) << pattern;
  for (const char* pattern :
       {"proj", "up", "layers.3", "mlp", "model.layers.up_proj", "layers.*.up_proj", "bias",
        "a.model.layers.3.mlp.up_proj.weight", "up_proj.", "", "up*x", "*_pro", "layers*up_proj", "up|down", "|"})
    EXPECT_FALSE(matches(pattern, weight)) << pattern;
  EXPECT_TRUE(matches("weight", "weight"));
  EXPECT_FALSE(matches("up", "weight"));
}

TEST(TensorPlan, words_of_every_version_of_transformers) {
  using enum TensorStyle;
  struct Word {
    const char* word;
    TensorStyle style;
    int blocks = 1;
  };
  for (const Word& each :
       {Word{"colwise", colwise}, Word{"rowwise", rowwise}, Word{"colwise_rep", colwise_gather_output},  // 4
        Word{"rowwise_rep", rowwise_split_input},                                                        // 4
        Word{"replicate", replicated},                                                                   // 4
        Word{"colwise_gather_output", colwise_gather_output},                                            // 5
        Word{"rowwise_split_input", rowwise_split_input},                                                // 5
        Word{"embedding_rowwise", embedding_rowwise},                                                    // 5
        Word{"replicated_with_grad_allreduce", replicated_with_grad_allreduce},
        Word{"sequence_parallel", sequence_parallel}, Word{"replicated", replicated},
        Word{"packed_colwise", colwise, 2}, Word{"packed_colwise:3", colwise, 3},
        Word{"packed_colwise_gather_output", colwise_gather_output, 2},
        Word{"packed_colwise_gather_output:3", colwise_gather_output, 3}}) {
    const TensorRule rule = parse_rule("layers.*.x", each.word);
    EXPECT_EQ(rule.pattern, "layers.*.x");
    EXPECT_EQ(rule.style, each.style) << each.word;
    EXPECT_EQ(rule.blocks, each.blocks) << each.word;
    EXPECT_EQ(rule.heads, 0);
  }
  for (const TensorStyle style : {colwise, colwise_gather_output, rowwise, rowwise_split_input, embedding_rowwise,
                                  sequence_parallel, replicated_with_grad_allreduce, replicated})
    EXPECT_EQ(parse_rule("x", style_name(style)).style, style);
}

TEST(TensorPlan, words_that_are_none_are_refused_with_the_nearest) {
  const auto said = [](const char* word) { return error_of([&] { (void)parse_rule("mlp.up", word); }); };
  EXPECT_EQ(said("colwize"), "tensor parallelism: mlp.up: colwize is not a style; did you mean colwise?");
  EXPECT_EQ(said("rowise_rep"), "tensor parallelism: mlp.up: rowise_rep is not a style; did you mean rowwise_rep?");
  EXPECT_EQ(said("packed_colwize:3"),
            "tensor parallelism: mlp.up: packed_colwize is not a style; did you mean packed_colwise?");
  EXPECT_NE(said("grouped_gemm").find("the styles are colwise, colwise_gather_output, "), std::string::npos);
  for (const char* word : {"packed_colwise:0", "packed_colwise:65", "packed_colwise:", "packed_colwise:x", "colwise:2",
                           "packed_colwise_gather_output:-1"})
    EXPECT_EQ(said(word), std::string("tensor parallelism: mlp.up: ") + word +
                              " is not a style; packed_colwise:N and packed_colwise_gather_output:N have N blocks, 1 "
                              "to 64, the others none");
  EXPECT_EQ(error_of([] { (void)parse_rule("", "colwise"); }),
            "tensor parallelism: a plan has an empty pattern; use a module's name or suffix");
}

// An expert that ranks 2 and 3 of 4 hold and divide; the other ranks hold nothing of it.
TEST(TensorPlan, some_ranks_hold_a_parameter_alone) {
  using enum TensorStyle;
  for (const auto& [style, dim, empty] : {std::tuple{colwise, 0, Shape{0, 4}}, std::tuple{rowwise, 1, Shape{6, 0}}}) {
    const TensorRule rule{.pattern = "w", .style = style, .first_holder = 2, .holders = 2};
    for (const int rank : {0, 1}) {
      const TensorPart part = tensor_part("w", Shape{6, 4}, rule, rank, 4);
      EXPECT_EQ(part.dim, dim);
      EXPECT_EQ(part.shape(), empty);
      EXPECT_TRUE(boxes_of(part, 0, 0).empty());
    }
    TensorRule among_two = rule;
    among_two.holders = 0;
    for (const int rank : {2, 3})
      EXPECT_EQ(tensor_part("w", Shape{6, 4}, rule, rank, 4).ranges,
                tensor_part("w", Shape{6, 4}, among_two, rank - 2, 2).ranges);
  }
  const TensorRule alone{.pattern = "w", .style = colwise, .first_holder = 1, .holders = 1};
  EXPECT_EQ(tensor_part("w", Shape{5, 4}, alone, 1, 2).shape(), (Shape{5, 4})) << "no divisibility is required";
}

TEST(TensorPlan, what_does_not_divide_is_refused_with_the_ranks_that_would) {
  EXPECT_NE(error_of([] {
              (void)part_of({8, 3}, {"w", TensorStyle::colwise_gather_output, 1, 2}, 0, 4);
            }).find("has 2 heads for 4 ranks, and its output is gathered"),
            std::string::npos);
  using enum TensorStyle;
  const auto said = [](const Shape& shape, const TensorRule& rule, int ranks) {
    return error_of([&] { (void)tensor_part("h.0.w", shape, rule, 0, ranks); });
  };
  EXPECT_EQ(said({10, 4}, {"w", colwise}, 4),
            "tensor parallelism: h.0.w has 10 outputs, which 4 ranks do not divide; possible are 1, 2, 5, 10 ranks");
  EXPECT_EQ(said({24, 4}, {"w", colwise, 1, 6}, 4),
            "tensor parallelism: h.0.w has 6 heads, which 4 ranks neither divide nor are a multiple of; possible are "
            "1, 2, 3, 6 ranks");
  EXPECT_EQ(said({24, 4}, {"w", colwise, 1, 5}, 5),
            "tensor parallelism: h.0.w has 24 outputs, which are not a multiple of 5 heads");
  EXPECT_EQ(said({10, 4}, {"w", colwise, 3}, 2),
            "tensor parallelism: h.0.w has 10 outputs, which do not form 3 equal blocks (packed_colwise:3)");
  EXPECT_EQ(said({30, 4}, {"w", colwise, 3}, 4),
            "tensor parallelism: h.0.w has 10 outputs per block, which 4 ranks do not divide; possible are 1, 2, 5, 10 "
            "ranks");
  EXPECT_EQ(said({4, 9}, {"w", rowwise}, 2),
            "tensor parallelism: h.0.w has 9 inputs, which 2 ranks do not divide; possible are 1, 3, 9 ranks");
  EXPECT_EQ(said({3, 9}, {"w", embedding_rowwise}, 4),
            "tensor parallelism: h.0.w has 3 rows for 4 ranks; each rank needs at least one");
  EXPECT_EQ(said({4, 4, 3}, {"conv", colwise}, 2),
            "tensor parallelism: h.0.w has 3 dimensions and is not a matrix, which colwise (pattern conv) is for");
  EXPECT_EQ(said({4, 4, 3}, {"conv", rowwise}, 2),
            "tensor parallelism: h.0.w has 3 dimensions and is not a matrix, which rowwise (pattern conv) is for");
  EXPECT_EQ(said({4}, {"table", embedding_rowwise}, 2),
            "tensor parallelism: h.0.w has 1 dimensions and is not a table, which embedding_rowwise (pattern table) is "
            "for");
}

TEST(TensorPart, blocks_of_different_numbers_of_heads) {
  const TensorRule rule{.pattern = "qkv_proj", .style = TensorStyle::colwise, .block_heads = {4, 2, 2}};
  EXPECT_EQ(part_of({24, 5}, rule, 0, 2).ranges, (Ranges{{0, 6}, {12, 15}, {18, 21}}));  // heads of 3
  EXPECT_EQ(part_of({24, 5}, rule, 1, 2).ranges, (Ranges{{6, 12}, {15, 18}, {21, 24}}));
  EXPECT_EQ(part_of({24}, rule, 1, 2).shape(), (Shape{12}));
  EXPECT_EQ(error_of([&] { (void)part_of({24, 5}, rule, 0, 4); }),
            "tensor parallelism: w has a block of 2 heads, which 4 ranks do not divide; possible are 1, 2 ranks");
  EXPECT_EQ(error_of([&] { (void)part_of({25, 5}, rule, 0, 2); }),
            "tensor parallelism: w has 25 outputs, which are not a multiple of 8 heads");
}

}  // namespace
}  // namespace tessera::layout
