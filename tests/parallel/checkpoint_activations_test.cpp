// Checkpointing gives the same bits with less memory, for plain functions and unmodified torch::nn modules.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <tessera/base/error.h>
#include <tessera/nn/autocast.h>
#include <tessera/parallel/autograd/saved_tensors.h>
#include <tessera/parallel/recompute/checkpoint_activations.h>
#include <tessera/parallel/recompute/checkpoint_plan.h>

#include <tests/error_of.h>

#include <filesystem>
#include <thread>
#include <tuple>

#include "allocated.h"
#include "checkpoint_modules.h"

namespace {

using namespace tessera;
using namespace checkpoint_test;
using tessera::testing::error_of;

/// Bits are reproducible with one thread, which is also faster for small products.
struct OneThread : ::testing::Environment {
  void SetUp() override { at::set_num_threads(1); }
};
[[maybe_unused]] const auto* const one_thread = ::testing::AddGlobalTestEnvironment(new OneThread);

TEST(Checkpoint, mlp_with_dropout) {
  const Stack<Block> stack(4, 32);
  const at::Tensor x = input({6, 32});
  const Result plain = train_step(stack, x, plainly);
  expect_same(train_step(stack, x, with_checkpoints), plain);
  expect_same(train_step(stack, x.clone().requires_grad_(true), with_checkpoints), plain);
}

TEST(Checkpoint, transformer_on_multihead_attention) {
  const Stack<Layer> stack(3, 32, 4);
  const at::Tensor x = input({9, 2, 32});
  const Result plain = train_step(stack, x, plainly);
  expect_same(train_step(stack, x, with_checkpoints), plain);
  const auto before = parallel::checkpoint_counts();
  expect_same(
      train_step(stack, x, [](int i, const auto& f, const at::Tensor& h) { return i % 2 ? f(h) : checkpointed(f, h); }),
      plain);
  const auto after = parallel::checkpoint_counts();
  EXPECT_EQ(after.regions - before.regions, 2);
  EXPECT_EQ(after.recomputed - before.recomputed, 2);
}

TEST(Checkpoint, nested) {
  const Stack<Layer> stack(4, 16, 2);
  const at::Tensor x = input({5, 2, 16});
  const Result plain = train_step(stack, x, plainly);
  // ((0 1) (2 3)): each layer, each pair and the whole are regions
  const auto nested = [&](const at::Tensor& start) {
    at::manual_seed(11);
    const auto one = [&](int i) -> Function {
      return [layer = stack.blocks[static_cast<std::size_t>(i)]](const at::Tensor& h) mutable { return layer(h); };
    };
    const auto two = [&](int i) {
      return [f = one(i), g = one(i + 1)](const at::Tensor& h) { return checkpointed(g, checkpointed(f, h)); };
    };
    const at::Tensor y = checkpointed(
        [f = two(0), g = two(2)](const at::Tensor& h) { return checkpointed(g, checkpointed(f, h)); }, start);
    const at::Tensor loss = y.square().mean();
    return Result{loss.item<double>(), torch::autograd::grad({loss}, stack.parameters()), at::rand({4})};
  };
  expect_same(nested(x), plain);
}

RC_GTEST_PROP(Checkpoint, any_tree_of_regions, ()) {
  static const Stack<Block> stack(5, 8);
  static const at::Tensor x = input({3, 8});
  static const Result plain = train_step(stack, x, plainly);
  // cut[i][d]: a region at depth d begins before block i. Recurses over spans of blocks.
  const auto choices = *rc::gen::container<std::vector<int>>(64, rc::gen::inRange(0, 3));
  std::size_t used = 0;
  std::function<Function(std::size_t, std::size_t)> span = [&](std::size_t begin, std::size_t end) -> Function {
    const int choice = choices[used++ % choices.size()];
    Function whole;
    if (end - begin == 1) {
      whole = [block = stack.blocks[begin]](const at::Tensor& h) mutable { return block(h); };
    } else {
      const std::size_t middle =
          begin + 1 + static_cast<std::size_t>(choices[used++ % choices.size()]) % (end - begin - 1);
      whole = [a = span(begin, middle), b = span(middle, end)](const at::Tensor& h) { return b(a(h)); };
    }
    if (choice == 0) return whole;
    return [whole](const at::Tensor& h) { return checkpointed(whole, h); };
  };
  const auto f = span(0, stack.blocks.size());
  at::manual_seed(11);
  const at::Tensor loss = f(x).square().mean();
  const variable_list gradients = torch::autograd::grad({loss}, stack.parameters());
  RC_ASSERT(loss.item<double>() == plain.loss);
  for (std::size_t i = 0; i < gradients.size(); ++i) RC_ASSERT(at::equal(gradients[i], plain.gradients[i]));
  RC_ASSERT(at::equal(at::rand({4}), plain.next_random));
}

TEST(Checkpoint, several_inputs_and_outputs) {
  at::manual_seed(1);
  const at::Tensor w = at::randn({4, 4}).requires_grad_(true), q = at::randn({3, 4}), k = at::randn({3, 4});
  const auto f = [w](const at::Tensor& a, const at::Tensor& b, const at::Tensor& none) {
    EXPECT_FALSE(none.defined());
    const at::Tensor c = at::tanh(a.matmul(w));
    return std::make_tuple(c * b, at::exp(c).sum(), std::string("any type"));
  };
  const auto loss = [&](const auto& results) { return std::get<0>(results).sum() + std::get<1>(results); };
  const variable_list plain = torch::autograd::grad({loss(f(q, k, at::Tensor()))}, {w});
  expect_same(torch::autograd::grad({loss(checkpointed(f, q, k, at::Tensor()))}, {w}), plain);

  const auto g = [w](const std::vector<at::Tensor>& in) {
    return std::vector<at::Tensor>{at::sin(in[0].matmul(w)), at::sin(in[1].matmul(w)), in[1]};
  };
  const auto sum = [](const std::vector<at::Tensor>& out) { return (out[0] * out[1] * out[2]).sum(); };
  const std::vector<at::Tensor> both{q, k};
  const variable_list expected = torch::autograd::grad({sum(g(both))}, {w});
  expect_same(torch::autograd::grad({sum(checkpointed(CheckpointOptions{.name = "g"}, g, both))}, {w}), expected);
}

TEST(Checkpoint, gradients_of_inputs) {
  const at::Tensor x = input({3, 4}).requires_grad_(true);
  const auto f = [](const at::Tensor& h) { return at::tanh(h * h).exp(); };
  const variable_list plain = torch::autograd::grad({f(x.sin()).sum()}, {x});
  expect_same(torch::autograd::grad({checkpointed(f, x.sin()).sum()}, {x}), plain);
  expect_same(torch::autograd::grad({checkpointed(f, x).sum()}, {x}), torch::autograd::grad({f(x).sum()}, {x}));
}

TEST(Checkpoint, costs_nothing_without_grad_mode) {
  const auto before = parallel::checkpoint_counts();
  Block block(8);
  const at::NoGradGuard no_grad;
  checkpointed([block](const at::Tensor& h) mutable { return block(h); }, input({2, 8}));
  EXPECT_EQ(parallel::checkpoint_counts().regions, before.regions);
}

TEST(Checkpoint, retain_graph_recomputes_again) {
  const Stack<Block> stack(2, 8);
  at::Tensor x = input({3, 8});
  const auto f = [stack](const at::Tensor& h) {
    Block a = stack.blocks[0], b = stack.blocks[1];
    return b(a(h));
  };
  const at::Tensor loss = checkpointed(f, x).square().sum();
  const auto before = parallel::checkpoint_counts().recomputed;
  const variable_list first = torch::autograd::grad({loss}, stack.parameters(), {}, /*retain_graph=*/true);
  const variable_list second = torch::autograd::grad({loss}, stack.parameters(), {}, /*retain_graph=*/true);
  expect_same(second, first);
  EXPECT_EQ(parallel::checkpoint_counts().recomputed - before, 2);
  // backward through a part of the graph, then the rest: tensors that the first pass did not use are not kept
  tessera::testing::Allocated allocated;
  expect_same(torch::autograd::grad({loss}, {stack.blocks[1]->down->weight}, {}, true),
              {first[stack.blocks[0]->parameters().size() + 4]});
  EXPECT_EQ(allocated.now(), 0);
  expect_same(torch::autograd::grad({loss}, stack.parameters()), first);
  EXPECT_THROW(torch::autograd::grad({loss}, stack.parameters()), c10::Error);
}

TEST(Checkpoint, double_backward) {
  const Stack<Block> stack(2, 8, 0.0);
  const at::Tensor x = input({3, 8}).requires_grad_(true);
  const auto penalty = [&](const Runner& run) {
    at::Tensor h = x;
    for (int i = 0; i < 2; ++i) {
      Block block = stack.blocks[static_cast<std::size_t>(i)];
      h = run(i, [block](const at::Tensor& t) mutable { return block(t); }, h);
    }
    const at::Tensor slope = torch::autograd::grad({h.exp().sum()}, {x}, {}, true, /*create_graph=*/true)[0];
    const at::Tensor loss = slope.square().mean() + h.mean();
    return torch::autograd::grad({loss}, stack.parameters(), {}, std::nullopt, false, /*allow_unused=*/true);
  };
  const variable_list plain = penalty(plainly), again = penalty(with_checkpoints);
  for (std::size_t i = 0; i < plain.size(); ++i) {
    ASSERT_EQ(plain[i].defined(), again[i].defined());
    if (!plain[i].defined()) continue;
    EXPECT_TRUE(at::equal(plain[i], again[i])) << i;
  }
}

TEST(Checkpoint, backward_inside_a_region) {
  const at::Tensor w = input({4, 4}).requires_grad_(true);
  const at::Tensor x = input({3, 4});
  // the slope of the energy as an activation (as in force fields)
  const auto f = [w](const at::Tensor& h) {
    const at::Tensor at_point = h.detach().requires_grad_(true);
    const at::Tensor energy = at::tanh(at_point.matmul(w)).square().sum();
    return torch::autograd::grad({energy}, {at_point}, {}, true, /*create_graph=*/true)[0] * h;
  };
  const variable_list plain = torch::autograd::grad({f(x).sum()}, {w});
  expect_same(torch::autograd::grad({checkpointed(f, x).sum()}, {w}), plain);
  expect_same(
      torch::autograd::grad({checkpointed([f](const at::Tensor& h) { return checkpointed(f, f(h)); }, x).sum()}, {w}),
      torch::autograd::grad({f(f(x)).sum()}, {w}));
}

/// Re-entrant checkpointing as other libraries write it: backward calls autograd from inside a custom function.
struct Reentrant : torch::autograd::Function<Reentrant> {
  static inline std::function<at::Tensor(const at::Tensor&)> body;
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x) {
    ctx->save_for_backward({x});
    return body(x);
  }
  static variable_list backward(torch::autograd::AutogradContext* ctx, const variable_list& gradients) {
    const at::Tensor x = ctx->get_saved_variables()[0].detach().requires_grad_(true);
    const at::AutoGradMode grad_mode(true);
    const at::Tensor y = body(x);
    torch::autograd::backward({y}, {gradients[0]});
    return {x.grad()};
  }
};

