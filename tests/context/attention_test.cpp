// Attention over parts of sequences compared with attention over whole sequences in one process.
#include <tests/distributed/harness.h>
#include <tests/error_of.h>

#include <ATen/ATen.h>

#include <tessera/comm/recorder.h>
#include <tessera/nn/attention.h>
#include <tessera/nn/autocast.h>
#include <tessera/parallel/context/attention.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace {

using namespace tessera;
using namespace tessera::testing;

struct Case {
  std::string name;
  std::int64_t heads = 8, key_heads = 8;
  ContextAttentionOptions options = {};
  std::int64_t rows = 3, length = 32;
};

constexpr std::int64_t head_size = 4;

std::vector<Case> cases() {
  const nn::DocumentStarts packed = {0, 5, 16, 32, 64, 65, 66, 90};
  return {
      {.name = "plain"},
      {.name = "grouped", .key_heads = 2},
      {.name = "one key head", .key_heads = 1, .options = {.scale = 0.7}},
      {.name = "documents", .key_heads = 4, .options = {.documents = packed}},
      {.name = "documents at home", .options = {.documents = {0, 32, 40, 64}}},
      {.name = "window", .options = {.window = 5}},
      {.name = "window and documents", .key_heads = 2, .options = {.window = 6, .documents = packed}},
      {.name = "padding", .options = {.lengths = {32, 9, 20}}},
      {.name = "not causal", .key_heads = 2, .options = {.causal = false}},
      {.name = "not causal, a row of nothing", .options = {.causal = false, .lengths = {17, 0, 32}}},
      {.name = "nothing at all", .options = {.causal = false, .lengths = {0, 0, 0}}},
  };
}

struct Tensors {
  at::Tensor q, k, v, dy;
};
/// The same on every rank; rounded to bf16, so that every type starts from the same numbers.
Tensors whole_tensors(const Case& c, at::ScalarType type) {
  at::Generator generator = at::detail::getDefaultCPUGenerator().clone();
  generator.set_current_seed(11);
  const auto draw = [&](at::IntArrayRef sizes) {
    return at::randn(sizes, generator, at::TensorOptions(at::kDouble)).to(at::kBFloat16).to(type);
  };
  return {draw({c.rows, c.length, c.heads, head_size}), draw({c.rows, c.length, c.key_heads, head_size}),
          draw({c.rows, c.length, c.key_heads, head_size}), draw({c.rows, c.length, c.heads * head_size})};
}

/// The keys that each token attends to, by definition: bool [rows, 1, T, T].
at::Tensor seen_by(const Case& c) {
  const ContextAttentionOptions& o = c.options;
  const std::int64_t rows = c.rows, length = c.length;
  const at::Tensor at_query = at::arange(length).view({1, length, 1}), at_key = at::arange(length).view({1, 1, length});
  at::Tensor seen = at::ones({rows, length, length}, at::kBool);
  if (o.causal) seen = seen.logical_and(at_key <= at_query);
  if (o.window > 0) seen = seen.logical_and(at_query - at_key < o.window);
  if (!o.documents.empty()) {
    at::Tensor number = at::zeros({rows * length}, at::kLong);
    number.index_fill_(0, at::tensor(o.documents), 1);
    number = number.cumsum(0).view({rows, length});
    seen = seen.logical_and(number.unsqueeze(2) == number.unsqueeze(1));
  }
  if (!o.lengths.empty()) seen = seen.logical_and(at_key < at::tensor(o.lengths).view({rows, 1, 1}));
  return seen.unsqueeze(1);
}

struct Result {
  at::Tensor out, dq, dk, dv;
};
/// The result by definition, in fp64.
Result by_definition(const Case& c) {
  Tensors x = whole_tensors(c, at::kDouble);
  for (at::Tensor* t : {&x.q, &x.k, &x.v}) t->requires_grad_();
  const double scale = c.options.scale != 0 ? c.options.scale : 1 / std::sqrt(static_cast<double>(head_size));
  const auto spread = [&](const at::Tensor& k) {
    return k.repeat_interleave(c.heads / c.key_heads, 2).transpose(1, 2);
  };
  const at::Tensor seen = seen_by(c);
  const at::Tensor scores = at::matmul(x.q.transpose(1, 2), spread(x.k).transpose(2, 3)) * scale;
  const at::Tensor weights =
      at::softmax(scores.masked_fill(seen.logical_not(), -1e300), -1) * seen.any(-1, /*keepdim=*/true);
  const at::Tensor out =
      at::matmul(weights, spread(x.v)).transpose(1, 2).reshape({c.rows, c.length, c.heads * head_size});
  out.backward(x.dy);
  return {out.detach(), x.q.grad(), x.k.grad(), x.v.grad()};
}

