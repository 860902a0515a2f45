// Models that do not fit a mesh: the violated rule, its numbers, and alternatives that fit.

#include <tessera/layout/mesh_rules.h>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/layout/sequence.h>

#include <tests/error_of.h>

namespace tessera::layout {
namespace {

using tessera::testing::error_of;
using enum ContextMethod;
using Change = MeshProblem::Change;

const ModelSizes gpt2 = {"GPT-2", 12, 0, 3072, 50257};
const ModelSizes llama = {"Llama", 32, 8, 14336, 128256};
const ModelSizes qwen = {"Qwen3", 16, 2, 3072, 151936};
const ModelSizes tiny = {"tiny", 8, 8, 96, 3};
const ModelSizes odd = {"odd", 6, 3, 100, 257};

MeshUse tokens(std::int64_t sequence, bool sequence_parallel = false, ContextMethod method = p2p, int head_ranks = 0) {
  return {.sequence = sequence, .sequence_parallel = sequence_parallel, .method = method, .head_ranks = head_ranks};
}

TEST(MeshRules, WhatDoesNotFitIsRefusedWithWhatDoes) {
  struct Row {
    const char* mesh;
    ModelSizes model;
    MeshUse use;
    const char* error;
  };
  const Row rows[] = {
      {"tp=5",
       gpt2,
       {},
       "tp=5: all ranks need the same number of attention heads, but the 12 of GPT-2 are not divisible by 5; tp may be "
       "1 | "
       "tp=5: the "
       "MLP's intermediate size 3072 of GPT-2 is not divisible by 5; tp may be 1"},
      {"tp=7",
       gpt2,
       {},
       "tp=7: all ranks need the same number of attention heads, but the 12 of GPT-2 are not divisible by 7; tp may be "
       "1 | "
       "tp=7: the "
       "MLP's intermediate size 3072 of GPT-2 is not divisible by 7; tp may be 1"},
      {"tp=8",
       gpt2,
       {},
       "tp=8: all ranks need the same number of attention heads, but the 12 of GPT-2 are not divisible by 8; tp may be "
       "1, "
       "2, 4"},
      {"dp=4,tp=9",
       gpt2,
       {},
       "tp=9: all ranks need the same number of attention heads, but the 12 of GPT-2 are not divisible by 9; tp may be "
       "1, "
       "2, 3, 4, 6, "
       "12 | tp=9: the MLP's intermediate size 3072 of GPT-2 is not divisible by 9; tp may be 1, 2, 3, 4, 6, 12"},
      {"dp=2,tp=24",
       gpt2,
       {},
       "tp=24: all ranks need the same number of attention heads, but the 12 of GPT-2 are not divisible by 24; tp may "
       "be "
       "1, 2, 3, 4, "
       "6, 12"},
      {"tp=3",
       llama,
       {},
       "tp=3: all ranks need the same number of attention heads, but the 32 of Llama are not divisible by 3; tp may be "
       "1 | "
       "tp=3: the "
       "MLP's intermediate size 14336 of Llama is not divisible by 3; tp may be 1"},
      {"dp=2,tp=5",
       llama,
       {},
       "tp=5: all ranks need the same number of attention heads, but the 32 of Llama are not divisible by 5; tp may be "
       "1, "
       "2 | tp=5: "
       "the MLP's intermediate size 14336 of Llama is not divisible by 5; tp may be 1, 2"},
      {"tp=6",
       llama,
       {},
       "tp=6: all ranks need the same number of attention heads, but the 32 of Llama are not divisible by 6; tp may be "
       "1, "
       "2 | tp=6: "
       "the MLP's intermediate size 14336 of Llama is not divisible by 6; tp may be 1, 2"},
      {"tp=64",
       llama,
       {},
       "tp=64: all ranks need the same number of attention heads, but the 32 of Llama are not divisible by 64; tp may "
       "be "
       "1, 2, 4, 8, "
       "16, 32"},
      {"dp=3,tp=10",
       llama,
       {},
       "tp=10: all ranks need the same number of attention heads, but the 32 of Llama are not divisible by 10; tp may "
       "be "
       "1, 2 | tp=10: "
       "the MLP's intermediate size 14336 of Llama is not divisible by 10; tp may be 1, 2"},
      {"tp=3",
       qwen,
       {},
       "tp=3: all ranks need the same number of attention heads, but the 16 of Qwen3 are not divisible by 3; tp may be "
       "1"},
      {"tp=32",
       qwen,
       {},
       "tp=32: all ranks need the same number of attention heads, but the 16 of Qwen3 are not divisible by 32; tp may "
       "be "
       "1, 2, 4, 8, "
       "16"},
      {"tp=2",
       odd,
       {},
       "tp=2: the number of key and value heads must be a multiple of tp, or a divisor (then several ranks share a "
       "head); odd has "
       "3; tp may be 1"},
      {"tp=6", odd, {}, "tp=6: the MLP's intermediate size 100 of odd is not divisible by 6; tp may be 1"},
      {"tp=4",
       odd,
       {},
       "tp=4: all ranks need the same number of attention heads, but the 6 of odd are not divisible by 4; tp may be 1"},
      {"dp=3,tp=2",
       odd,
       {},
       "tp=2: the number of key and value heads must be a multiple of tp, or a divisor (then several ranks share a "
       "head); odd has "
       "3; tp may be 1"},
      {"tp=4",
       tiny,
       {},
       "tp=4: each rank needs rows of the embedding, but the vocabulary of tiny has 3; tp may be 1, 2"},
      {"tp=8",
       tiny,
       {},
       "tp=8: each rank needs rows of the embedding, but the vocabulary of tiny has 3; tp may be 1, 2"},
      {"tp=1", gpt2, tokens(1024, true),
       "tp=1: sequence_parallel needs several ranks of tp; with these ranks only tp 1 fits: remove sequence_parallel"},
      {"dp=4", llama, tokens(1024, true), "tp=1: sequence_parallel needs several ranks of tp; tp may be 2, 4"},
      {"dp=5", llama, tokens(1024, true),
       "tp=1: sequence_parallel needs several ranks of tp; with these ranks only tp 1 fits: remove sequence_parallel"},
      {"tp=4", gpt2, tokens(1022, true),
       "the sequence of 1022 tokens must be divisible by tp = 4 (sequence_parallel); make it 1020, 1024"},
      {"tp=2", llama, tokens(7, true),
       "the sequence of 7 tokens must be divisible by tp = 2 (sequence_parallel); make it 6, 8"},
      {"tp=8", llama, tokens(4, true),
       "the sequence of 4 tokens must be divisible by tp = 8 (sequence_parallel); make it 8"},
      {"cp=2", gpt2, tokens(1022),
       "the sequence of 1022 tokens must be divisible by 2 x 2, two chunks for each rank of the ring (cp=2); make it "
       "1020, "
       "1024"},
      {"cp=4", gpt2, tokens(1020),
       "the sequence of 1020 tokens must be divisible by 2 x 4, two chunks for each rank of the ring (cp=4); make it "
       "1016, "
       "1024"},
      {"cp=2", gpt2, tokens(3),
       "the sequence of 3 tokens must be divisible by 2 x 2, two chunks for each rank of the ring (cp=2); make it 4"},
      {"cp=8", llama, tokens(1000),
       "the sequence of 1000 tokens must be divisible by 2 x 8, two chunks for each rank of the ring (cp=8); make it "
       "992, "
       "1008"},
      {"cp=2", llama, tokens(1025, false, all_gather),
       "the sequence of 1025 tokens must be divisible by 2 x 2, two chunks for each rank of the ring (cp=2); make it "
       "1024, "
       "1028"},
      {"cp=4", gpt2, tokens(1022, false, a2a),
       "the sequence of 1022 tokens must be divisible by cp=4; make it 1020, 1024"},
      {"cp=3", gpt2, tokens(1024, false, a2a),
       "the sequence of 1024 tokens must be divisible by cp=3; make it 1023, 1026"},
      {"cp=5", gpt2, tokens(1000, false, a2a),
       "cp=5: a2a divides heads over 5 ranks, but GPT-2 has 12 heads, which must be a multiple; cp may be 1, or the "
       "method p2p or all_gather"},
      {"dp=2,cp=8", gpt2, tokens(1024, false, a2a),
       "cp=8: a2a divides heads over 8 ranks, but GPT-2 has 12 heads, which must be a multiple; cp may be 1, 2, 4, or "
       "the method p2p or all_gather"},
      {"cp=3", llama, tokens(1023, false, a2a),
       "cp=3: a2a divides heads over 3 ranks, but Llama has 32 heads, which must be a multiple; cp may be 1, or the "
       "method p2p or all_gather"},
      {"cp=2,tp=12", gpt2, tokens(1024, false, a2a),
       "cp=2: a2a divides heads over 2 ranks, but GPT-2 has 1 head on each of the 12 ranks of tp, which must be a "
       "multiple; cp may be 1, or the method p2p or all_gather"},
      {"dp=2,cp=4,tp=6", gpt2, tokens(1024, false, a2a),
       "cp=4: a2a divides heads over 4 ranks, but GPT-2 has 2 heads on each of the 6 ranks of tp, which must be a "
       "multiple; cp may be 1, 2, or the method p2p or all_gather"},
      {"cp=2", odd, tokens(600, false, a2a),
       "cp=2: a2a divides heads over 2 ranks, but odd has 3 key and value heads, which must be a multiple or a "
       "divisor; cp may be 1, or the method p2p or all_gather"},
      {"cp=2", llama, tokens(1024, false, a2a_p2p),
       "cp=2: a2a+p2p divides the context-parallel ranks into two levels of at least two ranks each, but 2 ranks have "
       "no "
       "level of 2 or more with a second one; use p2p or a2a, or a number of ranks such as 4; cp may be 1"},
      {"cp=3", llama, tokens(1024, false, a2a_p2p),
       "cp=3: a2a+p2p divides the context-parallel ranks into two levels of at least two ranks each, but 3 ranks have "
       "no "
       "level of 2 or more with a second one; use p2p or a2a, or a number of ranks such as 4; cp may be 1"},
      {"cp=8", llama, tokens(1024, false, a2a_p2p, 3),
       "cp=8: a2a+p2p divides the context-parallel ranks into two levels of at least two ranks each, but 8 ranks have "
       "no "
       "level of 3 with a second one; use p2p or a2a, or a number of ranks such as 4; cp may be 1"},
      {"cp=4", llama, tokens(1022, false, a2a_p2p),
       "the sequence of 1022 tokens must be divisible by 2 x 2 and by cp=4, two chunks for each rank of the ring "
       "(cp=4); "
       "make it 1020, 1024"},
      {"dp=2,cp=10", gpt2, tokens(1000, false, a2a_p2p, 5),
       "cp=10: a2a+p2p divides heads over 5 ranks, but GPT-2 has 12 heads, which must be a multiple; cp may be 1, or "
       "the method p2p or all_gather"},
      {"cp=2,tp=2", gpt2, tokens(1022, true),
       "the sequence of 1022 tokens must be divisible by 2 x 2, two chunks for each rank of the ring (cp=2) and by cp "
       "x tp = "
       "4 (sequence_parallel); make it 1020, 1024"},
      {"cp=2,tp=4", llama, tokens(1004, true),
       "the sequence of 1004 tokens must be divisible by cp x tp = 8 (sequence_parallel); make it 1000, 1008"},
      {"cp=2,tp=4", llama, tokens(1020, true, a2a),
       "the sequence of 1020 tokens must be divisible by cp x tp = 8 (sequence_parallel); make it 1016, 1024"},
      {"cp=3,tp=2", llama, tokens(1023, true, a2a),
       "cp=3: a2a divides heads over 3 ranks, but Llama has 16 heads on each of the 2 ranks of tp, which must be a "
       "multiple; cp may be 1, or the method p2p or all_gather | the sequence of 1023 tokens must be divisible by cp x "
       "tp = "
       "6 (sequence_parallel); make it 1020, 1026"},
      {"dp=4",
       gpt2,
       {.rows = 6},
       "the 6 rows of a step are not divisible by the 4 data-parallel ranks (dp_replicate=1 x dp_shard=4); make them "
       "4, 8"},
      {"dp_replicate=2,dp=3,tp=2",
       llama,
       {.rows = 3},
       "the 3 rows of a step are not divisible by the 6 data-parallel ranks (dp_replicate=2 x dp_shard=3); make them "
       "6"},
      {"dp=2,cp=2",
       gpt2,
       {.sequence = 1022, .rows = 5},
       "the sequence of 1022 tokens must be divisible by 2 x 2, two chunks for each rank of the ring (cp=2); make it "
       "1020, "
       "1024 | the 5 rows of a step are not divisible by the 2 data-parallel ranks (dp_replicate=1 x dp_shard=2); make "
       "them 4, 6"},
      {"dp=2,cp=2,tp=5",
       gpt2,
       {.sequence = 1022, .rows = 5},
       "tp=5: all ranks need the same number of attention heads, but the 12 of GPT-2 are not divisible by 5; tp may be "
       "1, "
       "2 | tp=5: "
       "the MLP's intermediate size 3072 of GPT-2 is not divisible by 5; tp may be 1, 2 | the sequence of 1022 tokens "
       "must be divisible by 2 x 2, two chunks for each rank of the ring (cp=2); make it 1020, 1024 | the 5 rows of a "
       "step are not divisible by the 2 data-parallel ranks (dp_replicate=1 x dp_shard=2); make them 4, 6"},
  };
  for (const Row& row : rows) {
    const Mesh mesh = parse_mesh(row.mesh);
    std::vector<std::string> lines;
    for (const MeshProblem& problem : mesh_problems(mesh, row.model, row.use)) lines.push_back(problem.text);
    EXPECT_EQ(join(lines, " | "), row.error) << row.mesh;
    const std::string thrown = error_of([&] { check_mesh(mesh, row.model, row.use); });
    for (const std::string& line : lines) EXPECT_NE(thrown.find(line), std::string::npos) << thrown;
  }
  EXPECT_GE(std::size(rows), 40u);
}

TEST(MeshRules, WhatFitsIsAccepted) {
  struct Row {
    const char* mesh;
    ModelSizes model;
    MeshUse use;
  };
  const Row rows[] = {
      {"tp=1", {}, {}},
      {"dp=2,cp=4,tp=8", {}, {}},  // unknown model
      {"tp=12", gpt2, tokens(1023)},
      {"tp=4", gpt2, tokens(1024, true)},
      {"tp=32", llama, tokens(8192, true)},  // four ranks share a key head
      {"tp=16", qwen, {}},
      {"cp=4", gpt2, tokens(1024)},
      {"cp=4", gpt2, tokens(1020, false, a2a)},
      {"cp=8", gpt2, tokens(1024)},  // head counts matter only for a2a
      {"cp=4", llama, tokens(1024, false, a2a_p2p)},
      {"cp=4,tp=2", llama, tokens(1024, true, a2a)},
      {"cp=16", qwen, tokens(1024, false, a2a)},  // eight ranks share a key head
      {"dp=4,cp=2,tp=2", llama, {.sequence = 1024, .rows = 8}},
      {"dp_replicate=2,dp=4", llama, {.sequence = 7, .rows = 8}},
  };
  for (const Row& row : rows) EXPECT_EQ(error_of([&] { check_mesh(parse_mesh(row.mesh), row.model, row.use); }), "");
}

struct Case {
  std::array<int, 3> sizes;  ///< dp, cp, tp
  ModelSizes model;
  MeshUse use;

