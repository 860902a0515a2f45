// The begin and end of backward, and gradient hooks.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tessera/base/error.h>
#include <tessera/parallel/autograd/autograd_engine.h>

#include <string>

namespace {

using namespace tessera::parallel;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Journal final : BackwardListener {
  std::string text;
  bool refuse_begin = false, refuse_end = false;
  void backward_begin() override {
    text += "begin ";
    if (refuse_begin) throw tessera::Error("refused to begin");
  }
  void backward_end() override {
    text += "end ";
    if (refuse_end) throw tessera::Error("refused to end");
  }
  void backward_failed() noexcept override { text += "failed "; }
};

at::Tensor leaf(double value = 2) { return at::full({3}, value).requires_grad_(true); }

TEST(BackwardListener, hears_begin_gradients_end_in_order) {
  Journal journal;
  const auto listening = listen_to_backward(journal);
  const at::Tensor w = leaf();
  const auto hook = after_gradient(w, [&](const at::Tensor& p) {
    EXPECT_TRUE(p.is_same(w));
    EXPECT_TRUE(p.grad().defined());
    journal.text += "gradient ";
  });
  (w * w).sum().backward();
  EXPECT_EQ(journal.text, "begin gradient end ");
  EXPECT_TRUE(at::equal(w.grad(), at::full({3}, 4.0)));
  (w * w).sum().backward();
  EXPECT_EQ(journal.text, "begin gradient end begin gradient end ");
}

TEST(BackwardListener, hears_nothing_after_its_subscription) {
  Journal journal;
  const at::Tensor w = leaf();
  {
    const auto listening = listen_to_backward(journal);
    const auto hook = after_gradient(w, [&](const at::Tensor&) { journal.text += "gradient "; });
  }
  w.sum().backward();
  EXPECT_EQ(journal.text, "");
}

// A backward inside a backward, as in re-entrant checkpointing.
struct Nested : torch::autograd::Function<Nested> {
  static inline const at::Tensor* inner = nullptr;
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x.clone(); }
  static variable_list backward(AutogradContext*, variable_list gradients) {
    const at::AutoGradMode enable(true);
    (*inner * 3).sum().backward();
    return gradients;
  }
};

TEST(BackwardListener, a_nested_backward_belongs_to_the_outer_one) {
  Journal journal;
  const auto listening = listen_to_backward(journal);
  const at::Tensor w = leaf(), inner = leaf();
  const auto hook = after_gradient(inner, [&](const at::Tensor&) { journal.text += "inner "; });
  const auto outer_hook = after_gradient(w, [&](const at::Tensor&) { journal.text += "outer "; });
  Nested::inner = &inner;
  Nested::apply(w).sum().backward();
  EXPECT_EQ(journal.text, "begin inner outer end ");
}

struct Throwing : torch::autograd::Function<Throwing> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x.clone(); }
  static variable_list backward(AutogradContext*, variable_list) { throw std::runtime_error("broken operation"); }
};

TEST(BackwardListener, hears_of_failures_and_of_the_next_backward) {
  Journal journal;
  const auto listening = listen_to_backward(journal);
  const at::Tensor w = leaf();
  EXPECT_ANY_THROW(Throwing::apply(w).sum().backward());
  EXPECT_EQ(journal.text, "begin failed ");
  w.sum().backward();
  EXPECT_EQ(journal.text, "begin failed begin end ");
}

TEST(BackwardListener, its_exceptions_come_out_of_backward) {
  Journal journal;
  const auto listening = listen_to_backward(journal);
  const at::Tensor w = leaf();
  journal.refuse_end = true;
  EXPECT_THROW(w.sum().backward(), tessera::Error);
  EXPECT_EQ(journal.text, "begin end failed ");
  journal = {};
  journal.refuse_begin = true;
  w.mutable_grad().reset();
  EXPECT_THROW(w.sum().backward(), tessera::Error);
  EXPECT_EQ(journal.text, "begin failed ");
  EXPECT_FALSE(w.grad().defined()) << "backward ran although begin was refused";
}

TEST(AfterGradient, several_hooks_run_in_order_and_end_one_by_one) {
  const at::Tensor w = leaf();
  std::string text;
  auto first = after_gradient(w, [&](const at::Tensor&) { text += "1"; });
  {
    const auto second = after_gradient(w, [&](const at::Tensor&) { text += "2"; });
    w.sum().backward();
    EXPECT_EQ(text, "12");
  }
  w.sum().backward();
  EXPECT_EQ(text, "121");
  first = {};
  w.sum().backward();
  EXPECT_EQ(text, "121");
}

TEST(AfterGradient, an_exception_ends_the_backward) {
  const at::Tensor w = leaf();
  const auto hook = after_gradient(w, [](const at::Tensor&) { throw tessera::Error("refused"); });
  try {
    w.sum().backward();
    FAIL() << "nothing was thrown";
  } catch (const tessera::Error& error) {
    EXPECT_STREQ(error.what(), "refused");
  }
}

TEST(EditGradient, what_it_returns_is_accumulated) {
  const at::Tensor w = at::ones({3}).requires_grad_();
  at::Tensor seen, after;
  const auto listener = after_gradient(w, [&](const at::Tensor& p) { after = p.grad().clone(); });
  {
    const auto edit = edit_gradient(w, [&](const at::Tensor& gradient) {
      seen = gradient.clone();
      return at::zeros({1}).expand({3});
    });
    (w * 2).sum().backward();
  }
  EXPECT_TRUE(at::equal(seen, at::full({3}, 2.0f)));
  EXPECT_TRUE(at::equal(after, at::zeros({3})));
  (w * 5).sum().backward();
  EXPECT_TRUE(at::equal(w.grad(), at::full({3}, 5.0f))) << "its scope has ended";
  EXPECT_TRUE(torch::autograd::impl::hooks(w).empty()) << "otherwise gradients are not added in place";
}

TEST(AfterGradient, is_for_leaves_that_require_grad) {
  EXPECT_THROW((void)after_gradient(at::ones({2}), [](const at::Tensor&) {}), tessera::Error);
  EXPECT_THROW((void)after_gradient(leaf() * 2, [](const at::Tensor&) {}), tessera::Error);
}

}  // namespace
