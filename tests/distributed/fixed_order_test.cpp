// The fixed order: the same bits for any number of ranks (docs/strategies.md), compared with sequential sums.
#include "ddp_models.h"

#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/comm/shared_memory.h>
#include <tessera/optim/optimizer.h>
#include <tessera/parallel/ddp.h>
#include <tests/distributed/harness.h>

namespace {

using namespace tessera;
using namespace tessera::testing;

constexpr int shards = 12;

RankOptions over(const std::string& backend) {
  RankOptions options;
  options.timeout_s = 60;
  options.init.backend = backend;
  return options;
}

std::string hex(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().contiguous();
  const auto* bytes = static_cast<const unsigned char*>(flat.const_data_ptr());
  std::string text;
  for (std::size_t i = 0; i < flat.nbytes(); ++i)
    text += "0123456789abcdef"[bytes[i] >> 4], text += "0123456789abcdef"[bytes[i] & 15];
  return text;
}

/// The input of micro-batch i: numbers of very different magnitudes, whose sum depends on the order.
at::Tensor input(std::int64_t n, at::ScalarType dtype, int i) {
  const at::Tensor k = at::arange(n, at::kDouble);
  return (at::sin(k * 12.9898 + i * 78.233) * at::exp(at::cos(k * 3.1 + i) * 6)).to(dtype);
}

class FixedOrder : public ::testing::TestWithParam<std::string> {};

TEST_P(FixedOrder, accumulate_adds_the_micro_batches_in_their_order) {
  for (const int ranks : {2, 3, 4}) {
    run_ranks(
        ranks,
        [](comm::World& world) {
          const comm::Group& group = world.group();
          for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kInt})
            for (const std::int64_t n : {std::int64_t{1}, std::int64_t{5}, std::int64_t{24}, std::int64_t{10007}}) {
              const bool half = dtype == at::kBFloat16 || dtype == at::kHalf;
              const at::Tensor zeros = at::zeros({n}, half ? at::kFloat : dtype);
              at::Tensor expected = zeros.clone(), backwards = zeros.clone();
              for (int i = 0; i < shards; ++i) expected.add_(input(n, dtype, i));
              for (int i = shards - 1; i >= 0; --i) backwards.add_(input(n, dtype, i));
              const bool order_shows = n > 1000 && at::isFloatingType(dtype);
              EXPECT_TRUE(!order_shows || !at::equal(expected, backwards)) << dtype;
              for (const bool shared : {false, true}) {
                at::Tensor sum = zeros.clone(), mine = at::empty({n}, dtype);
                if (shared) {
                  sum = comm::zeros_shared(group, {n}, zeros.options());
                  mine = comm::empty_shared(group, {n}, mine.options());
                }
                for (int k = 0; k < shards / group.size(); ++k) {
                  mine.copy_(input(n, dtype, k * group.size() + group.rank()));
                  group.accumulate(sum, mine).wait();
                  EXPECT_TRUE(at::equal(mine, input(n, dtype, k * group.size() + group.rank())))
                      << "the input was written";
                }
                EXPECT_TRUE(at::equal(sum, expected)) << dtype << " [" << n << "]";
              }
              // The scattered form: the same sums, one part per rank.
              const std::int64_t whole = n * group.size();
              at::Tensor part = zeros.clone(), all = at::zeros({whole}, part.options());
              for (int i = 0; i < shards; ++i) all.add_(input(whole, dtype, i));
              for (int k = 0; k < shards / group.size(); ++k)
                group.accumulate_scatter(part, input(whole, dtype, k * group.size() + group.rank())).wait();
              EXPECT_TRUE(at::equal(part, all.narrow(0, group.rank() * n, n))) << dtype << " [" << n << "] scattered";
            }
        },
        over(GetParam()));
  }
}