TEST(Checkpoint, inside_and_around_a_re_entrant_region) {
  Block block(8, 0.0);
  const at::Tensor x = input({3, 8}).requires_grad_(true);
  const auto run = [&](const std::function<at::Tensor()>& f) {
    block->zero_grad();
    f().square().sum().backward();
    variable_list gradients;
    for (const at::Tensor& p : block->parameters()) gradients.push_back(p.grad().clone());
    return gradients;
  };
  const Function f = [block](const at::Tensor& h) mutable { return block(h); };
  const variable_list plain = run([&] { return block(block(x)); });
  Reentrant::body = [f](const at::Tensor& h) { return checkpointed(f, h); };
  expect_same(run([&] { return f(Reentrant::apply(x)); }), plain);
  Reentrant::body = f;
  expect_same(run([&] { return checkpointed([f](const at::Tensor& h) { return f(Reentrant::apply(h)); }, x); }), plain);
}

TEST(Checkpoint, autocast_is_restored) {
  const Stack<Layer> stack(2, 32, 4);
  const at::Tensor x = input({9, 2, 32});
  const auto under_autocast = [&](const Runner& run) {
    at::manual_seed(11);
    at::Tensor loss;
    {
      const nn::Autocast autocast(true, at::kCPU);
      at::Tensor h = x;
      for (int i = 0; i < 2; ++i) {
        Layer layer = stack.blocks[static_cast<std::size_t>(i)];
        h = run(i, [layer](const at::Tensor& t) mutable { return layer(t); }, h);
      }
      loss = h.to(at::kFloat).square().mean();
    }
    return Result{loss.item<double>(), torch::autograd::grad({loss}, stack.parameters()), at::rand({4})};
  };
  expect_same(under_autocast(with_checkpoints), under_autocast(plainly));
  EXPECT_FALSE(nn::autocast_enabled(at::kCPU));
}

