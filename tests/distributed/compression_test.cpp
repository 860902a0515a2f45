// Gradient compression on real ranks: exact where it should be, nothing is lost over several steps, and all ranks have
// the same bits.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <tessera/base/error.h>
#include <tessera/parallel/compression/compression.h>
#include <tessera/parallel/compression/onebit.h>
#include <tessera/parallel/compression/powersgd.h>
#include <tessera/parallel/compression/topk.h>
#include <tests/distributed/harness.h>

#include <cmath>
#include <limits>
#include <numeric>

namespace {

using namespace tessera;
using namespace tessera::parallel;
using namespace tessera::testing;

at::Tensor random_row(std::int64_t n, std::uint64_t seed) {
  return at::randn({n}, at::detail::createCPUGenerator(seed), at::TensorOptions(at::kFloat));
}

// A flat gradient with matrices, a convolution, vectors, a gap between two parameters, and `tail` elements that belong
// to no parameter.
struct Layout {
  std::vector<CompressedSegment> segments;
  std::int64_t numel = 0;
};
Layout layout(std::int64_t ranks, bool padded = true) {
  Layout result;
  const std::vector<std::vector<std::int64_t>> shapes = {{24, 16}, {16}, {6, 4, 3, 3}, {5, 40}, {}, {1, 9}};
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const std::int64_t n = std::accumulate(shapes[i].begin(), shapes[i].end(), std::int64_t{1}, std::multiplies<>());
    result.segments.push_back({shapes[i], result.numel, n});
    result.numel += n + (i == 2 ? 7 : 0);
  }
  result.numel += 3;
  if (padded) result.numel = (result.numel + ranks - 1) / ranks * ranks;
  return result;
}

at::Tensor gradient(const Layout& l, int rank, int step) {
  return random_row(l.numel, static_cast<std::uint64_t>(1000 * step + rank));
}
// The result of uncompressed reduction, in double.
at::Tensor truth(const Layout& l, int ranks, int step, comm::Reduction reduction) {
  at::Tensor sum = at::zeros({l.numel}, at::kDouble);
  for (int r = 0; r < ranks; ++r) sum += gradient(l, r, step);
  return reduction == comm::Reduction::mean ? sum / ranks : sum;
}

// The whole result on every rank, whether scattered or not; checks that all ranks have the same bits.
at::Tensor reduce(Compression& method, const comm::Group& group, const Layout& l, at::Tensor flat, bool scatter,
                  comm::Reduction reduction = comm::Reduction::mean) {
  at::Tensor output = scatter ? at::full({l.numel / group.size()}, 99.f) : flat;
  method.reduce({"unit", flat, l.segments, group, reduction, output, scatter}).wait();
  EXPECT_EQ(output.scalar_type(), at::kFloat);
  at::Tensor whole = output;
  if (scatter) {
    whole = at::empty({l.numel});
    group.all_gather(whole, output).wait();
  }
  const at::Tensor all = at::empty({group.size(), l.numel});
  group.all_gather(all.view({-1}), whole.contiguous()).wait();
  for (int r = 0; r < group.size(); ++r) EXPECT_TRUE(at::equal(all[r].view(at::kInt), all[0].view(at::kInt))) << r;
  return whole.clone();
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  return ((a.to(at::kDouble) - b.to(at::kDouble)).norm() / b.to(at::kDouble).norm()).item<double>();
}

// The elements that no method compresses.
at::Tensor outside(const Layout& l, const at::Tensor& flat) {
  std::vector<FlatRange> segments;
  for (const CompressedSegment& s : l.segments) segments.push_back({s.offset, s.numel});
  return packed(flat, complement(segments, l.numel));
}

template <class Body>
void on_all_kinds(const Body& body) {
  for (const int ranks : {2, 3}) {
    run_ranks(ranks, [&](comm::World& world) {
      for (const bool scatter : {true, false}) {
        for (const auto reduction : {comm::Reduction::mean, comm::Reduction::sum}) {
          SCOPED_TRACE(concat(scatter ? "scatter" : "all", reduction == comm::Reduction::mean ? " mean" : " sum"));
          body(world.group(), layout(ranks, scatter), scatter, reduction);
        }
      }
    });
  }
}