Result in_parts(const Case& c, const ContextGroups& groups, at::ScalarType type) {
  const Tensors x = whole_tensors(c, type);
  const at::Tensor q = context_part(x.q, groups).requires_grad_(), k = context_part(x.k, groups).requires_grad_(),
                   v = context_part(x.v, groups).requires_grad_();
  const at::Tensor out = context_attention(q, k, v, groups, c.options);
  out.backward(context_part(x.dy, groups));
  return {out.detach(), q.grad(), k.grad(), v.grad()};
}

double distance(const at::Tensor& got, const at::Tensor& want) {
  const at::Tensor g = got.to(at::kDouble);
  if (!g.isfinite().all().item<bool>()) return std::numeric_limits<double>::infinity();
  const double size = std::max(want.abs().max().item<double>(), 1e-3);
  return (g - want).abs().max().item<double>() / size;
}

void expect_parts(const Result& got, const Result& whole, const ContextGroups& groups, double bar,
                  const std::string& what) {
  const auto near = [&](const char* name, const at::Tensor& a, const at::Tensor& b) {
    EXPECT_LE(distance(a, context_part(b, groups)), bar) << what << ": " << name;
  };
  near("out", got.out, whole.out);
  near("dq", got.dq, whole.dq);
  near("dk", got.dk, whole.dk);
  near("dv", got.dv, whole.dv);
}

layout::Mesh mesh_of(int ranks) { return layout::parse_mesh(concat("cp=", ranks)); }

std::vector<ContextMethod> methods_of(int ranks) {
  if (ranks == 4) return {ContextMethod::p2p, ContextMethod::all_gather, ContextMethod::a2a, ContextMethod::a2a_p2p};
  return {ContextMethod::p2p, ContextMethod::all_gather, ContextMethod::a2a};
}

class ContextAttention : public ::testing::TestWithParam<int> {};  // ranks
INSTANTIATE_TEST_SUITE_P(Ranks, ContextAttention, ::testing::Values(1, 2, 4));

TEST_P(ContextAttention, is_attention_of_whole_sequences) {
  const int ranks = GetParam();
  std::vector<Result> expected;
  for (const Case& c : cases()) expected.push_back(by_definition(c));
  run_ranks(
      ranks,
      [&](comm::World& world) {
        for (const ContextMethod method : methods_of(ranks)) {
          const ContextGroups groups = context_groups(world, mesh_of(ranks), method);
          std::size_t i = 0;
          for (const Case& c : cases()) {
            const std::string what = concat(context_method_name(method), ", ", c.name);
            expect_parts(in_parts(c, groups, at::kDouble), expected[i], groups, 1e-11, what);
            expect_parts(in_parts(c, groups, at::kFloat), expected[i], groups, 1e-5, what + ", fp32");
            expect_parts(in_parts(c, groups, at::kBFloat16), expected[i], groups, 0.02, what + ", bf16");
            ++i;
          }
        }
      },
      60);
}

// Sockets give the same numbers as shared memory, although messages impose different requirements on the ranks.
TEST(ContextAttentionBackends, gloo) {
  RankOptions options;
  options.init.backend = "gloo";
  run_ranks(
      4,
      [](comm::World& world) {
        for (const ContextMethod method : methods_of(4)) {
          const ContextGroups groups = context_groups(world, mesh_of(4), method);
          for (const Case& c : {cases()[1], cases()[3]})
            expect_parts(in_parts(c, groups, at::kDouble), by_definition(c), groups, 1e-11,
                         concat("gloo, ", layout::context_method_name(method), ", ", c.name));
        }
      },
      options);
}

/// Any valid case, drawn from a seed.
Case any_case(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  Case c{.name = concat("seed ", seed)};
  c.rows = 1 + below(3);
  c.length = 8 * (1 + below(7));
  c.heads = 4 * (1 + below(2));
  c.key_heads = c.heads >> below(3);
  c.options.causal = below(3) > 0;
  if (c.options.causal && below(2) == 0) c.options.window = 1 + below(c.length + 3);
  if (below(2) == 0) {
    std::set<std::int64_t> starts;
    for (std::int64_t row = 0; row < c.rows; ++row) starts.insert(row * c.length);
    for (std::int64_t i = below(8); i > 0; --i) starts.insert(below(c.rows * c.length));
    c.options.documents.assign(starts.begin(), starts.end());
  }
  if (below(2) == 0)
    for (std::int64_t row = 0; row < c.rows; ++row) c.options.lengths.push_back(below(c.length + 1));
  return c;
}