TEST(Checkpoint, four_threads_at_once) {
  const Stack<Layer> stack(3, 16, 2);
  for (Layer layer : stack.blocks) layer->eval();  // no random draws: the generator is shared by the process
  const at::Tensor x = input({5, 2, 16});
  const auto step = [&](const Runner& run) {
    at::Tensor h = x;
    for (int i = 0; i < 3; ++i) {
      Layer layer = stack.blocks[static_cast<std::size_t>(i)];
      h = run(i, [layer](const at::Tensor& t) mutable { return layer(t); }, h);
    }
    return torch::autograd::grad({h.square().mean()}, stack.parameters());
  };
  const variable_list plain = step(plainly);
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int round = 0; round < 5; ++round) {
        const variable_list gradients = step(with_checkpoints);
        bool same = true;
        for (std::size_t i = 0; i < plain.size(); ++i) same = same && at::equal(gradients[i], plain[i]);
        right += same;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 20);
}

TEST(Checkpoint, forward_in_one_thread_backward_in_another) {
  const Stack<Block> stack(3, 8);
  const at::Tensor x = input({3, 8});
  const Result plain = train_step(stack, x, plainly);
  at::Tensor loss;
  std::thread([&] {
    at::manual_seed(11);
    at::Tensor h = x;
    for (int i = 0; i < 3; ++i) {
      Block block = stack.blocks[static_cast<std::size_t>(i)];
      h = checkpointed([block](const at::Tensor& t) mutable { return block(t); }, h);
    }
    loss = h.square().mean();
  }).join();
  expect_same(torch::autograd::grad({loss}, stack.parameters()), plain.gradients);
}