TEST(Compression, exact_where_it_is_exact) {
  on_all_kinds([](const comm::Group& group, const Layout& l, bool scatter, comm::Reduction reduction) {
    for (const char* description :
         {"powersgd:rank=1000,start=0,min_rate=0", "topk:ratio=1", "powersgd:start=5", "onebit:warmup=5"}) {
      SCOPED_TRACE(description);
      const auto method = make_compression(description);
      for (int step = 0; step < 3; ++step) {
        const at::Tensor got = reduce(*method, group, l, gradient(l, group.rank(), step), scatter, reduction);
        EXPECT_LT(distance(got, truth(l, group.size(), step, reduction)), 2e-6);
        method->step_done();
      }
    }
  });
}

// A zero gradient, or one of rank one, must not permanently cost PowerSGD its other directions.
TEST(Compression, a_gradient_of_low_rank_does_not_take_the_rank_away) {
  run_ranks(2, [](comm::World& world) {
    const Layout l = layout(2);
    const auto method = make_compression("powersgd:rank=1000,start=0,min_rate=0,error_feedback=false");
    for (int step = 0; step < 6; ++step) {
      at::Tensor flat = gradient(l, world.rank(), step);
      at::Tensor expected = truth(l, 2, step, comm::Reduction::mean);
      if (step % 2 == 0) flat = step == 2 ? at::ones_like(flat) : at::zeros_like(flat);
      if (step % 2 == 0) expected = flat.clone();
      const at::Tensor got = reduce(*method, world.group(), l, flat, true);
      EXPECT_LT((got - expected).abs().max().item<double>(), 1e-5) << step;
      method->step_done();
    }
  });
}

TEST(Compression, half_precision_adds_in_fp32) {
  on_all_kinds([](const comm::Group& group, const Layout& l, bool scatter, comm::Reduction reduction) {
    for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
      const auto method = make_compression(dtype == at::kHalf ? "fp16" : "bf16");
      const at::Tensor got = reduce(*method, group, l, gradient(l, group.rank(), 0), scatter, reduction);
      at::Tensor sum = at::zeros({l.numel});
      for (int r = 0; r < group.size(); ++r) sum += gradient(l, r, 0).to(dtype).to(at::kFloat);
      if (reduction == comm::Reduction::mean) sum /= group.size();
      if (!scatter) sum = sum.to(dtype).to(at::kFloat);
      EXPECT_TRUE(at::equal(got, sum)) << distance(got, sum);
      const auto [plain, sent] = method->bytes();
      EXPECT_NEAR(static_cast<double>(sent) / static_cast<double>(plain), 0.5, 0.01);
    }
  });
}

TEST(Compression, first_steps_are_plain_and_then_it_compresses) {
  run_ranks(2, [](comm::World& world) {
    const Layout l = layout(2);
    for (const char* description : {"powersgd:start=2", "onebit:warmup=2"}) {
      const auto method = make_compression(description);
      for (int step = 0; step < 4; ++step) {
        const at::Tensor plain = gradient(l, world.rank(), step);
        world.group().all_reduce(plain, comm::Reduction::mean).wait();
        const at::Tensor got = reduce(*method, world.group(), l, gradient(l, world.rank(), step), step % 2 == 0);
        EXPECT_EQ(at::equal(got, plain), step < 2) << description << step;
        method->step_done();
      }
    }
  });
}

TEST(Compression, steps_count_themselves_when_nobody_tells) {
  run_ranks(2, [](comm::World& world) {
    const Layout l = layout(2);
    for (const char* description : {"powersgd:start=2", "onebit:warmup=2"}) {
      auto method = make_compression(description);
      for (int step = 0; step < 4; ++step) {
        if (step == 1) {  // through a checkpoint
          const auto state = method->state();
          method = make_compression(description);
          method->restore(state);
        }
        const auto before = method->bytes();
        reduce(*method, world.group(), l, gradient(l, world.rank(), step), true);
        const auto after = method->bytes();
        EXPECT_EQ(after.first - before.first == after.second - before.second, step < 2) << description << step;
      }
    }
  });
}