  Mesh mesh() const {
    return make_mesh({.sizes = {1, 1, sizes[0], sizes[1], sizes[2]}}, sizes[0] * sizes[1] * sizes[2]);
  }
};

Case any_case() {
  const int dp = *rc::gen::inRange(1, 5), cp = *rc::gen::inRange(1, 9), tp = *rc::gen::inRange(1, 9);
  const int keys = *rc::gen::inRange(1, 9);
  Case c{{dp, cp, tp}, {"any", keys * *rc::gen::inRange(1, 5), keys, 8 * *rc::gen::inRange(1, 40), 0}, {}};
  c.model.vocabulary = *rc::gen::inRange(1, 20);
  c.use.sequence = *rc::gen::inRange(0, 200);
  c.use.rows = *rc::gen::inRange(0, 20);
  c.use.sequence_parallel = *rc::gen::arbitrary<bool>();
  c.use.method = *rc::gen::element(p2p, all_gather, a2a, a2a_p2p);
  c.use.head_ranks = *rc::gen::inRange(0, 4);
  return c;
}

// Every suggestion is accepted: a suggested value of a setting satisfies all rules about it, and after one change of
// each setting no problem remains.
RC_GTEST_PROP(MeshRules, SuggestionsAreAccepted, ()) {
  Case c = any_case();
  const int world = c.sizes[0] * c.sizes[1] * c.sizes[2];
  for (int repairs = 0; repairs < 5; ++repairs) {  // turn off sequence_parallel; change tp, cp, sequence, rows
    const auto problems = mesh_problems(c.mesh(), c.model, c.use);
    if (problems.empty()) return;
    const MeshProblem& first = problems.front();
    if (first.choices.empty()) {
      RC_ASSERT(c.use.sequence_parallel);
      c.use.sequence_parallel = false;  // as the message suggests
      continue;
    }
    const std::int64_t choice = *rc::gen::elementOf(first.choices);
    if (first.change == Change::tp) c.sizes[2] = static_cast<int>(choice);
    if (first.change == Change::cp) c.sizes[1] = static_cast<int>(choice);
    if (first.change == Change::sequence) c.use.sequence = choice;
    if (first.change == Change::rows) c.use.rows = choice;
    c.sizes[0] = world / (c.sizes[1] * c.sizes[2]);
    for (const MeshProblem& left : mesh_problems(c.mesh(), c.model, c.use)) RC_ASSERT(left.change != first.change);
  }
  RC_ASSERT(mesh_problems(c.mesh(), c.model, c.use).empty());
}

// An accepted mesh divides every dimension, however it is computed.
RC_GTEST_PROP(MeshRules, WhatIsAcceptedDivides, ()) {
  const Case c = any_case();
  if (!mesh_problems(c.mesh(), c.model, c.use).empty()) return;
  const auto [dp, cp, tp] = c.sizes;
  RC_ASSERT(c.model.heads % tp == 0);
  RC_ASSERT(c.model.key_heads % tp == 0 || tp % c.model.key_heads == 0);
  RC_ASSERT(c.model.intermediate % tp == 0);
  RC_ASSERT(c.model.vocabulary >= tp);
  RC_ASSERT(c.use.rows % dp == 0);
  if (cp == 1) return;
  const int head_ranks = head_ranks_of(c.use.method, cp, c.use.head_ranks);
  cut_sequence(c.use.sequence, cp, head_ranks);
  RC_ASSERT(c.model.heads / tp % head_ranks == 0);
  if (c.use.sequence_parallel) RC_ASSERT(c.use.sequence / cp % tp == 0);
}

}  // namespace
}  // namespace tessera::layout