TEST(Checkpoint, exceptions_leave_everything_in_order) {
  const Stack<Block> stack(2, 8);
  const at::Tensor x = input({3, 8});
  const Result plain = train_step(stack, x, plainly);
  bool fail = true;
  const Runner fails = [&](int i, const auto& f, const at::Tensor& h) {
    return checkpointed(
        [f, i, &fail](const at::Tensor& t) {
          at::Tensor y = f(t);
          if (i == 1 && fail) throw std::runtime_error("out of luck");
          return y;
        },
        h);
  };
  EXPECT_EQ(error_of<std::exception>([&] { train_step(stack, x, fails); }), "out of luck");
  fail = false;
  expect_same(train_step(stack, x, fails), plain);

  // random state, grad mode and policies are also restored after an error in the recomputation
  at::manual_seed(11);
  int calls = 0;
  Block block = stack.blocks[0];
  const at::Tensor loss = checkpointed(
                              [block, &calls](const at::Tensor& t) mutable {
                                const at::Tensor h = at::dropout(t, 0.5, true);
                                if (++calls == 2) throw std::runtime_error("out of memory, say");
                                return block(h);
                              },
                              x)
                              .sum();
  const at::Tensor state = at::detail::getDefaultCPUGenerator().get_state();
  EXPECT_EQ(error_of<std::exception>([&] { torch::autograd::grad({loss}, block->parameters(), {}, true); }),
            "out of memory, say");
  EXPECT_TRUE(at::equal(at::detail::getDefaultCPUGenerator().get_state(), state));
  const auto counting = parallel::counting_policy();
  {
    const parallel::SavedTensors scope(counting);
    at::exp(block->up->bias * 2);
  }
  EXPECT_EQ(counting->bytes().tensors, 1) << "a policy was left behind";
  EXPECT_NO_THROW(torch::autograd::grad({loss}, block->parameters())) << "the third call succeeds";
}

TEST(Checkpoint, a_function_that_hides_exceptions_is_no_obstacle) {
  const at::Tensor w = input({4, 4}).requires_grad_(true), x = input({3, 4});
  const auto f = [w](const at::Tensor& h) {
    at::Tensor y;
    try {
      y = at::exp(at::tanh(h.matmul(w)));
    } catch (const std::exception& e) {
      throw std::logic_error("something went wrong in my layer");
    }
    return y;
  };
  const variable_list plain = torch::autograd::grad({f(x).sum()}, {w});
  expect_same(torch::autograd::grad({checkpointed(f, x).sum()}, {w}), plain);
}