TEST(Compression, keys_that_are_not_used_any_more_are_dropped) {
  run_ranks(2, [](comm::World& world) {
    const auto method = make_compression("topk:ratio=0.1");
    const std::vector<CompressedSegment> segments = {{{40}, 0, 40}};
    for (int step = 0; step < 20; ++step) {
      for (const std::string key : {step == 0 ? "old" : "new", "always"}) {
        const at::Tensor flat = random_row(40, static_cast<std::uint64_t>(world.rank()));
        method->reduce({key, flat, segments, world.group(), comm::Reduction::mean, flat, false}).wait();
      }
      method->step_done();
    }
    std::string names;
    for (const auto& [name, tensor] : method->state()) names += name + " ";
    EXPECT_EQ(names, "always/error new/error steps told ");
  });
}

TEST(Compression, what_belongs_to_no_parameter_is_exact) {
  on_all_kinds([](const comm::Group& group, const Layout& l, bool scatter, comm::Reduction reduction) {
    for (const char* description : {"powersgd:start=0,min_rate=0", "topk:ratio=0.05", "onebit:warmup=0"}) {
      SCOPED_TRACE(description);
      const auto method = make_compression(description);
      const at::Tensor got = reduce(*method, group, l, gradient(l, group.rank(), 3), scatter, reduction);
      EXPECT_GT(distance(got, truth(l, group.size(), 3, reduction)), 0.01);
      EXPECT_LT(distance(outside(l, got), outside(l, truth(l, group.size(), 3, reduction))), 1e-6);
    }
  });
}

// After T steps, the accumulated results plus the pending errors equal the sum of the true gradients.
TEST(Compression, error_feedback_sums_to_the_truth) {
  on_all_kinds([](const comm::Group& group, const Layout& l, bool scatter, comm::Reduction reduction) {
    for (const char* description : {"powersgd:rank=2,start=0,min_rate=0", "topk:ratio=0.1", "onebit:warmup=0"}) {
      SCOPED_TRACE(description);
      const auto method = make_compression(description);
      at::Tensor results = at::zeros({l.numel}, at::kDouble), truths = at::zeros({l.numel}, at::kDouble);
      for (int step = 0; step < 12; ++step) {
        results += reduce(*method, group, l, gradient(l, group.rank(), step), scatter, reduction);
        truths += truth(l, group.size(), step, reduction);
        method->step_done();
      }
      at::Tensor pending = at::zeros({l.numel}, at::kDouble), server = at::zeros({l.numel}, at::kDouble);
      for (const auto& [name, tensor] : method->state()) {
        const std::string matrix = name.substr(0, name.find("/"));
        if (name == "unit/error" || name == "unit.worker/error") {
          pending += tensor;
        } else if (name == "unit.server/error") {
          const std::int64_t part = (l.numel + group.size() - 1) / group.size();
          server.narrow(0, part * group.rank(), tensor.numel()) += tensor;
        } else if (name.ends_with("/error")) {  // unit.SEGMENT/error
          const CompressedSegment& s = l.segments.at(static_cast<std::size_t>(std::stoi(matrix.substr(5))));
          pending.narrow(0, s.offset, s.numel) += tensor;
        }
      }
      group.all_reduce(pending, reduction).wait();
      group.all_reduce(server, comm::Reduction::sum).wait();
      EXPECT_GT(distance(results, truths), 0.05);
      EXPECT_LT(distance(results + pending + server, truths), 1e-5);
    }
  });
}

