// A recorded step of unmodified modules: layers, FLOP and saved bytes against counts by hand; recording changes
// nothing.
#include <examples/user_module.h>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>

#include <tessera/base/file.h>
#include <tessera/nn/autocast.h>
#include <tessera/parallel/autograd/saved_tensors.h>
#include <tessera/parallel/recorder/record_step.h>

#include <tests/error_of.h>
#include <tests/own_folder.h>

#include <filesystem>

namespace {

using namespace tessera;
using tessera::testing::error_of;

constexpr std::int64_t rows = 4, tokens = 16;

struct UserStep {
  MyConfig config;
  MyTransformer net;
  at::Tensor ids;
  UserStep() : net((at::manual_seed(3), config)) {
    ids = at::randint(config.vocabulary, {rows, tokens + 1}, at::kLong);
  }
  at::Tensor loss() {
    const at::Tensor logits = net->forward(ids.narrow(1, 0, tokens));
    return at::cross_entropy_loss(logits.reshape({-1, config.vocabulary}), ids.narrow(1, 1, tokens).reshape({-1}));
  }
};

TEST(RecordStep, finds_layers_and_counts_their_work) {
  UserStep user;
  const auto step = record_step(*user.net, {.rows = rows, .row_tokens = tokens}, [&] { user.loss().backward(); });
  const double w = 64, n = rows * tokens, v = 64;
  ASSERT_EQ(step.layers.size(), 4u);
  EXPECT_EQ(step.name, "MyTransformer");
  EXPECT_EQ(step.begin.parameters, v * w + 32 * w);
  EXPECT_EQ(step.end.parameters, 2 * w + v * w);
  EXPECT_EQ(step.shared, 0);
  double all = 0;
  for (const at::Tensor& parameter : user.net->parameters()) all += static_cast<double>(parameter.numel());
  EXPECT_EQ(step.parameters(), all);
  // Products: q, k, v, out and the MLP's two; scores and their product with the values as bmm.
  const double products = 2 * n * (4 * w * w + 8 * w * w), scores = 4 * n * tokens * w;
  for (std::size_t i = 0; i < step.layers.size(); ++i) {
    const plan::RecordedLayer& layer = step.layers[i];
    SCOPED_TRACE(layer.name);
    EXPECT_EQ(layer.name, "blocks." + std::to_string(i));
    EXPECT_EQ(layer.parameters, 12 * w * w + 13 * w);
    EXPECT_EQ(layer.trained, layer.parameters);
    EXPECT_EQ(layer.forward.flop, products + scores);
    EXPECT_EQ(layer.backward.flop, 2 * (products + scores));
    EXPECT_EQ(layer.input_bytes, 4 * n * w);
    EXPECT_GT(layer.forward.pass_bytes, 0);
    EXPECT_EQ(layer.saved_bytes, step.layers[0].saved_bytes);
  }
  EXPECT_EQ(step.end.forward.flop, 2 * n * w * v);
  EXPECT_EQ(step.end.backward.flop, 2 * step.end.forward.flop);
  EXPECT_EQ(step.product_bytes, 4);
  // Logits, their gradient and the softmax's saved output are alive together, and not only for backward.
  EXPECT_GE(step.moment_bytes, 4 * n * v);
  EXPECT_LT(step.moment_bytes, 4 * n * v * 3 + step.layers[0].saved_bytes);
}

/// Computes x w into existing memory, as some of our products do.
struct ProductInto : torch::autograd::Function<ProductInto> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& w) {
    ctx->save_for_backward({x, w});
    at::Tensor y = at::empty({x.size(0), w.size(1)});
    return at::mm_out(y, x, w);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& dy) {
    const auto saved = ctx->get_saved_variables();
    return {dy[0].mm(saved[1].t()), saved[0].t().mm(dy[0])};
  }
};
struct Wide : torch::nn::Module {
  Wide() { w = register_parameter("w", at::ones({8, 24})); }
  at::Tensor forward(const at::Tensor& x) { return ProductInto::apply(x, w).narrow(1, 0, 8); }
  at::Tensor w;
};

TEST(RecordStep, what_a_product_is_written_to_is_no_input) {
  torch::nn::Sequential net(Wide{}, Wide{});
  const auto step = record_step(*net, [&] { net->forward(at::ones({4, 8})).sum().backward(); });
  ASSERT_EQ(step.layers.size(), 2U);
  for (const plan::RecordedLayer& layer : step.layers) EXPECT_EQ(layer.input_bytes, 4 * 8 * 4) << layer.name;
}

TEST(RecordStep, saved_bytes_are_what_autograd_holds) {
  UserStep user;
  const auto counting = parallel::counting_policy();
  {
    const parallel::SavedTensors scope(counting);
    user.loss().backward();
  }
  const auto step = record_step(*user.net, [&] { user.loss().backward(); });
  EXPECT_EQ(step.saved_bytes(), static_cast<double>(counting->bytes().packed_peak));
}