// Several operations in flight, large enough to be split into chunks, waited for in a different order.
TEST_P(FixedOrder, accumulate_of_large_tensors_in_flight) {
  for (const int ranks : {2, 3, 4}) {
    run_ranks(
        ranks,
        [](comm::World& world) {
          const comm::Group& group = world.group();
          const int me = group.rank(), size = group.size();
          constexpr std::int64_t n = 200003;
          for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
            const auto numbers = [&](std::int64_t count, int i) {  // as above, but cheaper
              return input(1009, dtype, i).repeat({count / 1009 + 1}).narrow(0, i, count).contiguous();
            };
            const at::Tensor zeros = at::zeros({n}, at::kFloat);
            at::Tensor sum = zeros.clone(), part = zeros.clone(), expected = zeros.clone();
            at::Tensor whole = at::zeros({n * size}, zeros.options());
            std::vector<at::Tensor> inputs;
            std::vector<comm::Work> works;
            for (int k = 0; k < 3; ++k) {
              for (int r = 0; r < size; ++r) {
                expected.add_(numbers(n, k * size + r));
                whole.add_(numbers(n * size, k * size + r));
              }
              inputs.push_back(numbers(n, k * size + me));
              works.push_back(group.accumulate(sum, inputs.back()));
              at::Tensor scattered = numbers(n * size, k * size + me);
              if ((k + me) % 2 == 0) {
                scattered = comm::empty_shared(group, {n * size}, scattered.options()).copy_(scattered);
              }
              inputs.push_back(scattered);
              works.push_back(group.accumulate_scatter(part, inputs.back()));
            }
            for (auto work = works.rbegin(); work != works.rend(); ++work) work->wait();
            EXPECT_TRUE(at::equal(sum, expected)) << dtype;
            EXPECT_TRUE(at::equal(part, whole.narrow(0, me * n, n))) << dtype << " scattered";
          }
        },
        over(GetParam()));
  }
}

TEST_P(FixedOrder, accumulate_says_what_does_not_fit) {
  run_ranks(
      2,
      [](comm::World& world) {
        const comm::Group& group = world.group();
        const at::Tensor half = at::zeros({4}, at::kBFloat16);
        EXPECT_THROW((void)group.accumulate(half.clone(), half), InputError);
        EXPECT_THROW((void)group.accumulate(at::zeros({4}), at::zeros({4}, at::kDouble)), InputError);
        EXPECT_THROW((void)group.accumulate(at::zeros({4}), at::zeros({5})), InputError);
        EXPECT_THROW((void)group.accumulate_scatter(at::zeros({4}), at::zeros({4})), InputError);
        group.barrier().wait();
      },
      over(GetParam()));
}

/// Three steps of AdamW with clipping; weights, norms and losses as text.
template <class M>
std::string train(comm::World& world, comm::Reduction reduction, double bucket_mb) {
  at::manual_seed(11);
  M model;
  Ddp ddp(model,
          {.first_bucket_mb = bucket_mb / 4, .bucket_mb = bucket_mb, .reduction = reduction, .logical_shards = shards});
  std::vector<optim::Slot> slots;
  for (const auto& [name, parameter] : ddp.parameters()) slots.push_back({name, parameter, 0.01});
  const auto optimizer = optim::make_adamw(std::move(slots), {});
  std::string record;
  for (int step = 0; step < 3; ++step) {
    const Batch batch = global_batch(step, shards * 2);
    ddp.zero_grad();
    for (int k = 0; k < shards / world.size(); ++k) {
      const Batch micro = part(batch, k * world.size() + world.rank(), shards);
      (mean_loss(model, micro) * (reduction == comm::Reduction::sum ? 1.0 / shards : 1.0)).backward();
    }
    const double norm = ddp.clip_grad_norm(0.05);
    record += concat(hex(at::scalar_tensor(norm, at::kDouble)), " ");
    optimizer->step(1e-2);
  }
  for (const auto& [name, parameter] : ddp.parameters()) record += concat(name, "=", hex(parameter), "\n");
  return record;
}