TEST(Compression, bytes_are_those_that_were_sent) {
  run_ranks(3, [](comm::World& world) {
    Layout l;
    l.segments = {{{300, 200}, 0, 60000}};
    l.numel = 60000;
    const auto ratio = [&](const char* description, bool scatter) {
      const auto method = make_compression(description);
      reduce(*method, world.group(), l, random_row(l.numel, static_cast<std::uint64_t>(world.rank())), scatter);
      const auto [plain, sent] = method->bytes();
      EXPECT_EQ(plain, (scatter ? 1 : 2) * l.numel * 4 * 2 / 3) << description;
      return static_cast<double>(sent) / static_cast<double>(plain);
    };
    EXPECT_NEAR(ratio("powersgd:rank=4,start=0", false), 4.0 * 500 / 60000, 1e-4);
    EXPECT_NEAR(ratio("topk:ratio=0.01", false), 0.01 * 8 * 3 / (2 * 4.0), 1e-4);
    // One magnitude per row of 200: every rank needs those of all other ranks, and then those of the servers.
    const double signs = 1.0 / 32, magnitudes = 300 * 4 * 2 / (60000 * 4 * 2 / 3.0);
    EXPECT_NEAR(ratio("onebit:warmup=0", false), signs + magnitudes, 1e-3);
    EXPECT_NEAR(ratio("onebit:warmup=0", true), signs + magnitudes, 1e-3);
    EXPECT_EQ(ratio("powersgd:start=10", true), 1);
  });
}

TEST(Compression, what_is_not_finite_is_told_and_forgotten) {
  on_all_kinds([](const comm::Group& group, const Layout& l, bool scatter, comm::Reduction reduction) {
    for (const char* description : {"bf16", "powersgd:start=0,min_rate=0", "topk:ratio=0.1", "onebit:warmup=0"}) {
      SCOPED_TRACE(description);
      const auto method = make_compression(description);
      for (int step = 0; step < 4; ++step) {
        at::Tensor flat = gradient(l, group.rank(), step);
        if (step == 1 && group.rank() == 1) flat.narrow(0, 5, 1).fill_(std::numeric_limits<float>::quiet_NaN());
        if (step == 2 && group.rank() == 0) flat.narrow(0, 9, 1).fill_(std::numeric_limits<float>::infinity());
        const at::Tensor got = reduce(*method, group, l, flat, scatter, reduction);
        EXPECT_EQ(got.isfinite().all().item<bool>(), step == 0 || step == 3) << step;
        for (const auto& [name, tensor] : method->state()) EXPECT_TRUE(tensor.isfinite().all().item<bool>()) << name;
        method->step_done();
      }
    }
  });
}

TEST(Compression, state_goes_through_a_checkpoint) {
  run_ranks(2, [](comm::World& world) {
    const Layout l = layout(2);
    for (const char* description : {"powersgd:rank=2,start=1,min_rate=0", "topk:ratio=0.1", "onebit:warmup=1"}) {
      SCOPED_TRACE(description);
      const auto whole = make_compression(description), before = make_compression(description);
      for (int step = 0; step < 3; ++step) {
        for (const auto& method : {whole, before}) {
          reduce(*method, world.group(), l, gradient(l, world.rank(), step), false);
          method->step_done();
        }
      }
      const auto after = make_compression(description);
      after->restore(before->state());
      for (int step = 3; step < 5; ++step) {
        const at::Tensor a = reduce(*whole, world.group(), l, gradient(l, world.rank(), step), false);
        const at::Tensor b = reduce(*after, world.group(), l, gradient(l, world.rank(), step), false);
        EXPECT_TRUE(at::equal(a, b)) << step;
      }
      // The state of a different number of ranks is discarded instead of causing a failure.
      Layout larger = l;
      larger.numel += 2;
      const auto other = make_compression(description);
      other->restore(before->state());
      reduce(*other, world.group(), larger, gradient(larger, world.rank(), 0), true);
    }
  });
}

TEST(Compression, one_rank_is_exact_and_sends_nothing) {
  run_ranks(1, [](comm::World& world) {
    const Layout l = layout(1);
    for (const char* description :
         {"fp16", "bf16", "powersgd:start=0,min_rate=0", "topk:ratio=0.01", "onebit:warmup=0"}) {
      const auto method = make_compression(description);
      EXPECT_TRUE(at::equal(reduce(*method, world.group(), l, gradient(l, 0, 0), true), gradient(l, 0, 0)));
      EXPECT_EQ(method->bytes(), (std::pair<std::int64_t, std::int64_t>(0, 0)));
    }
  });
}