TEST(RecordStep, changes_nothing) {
  UserStep plain, watched;
  plain.loss().backward();
  const auto step = record_step(*watched.net, [&] { watched.loss().backward(); });
  const auto a = plain.net->named_parameters(), b = watched.net->named_parameters();
  for (const auto& item : a) EXPECT_TRUE(at::equal(item.value().grad(), b[item.key()].grad())) << item.key();
  // The next, unrecorded step is as if nothing had been recorded.
  plain.loss().backward();
  watched.loss().backward();
  for (const auto& item : a) EXPECT_TRUE(at::equal(item.value().grad(), b[item.key()].grad())) << item.key();
  EXPECT_GT(step.calls.size(), 100u);
}

TEST(RecordStep, sees_convolutions_autocast_and_chosen_layers) {
  at::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).padding(1)),
                            torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 16, 3).stride(2).groups(2)));
  const at::Tensor x = at::randn({5, 3, 12, 12});
  const auto step = record_step(*net, {.rows = 5}, [&] { net->forward(x).sum().backward(); });
  ASSERT_EQ(step.layers.size(), 2u);
  EXPECT_EQ(step.layers[0].forward.flop, 2.0 * 5 * 12 * 12 * 8 * 3 * 9);
  EXPECT_EQ(step.layers[0].backward.flop, step.layers[0].forward.flop);  // the gradient of x is not required
  EXPECT_EQ(step.layers[1].forward.flop, 2.0 * 5 * 5 * 5 * 16 * 4 * 9);
  EXPECT_EQ(step.layers[1].backward.flop, 2 * step.layers[1].forward.flop);

  UserStep user;
  const auto half =
      record_step(*user.net, {.layers = {.kind = layout::WrapPolicy::Kind::by_name, .names = {"blocks.1"}}}, [&] {
        at::Tensor loss;
        {
          const nn::Autocast autocast(true, at::kCPU);
          loss = user.loss();
        }
        loss.backward();
      });
  EXPECT_EQ(half.product_bytes, 2);
  ASSERT_EQ(half.layers.size(), 1u);
  EXPECT_EQ(half.layers[0].name, "blocks.1");
  EXPECT_GT(half.end.parameters, 2 * half.layers[0].parameters);  // blocks 2 and 3, norm and head
}

TEST(RecordStep, an_optimizer_behind_the_step_is_not_part_of_it) {
  UserStep user, other;
  const auto alone = record_step(*user.net, [&] { user.loss().backward(); });
  const auto updated = record_step(*other.net, [&] {
    other.loss().backward();
    const at::NoGradGuard no_grad;
    for (const at::Tensor& parameter : other.net->parameters()) parameter.sub_(parameter.grad(), 1e-3);
  });
  EXPECT_EQ(alone.flop(), updated.flop());
  EXPECT_EQ(alone.calls.size(), updated.calls.size());
}

TEST(RecordStep, what_is_no_step_is_refused) {
  UserStep user;
  const auto record = [&](const std::function<void()>& body) {
    return error_of<InputError>([&] { record_step(*user.net, body); });
  };
  EXPECT_NE(record([&] { user.loss(); }).find("body did not call backward()"), std::string::npos);
  EXPECT_NE(record([&] {
              user.loss().backward();
              user.loss().backward();
            }).find("used again after backward()"),
            std::string::npos);
  EXPECT_NE(record([&] { at::ones({2}).requires_grad_(true).sum().backward(); }).find("uses none of the 4 layers"),
            std::string::npos);
  EXPECT_NE(error_of<InputError>([&] { record_step(*user.net, {.rows = 0}, [] {}); }).find("rows 0"),
            std::string::npos);
  EXPECT_NE(error_of<Error>([&] {
              record_step(*user.net, [&] { record_step(*user.net, [&] { user.loss().backward(); }); });
            }).find("one at a time"),
            std::string::npos);
  EXPECT_GT(record_step(*user.net, [&] { user.loss().backward(); }).flop(), 0);  // the failures left nothing behind
}

TEST(RecordStep, the_file_is_what_was_recorded) {
  UserStep user;
  const auto step = record_step(*user.net, {.rows = rows, .row_tokens = tokens}, [&] { user.loss().backward(); });
  const std::string path = (std::filesystem::temp_directory_path() / concat("recorded", ::getpid(), ".json")).string();
  write_recorded(step, path);
  const plan::RecordedStep read = plan::read_recorded(read_json(path));
  std::filesystem::remove(path);
  EXPECT_EQ(dump_json(plan::recorded_value(read), 1, 12), dump_json(plan::recorded_value(step), 1, 12));
}

}  // namespace