template <class M>
void expect_same_bits(const std::string& backend) {
  for (const comm::Reduction reduction : {comm::Reduction::sum, comm::Reduction::mean}) {
    std::string alone;
    for (const int ranks : {1, 2, 3, 4, 6}) {
      const auto outcomes = run_ranks(
          ranks, [&](comm::World& world) { post(train<M>(world, reduction, ranks % 2 == 0 ? 25 : 0.002)); },
          over(ranks == 1 ? "auto" : backend));
      for (const RankOutcome& outcome : outcomes) {
        ASSERT_EQ(outcome.posted.size(), 1u);
        if (alone.empty()) alone = outcome.posted[0];
        EXPECT_EQ(outcome.posted[0], alone) << ranks << " ranks";
      }
    }
  }
}

TEST_P(FixedOrder, ddp_has_the_same_bits_for_every_number_of_ranks) {
  expect_same_bits<SharedModel>(GetParam());
  expect_same_bits<SequenceModel>(GetParam());
}

TEST_P(FixedOrder, ddp_adds_what_one_process_adds) {
  run_ranks(
      3,
      [](comm::World& world) {
        at::manual_seed(3);
        SimpleModel model, alone;
        Ddp ddp(model, {.bucket_mb = 0.001, .reduction = comm::Reduction::sum, .logical_shards = shards});
        const auto from = model.parameters(), to = alone.parameters();
        {
          const at::NoGradGuard no_grad;
          for (std::size_t i = 0; i < to.size(); ++i) at::Tensor(to[i]).copy_(from[i]);
        }
        for (int step = 0; step < 3; ++step) {
          const Batch batch = global_batch(step, shards);
          // one process, one micro-batch after another; each gradient is computed separately, then added
          std::vector<at::Tensor> sums;
          for (const at::Tensor& p : to) sums.push_back(at::zeros_like(p));
          for (int i = 0; i < shards; ++i) {
            for (const at::Tensor& p : to) p.mutable_grad().reset();
            mean_loss(alone, part(batch, i, shards)).backward();
            for (std::size_t j = 0; j < to.size(); ++j) sums[j].add_(to[j].grad());
          }
          if (step == 1)
            for (const at::Tensor& p : from) p.grad().zero_();  // as optimizer.zero_grad(set_to_none = false)
          else
            ddp.zero_grad();
          for (int k = 0; k < shards / world.size(); ++k)
            mean_loss(model, part(batch, k * world.size() + world.rank(), shards)).backward();
          for (std::size_t j = 0; j < to.size(); ++j)
            EXPECT_TRUE(at::equal(from[j].grad(), sums[j])) << step << " " << j;
          // A backward that does not involve the model leaves its sums unchanged.
          const at::Tensor x = at::ones({2}).requires_grad_();
          x.square().sum().backward();
          for (std::size_t j = 0; j < to.size(); ++j) EXPECT_TRUE(at::equal(from[j].grad(), sums[j]));
        }
      },
      over(GetParam()));
}

TEST_P(FixedOrder, ddp_refuses_what_has_no_fixed_order) {
  run_ranks(
      2,
      [](comm::World&) {
        SimpleModel model;
        EXPECT_THROW(Ddp(model, {.logical_shards = 3}), InputError);
        Ddp ddp(model, {.logical_shards = 4});
        EXPECT_THROW((void)ddp.no_sync(), InputError);
        const Batch batch = global_batch(0, 4);
        mean_loss(model, batch).backward();
        at::Tensor weight = model.parameters()[0];
        const at::Tensor once = weight.grad().clone();
        weight.mutable_grad() = once * 3;  // a gradient set by the user: the next ones are added to it
        mean_loss(model, batch).backward();
        EXPECT_TRUE(at::allclose(weight.grad(), once * 4));
        SimpleModel halves;
        halves.to(at::kBFloat16);
        EXPECT_THROW(Ddp(halves, {.logical_shards = 4}), InputError);
      },
      over(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Backend, FixedOrder, ::testing::Values("gloo", "shm"),
                         [](const auto& info) { return info.param; });

}  // namespace