TEST(Compression, double_gradients_stay_double) {
  run_ranks(2, [](comm::World& world) {
    const Layout l = layout(2);
    for (const char* description : {"powersgd:rank=99,start=0,min_rate=0", "topk:ratio=1"}) {
      const at::Tensor flat = gradient(l, world.rank(), 0).to(at::kDouble),
                       output = at::empty({l.numel / 2}, at::kDouble);
      const auto method = make_compression(description);
      method->reduce({"u", flat, l.segments, world.group(), comm::Reduction::mean, output, true}).wait();
      const at::Tensor expected =
          truth(l, 2, 0, comm::Reduction::mean).narrow(0, world.rank() * l.numel / 2, l.numel / 2);
      EXPECT_LT(distance(output, expected), 1e-12) << description;
    }
  });
}

TEST(Compression, wrong_requests_are_named) {
  run_ranks(1, [](comm::World& world) {
    const auto method = make_compression("topk");
    const std::vector<CompressedSegment> overlapping = {{{4}, 0, 4}, {{4}, 2, 4}};
    const at::Tensor flat = at::ones({8});
    EXPECT_THROW(method->reduce({"u", flat, overlapping, world.group(), comm::Reduction::max, flat, false}), Error);
    EXPECT_THROW(method->reduce({"u", flat, overlapping, world.group(), comm::Reduction::sum, at::ones({3}), true}),
                 Error);
    EXPECT_THROW(complement(std::vector<FlatRange>{{0, 4}, {2, 4}}, 8), Error);
  });
}

// Linear regression on 2 ranks, 60 steps: the final loss is nearly as low as without compression.
TEST(Compression, a_regression_converges) {
  run_ranks(2, [](comm::World& world) {
    const at::Tensor w_true = random_row(40 * 10, 5).view({40, 10});
    const auto train = [&](const std::shared_ptr<Compression>& method) {
      at::Tensor w = at::zeros({40, 10});
      double loss = 0;
      for (int step = 0; step < 150; ++step) {
        const at::Tensor x = random_row(64 * 40, static_cast<std::uint64_t>(10 * step + world.rank())).view({64, 40});
        const at::Tensor residual = x.mm(w - w_true);  // [64, 10]
        loss = residual.square().mean().item<double>();
        at::Tensor flat = x.t().mm(residual).div_(64).view({-1}).contiguous();
        const std::vector<CompressedSegment> segments = {{{40, 10}, 0, 400}};
        if (method) {
          method->reduce({"w", flat, segments, world.group(), comm::Reduction::mean, flat, false}).wait();
          method->step_done();
        } else {
          world.group().all_reduce(flat, comm::Reduction::mean).wait();
        }
        w -= 0.1 * flat.view({40, 10});
      }
      return loss;
    };
    const double plain = train(nullptr);
    EXPECT_LT(plain, 1e-6);
    for (const char* description :
         {"bf16", "fp16", "powersgd:rank=2,start=5,min_rate=0", "topk:ratio=0.25", "onebit:warmup=20"}) {
      const double loss = train(make_compression(description));
      if (world.rank() == 0) std::printf("%s: %.3g (plain %.3g)\n", description, loss, plain);
      EXPECT_LT(loss, 5e-3) << description;  // it starts at 40
    }
  });
}

TEST(CompressionParser, descriptions) {
  for (const auto& [description, name] : std::vector<std::pair<std::string, std::string>>{
           {"fp16", "fp16"},
           {" bf16 ", "bf16"},
           {"powersgd", "powersgd"},
           {"powersgd:rank=2,start=1000", "powersgd"},
           {"powersgd: rank = 4 , warm_start=false,error_feedback=0,min_rate=1.5", "powersgd"},
           {"topk:ratio=0.01", "topk"},
           {"topk:ratio=1", "topk"},
           {"onebit:warmup=0", "onebit"}}) {
    EXPECT_EQ(make_compression(description)->name(), name);
  }
  EXPECT_EQ(make_compression("none"), nullptr);
}

