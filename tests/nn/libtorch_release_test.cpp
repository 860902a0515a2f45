/// \file
/// The functions of nn/libtorch/release.h behave alike with each release of LibTorch.

#include <gtest/gtest.h>

#include <tessera/nn/libtorch/release.h>

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/engine.h>

#include <memory>

namespace tessera::nn {
namespace {

namespace autograd = torch::autograd;

/// Multiplies gradients by three; owns `alive`.
class Triple final : public autograd::Node {
 public:
  Triple(autograd::edge_list edges, std::shared_ptr<int> alive) : Node(std::move(edges)), alive_(std::move(alive)) {
    add_input_metadata(at::zeros({2}));
  }
  autograd::variable_list apply(autograd::variable_list&& gradients) override { return {gradients[0] * 3}; }

 private:
  std::shared_ptr<int> alive_;
};

TEST(TorchRelease, ANodeRunsInTheEngineAndEndsWithItsLastOwner) {
  const at::Tensor w = at::ones({2}).requires_grad_();
  const auto alive = std::make_shared<int>(1);
  {
    const NodePointer<Triple> node = make_node<Triple>(autograd::edge_list{autograd::impl::gradient_edge(w)}, alive);
    const NodePointer<> base = node;
    autograd::Engine::get_default_engine().execute({autograd::Edge(base, 0)}, {at::full({2}, 2.0)},
                                                   /*keep_graph=*/false, /*create_graph=*/false,
                                                   /*accumulate_grad=*/true);
    EXPECT_EQ(alive.use_count(), 2);
  }
  EXPECT_EQ(alive.use_count(), 1);
  EXPECT_TRUE(at::equal(w.grad(), at::full({2}, 6.0)));
}

TEST(TorchRelease, ALongChainOfNodesEndsWithoutRecursion) {
  const auto alive = std::make_shared<int>(1);
  NodePointer<> last;
  for (int i = 0; i < 100'000; ++i) {
    autograd::edge_list edges;
    edges.emplace_back(last, 0);
    last = make_node<Triple>(std::move(edges), alive);
  }
  last = {};
  EXPECT_EQ(alive.use_count(), 1);
}

TEST(TorchRelease, ALeafOfAnotherShapeGetsAnotherAccumulator) {
  at::Tensor w = at::ones({4}).requires_grad_();
  const auto loss = [&] { return (w * w).sum(); };
  const autograd::Edge first = autograd::impl::gradient_edge(w);  // keeps the accumulator of four elements
  {
    const at::NoGradGuard guard;
    w.set_data(at::ones({2}));
  }
  forget_gradient_accumulator(w);
  EXPECT_NE(autograd::impl::gradient_edge(w).function.get(), first.function.get());
  loss().backward();
  EXPECT_TRUE(at::equal(w.grad(), at::full({2}, 2.0)));
}

}  // namespace
}  // namespace tessera::nn