TEST(ContextAttentionRandom, is_attention_of_whole_sequences) {
  constexpr std::uint64_t count = 40;
  std::vector<Result> expected;
  for (std::uint64_t seed = 0; seed < count; ++seed) expected.push_back(by_definition(any_case(seed)));
  run_ranks(4, [&](comm::World& world) {
    for (const ContextMethod method : methods_of(4)) {
      const ContextGroups groups = context_groups(world, mesh_of(4), method);
      for (std::uint64_t seed = 0; seed < count; ++seed)
        expect_parts(in_parts(any_case(seed), groups, at::kDouble), expected[seed], groups, 1e-11,
                     concat(layout::context_method_name(method), ", seed ", seed));
    }
  });
}

// The definition above matches nn::attention.
TEST(ContextAttentionReference, is_the_attention_of_models) {
  for (const Case& c : cases()) {
    if (!c.options.causal || !c.options.lengths.empty()) continue;
    const Tensors x = whole_tensors(c, at::kFloat);
    const at::Tensor out =
        nn::attention(x.q, x.k, x.v, c.options.documents,
                      {.scale = c.options.scale != 0 ? c.options.scale : 0.5, .window = c.options.window});
    EXPECT_LE(distance(out, by_definition(c).out), 1e-5) << c.name;
  }
}

// Timing changes no bit, and gathered blocks are added in the same order as blocks that travel around the ring.
TEST(ContextAttentionOrder, is_fixed) {
  run_ranks(4, [](comm::World& world) {
    const ContextGroups ring = context_groups(world, mesh_of(4), ContextMethod::p2p),
                        gathered = context_groups(world, mesh_of(4), ContextMethod::all_gather);
    for (const Case& c : cases()) {
      const Result first = in_parts(c, ring, at::kFloat);
      const at::Tensor whole = in_parts(c, gathered, at::kFloat).out;
      EXPECT_TRUE(at::equal(first.out, whole)) << c.name;
      for (int i = 0; i < 3; ++i) {
        if (world.rank() == i) usleep(5000);
        const Result again = in_parts(c, ring, at::kFloat);
        EXPECT_TRUE(at::equal(first.out, again.out) && at::equal(first.dq, again.dq) && at::equal(first.dk, again.dk) &&
                    at::equal(first.dv, again.dv))
            << c.name;
      }
    }
  });
}

double wire_bytes() {
  double sum = 0;
  for (const comm::OpTotals& row : comm::recorder().totals())
    if (row.op != comm::Op::recv) sum += static_cast<double>(row.wire_bytes);
  return sum;
}

TEST(ContextAttentionVolume, is_the_formula) {
  const auto outcomes = run_ranks(4, [](comm::World& world) {
    for (const std::int64_t key_heads : {8, 2}) {
      const Case c{.name = "", .key_heads = key_heads};
      const double n = 4.0 * c.rows * c.length / 4 * c.heads * head_size,
                   m = 2 * n * static_cast<double>(key_heads) / 8;
      for (const ContextMethod method : methods_of(4)) {
        const ContextGroups groups = context_groups(world, mesh_of(4), method);
        const Tensors x = whole_tensors(c, at::kFloat);
        const at::Tensor q = context_part(x.q, groups).requires_grad_(), k = context_part(x.k, groups).requires_grad_(),
                         v = context_part(x.v, groups).requires_grad_();
        const double start = wire_bytes();
        const at::Tensor out = context_attention(q, k, v, groups, c.options);
        const double forward = wire_bytes() - start;
        out.backward(context_part(x.dy, groups));
        const double backward = wire_bytes() - start - forward;
        const double a = groups.head_ranks(), p = 4 / a, wide = m * std::max(1.0, a / static_cast<double>(key_heads));
        const double exchange = (a - 1) / a * (2 * n + wide), blocks = (p - 1) * wide;
        EXPECT_NEAR(forward, exchange + blocks, 4) << context_method_name(method) << ", key heads " << key_heads;
        EXPECT_NEAR(backward, exchange + 2 * blocks, 4) << context_method_name(method) << ", key heads " << key_heads;
        if (world.rank() == 0)
          post(concat(context_method_name(method), ", ", key_heads, " key heads: ", forward, " + ", backward,
                      " bytes a rank"));
      }
    }
    // Documents that end where a rank's tokens end send no keys; a window of one chunk sends each key at most once.
    const ContextGroups groups = context_groups(world, mesh_of(4), ContextMethod::p2p);
    double start = wire_bytes();
    (void)in_parts({.name = "", .options = {.documents = {0,  4,  8,  12, 20, 24, 28, 32, 36, 40, 44,
                                                          52, 56, 60, 64, 68, 72, 76, 84, 88, 92}}},
                   groups, at::kFloat);
    EXPECT_EQ(wire_bytes() - start, 0);
    start = wire_bytes();
    (void)in_parts({.name = "", .options = {.window = 4}}, groups, at::kFloat);
    at::Tensor sum = at::full({1}, wire_bytes() - start, at::kDouble);
    world.group().all_reduce(sum).wait();
    const double block = 2 * 4.0 * 3 * 32 / 4 * 8 * head_size;
    EXPECT_EQ(sum.item<double>(), 6 * 3 * block) << "six of the twelve pairs of ranks exchange keys";
  });
  for (const std::string& line : outcomes[0].posted) std::printf("  %s\n", line.c_str());
}