TEST(Checkpoint, a_recomputation_that_differs_is_named) {
  const at::Tensor w = input({4, 4}).requires_grad_(true), x = input({3, 4});
  int call = 0;
  const auto message = [&](bool early_stop, const Function& first, const Function& again) {
    call = 0;
    return error_of<std::exception>([&] {
      checkpointed(
          {.name = "transformer.h.3", .early_stop = early_stop},
          [&](const at::Tensor& h) { return call++ == 0 ? first(h) : again(h); }, x)
          .sum()
          .backward();
    });
  };
  const auto one = [&](const at::Tensor& h) { return at::exp(h.matmul(w)); };
  const auto two = [&](const at::Tensor& h) { return at::exp(at::exp(h.matmul(w))); };
  const auto other = [&](const at::Tensor& h) { return at::exp(h.slice(0, 0, 2).matmul(w)); };
  for (const bool early_stop : {true, false}) {
    const std::string fewer = message(early_stop, two, one);
    EXPECT_NE(
        fewer.find("transformer.h.3: the recomputation differs from the forward pass: autograd saves 2 tensors in it"),
        std::string::npos)
        << fewer;
    const std::string shape = message(early_stop, one, other);
    EXPECT_NE(shape.find("transformer.h.3"), std::string::npos) << shape;
    EXPECT_NE(shape.find("tensor 0 that autograd saves is Float [2, 4] on cpu, but it was Float [3, 4] on cpu"),
              std::string::npos)
        << shape;
  }
  const std::string more = message(false, one, two);
  EXPECT_NE(more.find("autograd saves 3 tensors in it, but 2 in the forward pass"), std::string::npos) << more;
}

TEST(Checkpoint, an_input_changed_in_place_is_an_error) {
  const at::Tensor w = input({4, 4}).requires_grad_(true);
  at::Tensor x = input({3, 4});
  const at::Tensor y = checkpointed([w](const at::Tensor& h) { return at::exp(h.matmul(w)); }, x);
  x.mul_(2);
  const std::string message = error_of<std::exception>([&] { y.sum().backward(); });
  EXPECT_NE(message.find("modified by an inplace operation"), std::string::npos) << message;

  // also for a saved tensor that the region itself overwrites, as without checkpointing
  const at::Tensor z =
      checkpointed([w](const at::Tensor& h) { return at::exp(at::exp(h.matmul(w)).mul_(2) + 1); }, input({3, 4}));
  const std::string inside = error_of<std::exception>([&] { z.sum().backward(); });
  EXPECT_NE(inside.find("modified by an inplace operation"), std::string::npos) << inside;
}

TEST(Checkpoint, early_stop_ends_after_the_last_needed_tensor) {
  const at::Tensor w = input({4, 4}).requires_grad_(true), x = input({3, 4});
  int ends = 0;
  const auto f = [&](const at::Tensor& h) {
    const at::Tensor y = at::exp(h.matmul(w));
    ++ends;  // nothing is saved after this point
    return y + 1;
  };
  checkpointed(f, x).sum().backward();
  EXPECT_EQ(ends, 1);
  checkpointed({.early_stop = false}, f, x).sum().backward();
  EXPECT_EQ(ends, 3);
}

TEST(Checkpoint, random_state_can_be_left_alone) {
  const at::Tensor w = at::ones({1000}).requires_grad_(true);
  const auto f = [w](const at::Tensor& h) { return at::dropout(h * w, 0.5, true); };
  at::manual_seed(1);
  const at::Tensor y = checkpointed({.preserve_random = false}, f, at::ones({1000}));
  y.sum().backward();
  EXPECT_FALSE(at::equal(w.grad(), y)) << "the mask should have been redrawn";
  w.mutable_grad().reset();
  const at::Tensor z = checkpointed(f, at::ones({1000}));
  z.sum().backward();
  EXPECT_TRUE(at::equal(w.grad(), z));
}

TEST(Checkpoint, inputs_go_through_the_policies_around_it) {
  const Stack<Layer> stack(3, 32, 4);
  const at::Tensor x = input({9, 2, 32});
  const Result plain = train_step(stack, x, plainly);
  OffloadActivations off({.to = std::filesystem::temp_directory_path().string(), .min_bytes = 0});
  std::int64_t before = 0;
  expect_same(train_step(stack, x,
                         [&](int i, const auto& f, const at::Tensor& h) {
                           before = off.bytes().packed;
                           at::Tensor y = checkpointed(f, h);
                           EXPECT_EQ(off.bytes().packed - before, 9 * 2 * 32 * 4) << "the input and nothing else";
                           return y;
                         }),
              plain);
  EXPECT_EQ(off.bytes().packed, 0);
}