RC_GTEST_PROP(OneBit, signs_survive_packing, ()) {
  const auto numbers =
      *rc::gen::container<std::vector<float>>(rc::gen::element(-1.5f, 0.f, -0.f, 2.f, 1e-30f, -1e-30f));
  const at::Tensor values = at::tensor(numbers);
  const auto n = static_cast<std::int64_t>(numbers.size());
  const at::Tensor bits = pack_signs(values);
  RC_ASSERT(bits.numel() == (n + 7) / 8);
  for (std::int64_t i = 0; i < n; ++i) {
    RC_ASSERT((bits.data_ptr<std::uint8_t>()[i / 8] >> (i % 8) & 1) == (numbers[static_cast<std::size_t>(i)] >= 0));
  }
}

RC_GTEST_PROP(TopK, takes_the_largest, ()) {
  const auto numbers = *rc::gen::container<std::vector<float>>(rc::gen::oneOf(
      rc::gen::element(0.f, -0.f, 1.f, -1.f, 1.0000001f, 1e-40f, INFINITY, -INFINITY), rc::gen::arbitrary<float>()));
  const auto n = static_cast<std::int64_t>(numbers.size());
  const auto k = *rc::gen::inRange<std::int64_t>(0, n + 1);
  std::vector<std::int64_t> places(numbers.size());
  std::iota(places.begin(), places.end(), 0);
  std::stable_sort(places.begin(), places.end(), [&](std::int64_t a, std::int64_t b) {
    return std::abs(numbers[static_cast<std::size_t>(a)]) > std::abs(numbers[static_cast<std::size_t>(b)]);
  });
  std::sort(places.begin(), places.begin() + k);
  places.resize(static_cast<std::size_t>(k));
  const at::Tensor got = largest_magnitudes(at::tensor(numbers), k);
  RC_ASSERT(std::vector<std::int64_t>(got.data_ptr<std::int64_t>(), got.data_ptr<std::int64_t>() + k) == places);
}

// 512 columns in a space of 64 dimensions: rounding residues of dependent columns must not become directions.
TEST(PowerSgdColumns, dependent_columns_are_found) {
  const at::Tensor matrix = at::zeros({1024, 512});
  matrix.narrow(0, 100, 64).copy_(random_row(64 * 512, 3).view({64, 512}));
  const at::Tensor basis = matrix.clone();
  orthonormalize_columns(basis);
  EXPECT_EQ(basis.square().sum(0).round().sum().item<float>(), 64);
  EXPECT_LT(distance(basis.mm(basis.t().mm(matrix)), matrix), 1e-5);
}

RC_GTEST_PROP(PowerSgd, columns_become_orthonormal_and_span_the_same, ()) {
  const auto rows = *rc::gen::inRange<std::int64_t>(1, 40), rank = *rc::gen::inRange<std::int64_t>(1, 8);
  const auto true_rank = *rc::gen::inRange<std::int64_t>(1, 8), inner = std::min({rows, rank, true_rank});
  const auto seed = *rc::gen::inRange<std::uint64_t>(0, 1000);
  const at::Tensor matrix =
      random_row(rows * inner, seed).view({rows, inner}).mm(random_row(inner * rank, seed + 7).view({inner, rank}));
  const at::Tensor basis = matrix.clone();
  orthonormalize_columns(basis);
  const at::Tensor gram = basis.t().mm(basis);
  for (std::int64_t i = 0; i < rank; ++i) {
    for (std::int64_t j = 0; j < rank; ++j) {
      const float g = gram[i][j].item<float>();
      RC_ASSERT(std::abs(g - (i == j ? 1 : 0)) < 1e-4f || (i == j && g == 0));
    }
  }
  const at::Tensor again = basis.mm(basis.t().mm(matrix));
  RC_ASSERT((again - matrix).norm().item<float>() <= 1e-4f * matrix.norm().item<float>() + 1e-12f);
}

}  // namespace