TEST(ContextAttentionErrors, name_rule_numbers_and_remedy) {
  run_ranks(4, [](comm::World& world) {
    const ContextGroups ring = context_groups(world, mesh_of(4), ContextMethod::p2p),
                        ulysses = context_groups(world, mesh_of(4), ContextMethod::a2a);
    const auto x = [](std::int64_t t, std::int64_t heads) { return at::zeros({2, t, heads, 4}); };
    const auto message = [&](const auto& call) { return error_of<InputError>(call); };
    EXPECT_EQ(
        message([&] { (void)context_attention(x(4, 6), x(4, 6), x(4, 6), ulysses); }),
        "context parallelism by a2a divides heads over 4 ranks: the number of heads (6) must be a multiple of that, "
        "and the number of key heads (6) a multiple or a divisor; use p2p or all_gather, which keep heads whole");
    EXPECT_NE(message([&] { (void)context_attention(x(4, 12), x(4, 3), x(4, 3), ulysses); }).find("key heads (3)"),
              std::string::npos);
    EXPECT_NE(message([&] {
                (void)context_attention(x(3, 4), x(3, 4), x(3, 4), ring);
              }).find("the next possible length is 16"),
              std::string::npos);
    EXPECT_NE(message([&] { (void)context_attention(x(4, 4), x(4, 3), x(4, 3), ring); }).find("dividing heads"),
              std::string::npos);
    EXPECT_NE(
        message([&] { (void)context_attention(x(4, 4), x(4, 4).to(at::kDouble), x(4, 4), ring); }).find("one floa"),
        std::string::npos);
    EXPECT_NE(message([&] { (void)context_part(at::zeros({2, 10}), ring); }).find("the next possible length is 16"),
              std::string::npos);
    EXPECT_NE(message([&] { (void)context_groups(world.group(), ContextMethod::a2a_p2p); }).find("two levels"),
              std::string::npos);
  });
}

// A rank with different shapes: every method reports it at once.
TEST(ContextAttentionErrors, a_rank_with_another_shape_is_told) {
  for (const ContextMethod method : methods_of(4)) {
    const auto outcomes = run_ranks_outcomes(2 + 2 * (method == ContextMethod::a2a_p2p), [&](comm::World& world) {
      const ContextGroups groups = context_groups(world, mesh_of(world.size()), method);
      const std::int64_t t = world.rank() == 1 ? 8 : 4;
      const at::Tensor x = at::ones({2, t, 4, 4});
      (void)context_attention(x, x, x, groups);
    });
    std::string all;
    for (const RankOutcome& outcome : outcomes) all += outcome.error + "\n";
    EXPECT_NE(all.find("rank 0 (pid"), std::string::npos) << context_method_name(method) << ": " << all;
    EXPECT_NE(all.find("rank 1 (pid"), std::string::npos) << context_method_name(method) << ": " << all;
    EXPECT_NE(all.find("x float32, "), std::string::npos) << context_method_name(method) << ": " << all;
    EXPECT_NE(all.find("tag 'context "), std::string::npos) << context_method_name(method) << ": " << all;
  }
}

// A rank that dies during a pass: the other ranks of its axis report it at once, by the axis's name.
TEST(ContextAttentionErrors, a_rank_that_dies_is_named_with_its_axis) {
  for (const ContextMethod method : methods_of(2)) {
    RankOptions options;
    options.end_after_failure = false;
    options.timeout_s = 300;
    const Stopwatch watch;
    const auto outcomes = run_ranks_outcomes(
        4,
        [&](comm::World& world) {
          const ContextGroups groups = context_groups(world, layout::parse_mesh("dp=2,cp=2"), method);
          const Case c{.name = ""};
          for (int step = 0; step < 3; ++step) {
            if (world.rank() == 1 && step == 1) _exit(9);
            if (world.rank() < 2) (void)in_parts(c, groups, at::kFloat);
          }
        },
        options);
    const double took = watch.seconds();
    EXPECT_NE(outcomes[0].error.find("'cp 0'"), std::string::npos) << outcomes[0].error;
    EXPECT_NE(outcomes[0].error.find("rank 1"), std::string::npos) << outcomes[0].error;
    EXPECT_LT(took, watch.limit(4)) << layout::context_method_name(method) << ": with the start of four ranks";
  }
}

}  // namespace