TEST(Checkpoint, compressed_inputs_stay_within_bound) {
  const Stack<Block> stack(3, 64);
  const at::Tensor x = input({64, 64});
  const Result plain = train_step(stack, x, plainly);
  CompressActivations small({.min_bytes = 4096});
  const Result result = train_step(stack, x, with_checkpoints);
  EXPECT_EQ(result.loss, plain.loss);
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < plain.gradients.size(); ++i) {
    difference += (result.gradients[i] - plain.gradients[i]).square().sum().item<double>();
    norm += plain.gradients[i].square().sum().item<double>();
  }
  EXPECT_LE(std::sqrt(difference / norm), 0.004);
}

TEST(Checkpoint, memory_is_the_inputs_and_one_block) {
  constexpr int depth = 12;
  constexpr std::int64_t rows = 256, size = 64, activation = rows * size * 4;
  const Stack<Block> stack(depth, size);
  const at::Tensor x = input({rows, size});
  const auto peak = [&](const Runner& run) {
    train_step(stack, x, run);
    tessera::testing::Allocated allocated;
    {
      const Result result = train_step(stack, x, run);
      EXPECT_GT(allocated.peak(), 0);
    }
    EXPECT_EQ(allocated.now(), 0);
    return allocated.peak();
  };
  std::int64_t gradients = 0;
  for (const at::Tensor& p : stack.parameters()) gradients += static_cast<std::int64_t>(p.nbytes());
  const std::int64_t plain = peak(plainly), small = peak(with_checkpoints);
  // A block keeps norm's input and output, gelu's input and output (4 widths each), the mask and the scaled mask.
  const std::int64_t block = (2 + 4 + 4 + 2) * activation;
  EXPECT_GT(plain, depth * 10 * activation);
  // inputs of the blocks, one recomputed block, its gradients in flight (4 + 4 + 2 widths), all parameter gradients
  EXPECT_LE(small, depth * activation + block + 10 * activation + gradients);
  RecordProperty("plain_bytes", std::to_string(plain));
  RecordProperty("checkpointed_bytes", std::to_string(small));
}

TEST(Checkpoint, nothing_is_left_after_a_graph_that_nobody_uses) {
  Block block(8);
  tessera::testing::Allocated allocated;
  {
    const at::Tensor y = checkpointed(
        [block](const at::Tensor& h) mutable {
          return checkpointed([block](const at::Tensor& t) mutable { return block(t); }, block(h));
        },
        input({3, 8}));
  }
  EXPECT_EQ(allocated.now(), 0);
}

TEST(Checkpoint, a_long_chain_of_regions_is_freed_without_recursion) {
  const at::Tensor w = at::ones({1}).requires_grad_(true);
  at::Tensor h = at::ones({1});
  // exp(w) is freed last, and no edge connects it to h
  for (int i = 0; i < 20000; ++i)
    h = checkpointed({.preserve_random = false}, [w](const at::Tensor& x) { return x * at::exp(w); }, h);
  h.reset();
}

TEST(Plan, chooses_by_number_name_and_part) {
  using parallel::ActivationCheckpointing;
  using parallel::CheckpointPart;
  const ActivationCheckpointing third({.every = 3});
  for (std::int64_t block = 0; block < 8; ++block)
    EXPECT_EQ(third.chooses("h." + std::to_string(block), block, CheckpointPart::block), block % 3 == 0);
  EXPECT_FALSE(third.chooses("h.0.attn", 0, CheckpointPart::attention));
  const ActivationCheckpointing named({.names = "h\\.[12]\\.mlp", .part = layout::parse_checkpoint_part("mlp")});
  EXPECT_TRUE(named.chooses("h.1.mlp", 1, CheckpointPart::mlp));
  EXPECT_FALSE(named.chooses("h.12.mlp", 12, CheckpointPart::mlp)) << "the whole name must match";
  EXPECT_FALSE(named.chooses("h.1.mlp", 1, CheckpointPart::block));
  EXPECT_THROW(ActivationCheckpointing({.every = 0}), InputError);
  EXPECT_THROW(ActivationCheckpointing({.names = "h.(1"}), InputError);
  EXPECT_THROW(layout::parse_checkpoint_part("half"), InputError);
}

}  // namespace
