// A step's loss and gradients are means over its labels, however micro-batches and ranks divide them:
// TrainerOptions::loss_count, or labels.
#include <tests/error_of.h>
#include <tests/faces/trainer_options.h>

#include <torch/nn/modules/linear.h>

#include <tuple>

namespace {

using namespace tessera;
using namespace tessera::testing;

struct Classes : torch::nn::Module {
  torch::nn::Linear w = register_module("w", torch::nn::Linear(4, 5));
};

/// Four rows of 8 labels each, of which 8, 1, 1 and 1 count; with `empty`, none of the last row's count.
RowSource few_labels(bool empty) {
  at::manual_seed(1);
  const at::Tensor x = at::randn({4, 8, 4}), y = at::randint(5, {4, 8}, at::kLong);
  for (int row = 1; row < 4; ++row) y[row].slice(0, empty && row == 3 ? 0 : 1).fill_(-100);
  return tensor_rows({x, y});
}

std::int64_t count(const TensorBatch& batch) { return batch[1].ne(-100).sum().item<std::int64_t>(); }

enum class By { nothing, labels, count };

TrainerOptions options(By by, int rows, int micro_batches, bool empty = false,
                       const std::vector<std::string>& more = {}) {
  TrainerOptions made;
  at::manual_seed(0);
  made.model = std::make_shared<Classes>();
  std::vector<std::string> flags = {concat("--per_device_train_batch_size=", rows),
                                    concat("--gradient_accumulation_steps=", micro_batches),
                                    "--max_steps=1",
                                    "--learning_rate=1",
                                    "--optim=sgd",
                                    "--lr_scheduler_type=constant",
                                    "--max_grad_norm=0",
                                    "--train_sampling_strategy=sequential",
                                    "--disable_tqdm"};
  flags.insert(flags.end(), more.begin(), more.end());
  made.arguments = TrainingArguments(flags);
  made.loss = loss_of<Classes>([](Classes& net, const TensorBatch& batch) {
    return at::cross_entropy_loss(net.w->forward(batch[0]).reshape({-1, 5}), batch[1].reshape({-1}));
  });
  if (by == By::labels) made.labels = [](const TensorBatch& batch) { return batch[1]; };
  if (by == By::count) made.loss_count = count;
  made.train_dataset = few_labels(empty);
  return made;
}

struct Trained {
  double loss;
  Weights weights;
};
Trained train(TrainerOptions made) {
  Trainer trainer(std::move(made));
  const double loss = trainer.train().training_loss;
  return {loss, weights_of(trainer.training().sharded())};
}

/// The step by hand, over all labels at once.
Trained by_hand(bool empty) {
  const TrainerOptions made = options(By::nothing, 4, 1, empty);
  const at::Tensor loss = made.loss(*made.model, made.train_dataset->read({0, 1, 2, 3}));
  loss.backward();
  Trained want{loss.item<double>(), {}};
  for (const auto& p : made.model->named_parameters()) want.weights[p.key()] = p.value().detach() - p.value().grad();
  return want;
}

TEST(TrainerCounts, a_step_is_one_mean_over_its_labels_however_it_is_cut) {
  for (const bool empty : {false, true}) {
    const Trained want = by_hand(empty);
    for (const auto& [ranks, rows, micro_batches] :
         {std::tuple(1, 4, 1), std::tuple(1, 1, 4), std::tuple(2, 2, 1), std::tuple(2, 1, 2), std::tuple(4, 1, 1),
          std::tuple(1, 8, 1), std::tuple(3, 1, 2), std::tuple(5, 1, 1)})  // an epoch has only four rows
      run_ranks(ranks, [&](comm::World&) {
        for (const By by : {By::labels, By::count})
          for (const char* strategy : {"--strategy=ddp", "--strategy=full_shard"}) {
            const Trained got = train(options(by, rows, micro_batches, empty, {strategy}));
            const std::string what =
                concat(ranks, " ranks, ", rows, " rows, ", micro_batches, " micro-batches ", strategy);
            EXPECT_NEAR(got.loss, want.loss, 1e-6) << what;
            expect_close(got.weights, want.weights, 1e-6, what);
          }
      });
  }
}

// Backward also divides by the number of labels, so its result must not be used if that number is 0.
TEST(TrainerCounts, a_mean_that_is_not_a_number_without_labels) {
  const Trained want = by_hand(true);
  run_ranks(2, [&](comm::World&) {
    TrainerOptions made = options(By::count, 1, 2, true);
    made.loss = loss_of<Classes>([](Classes& net, const TensorBatch& batch) {
      const at::Tensor each = at::cross_entropy_loss(net.w->forward(batch[0]).reshape({-1, 5}), batch[1].reshape({-1}),
                                                     {}, at::Reduction::None);
      return each.sum() / batch[1].ne(-100).sum();
    });
    expect_close(train(std::move(made)).weights, want.weights, 1e-6, "sum / count");
  });
}

// Without counts, each micro-batch that has rows gets the same weight: here four of one row, out of six.
TEST(TrainerCounts, the_last_step_of_an_epoch_is_a_mean_over_the_micro_batches_that_have_rows) {
  const TrainerOptions made = options(By::nothing, 4, 1);
  double want = 0;
  for (std::int64_t row = 0; row < 4; ++row)
    want += made.loss(*made.model, made.train_dataset->read({row})).item<double>() / 4;
  run_ranks(3, [&](comm::World&) { EXPECT_NEAR(train(options(By::nothing, 1, 2)).loss, want, 1e-6); });
}

TEST(TrainerCounts, replicas_of_one_process_too) {
  const Trained want = by_hand(false);
  run_ranks(1, [&](comm::World&) {
    TrainerOptions made = options(By::count, 2, 1);
    made.data_parallel = DataParallelOptions{.replicas = 2};
    const Trained got = train(std::move(made));
    EXPECT_NEAR(got.loss, want.loss, 1e-6);
    expect_close(got.weights, want.weights, 1e-6, "2 replicas");
  });
}

TEST(TrainerCounts, each_ranks_own_mean_where_tokens_are_not_averaged_across_devices) {
  const TrainerOptions made = options(By::nothing, 4, 1);
  const auto half = [&](std::int64_t first) {
    return made.loss(*made.model, made.train_dataset->read({first, first + 2})).item<double>();
  };
  const double want = (half(0) + half(1)) / 2, all = by_hand(false).loss;
  run_ranks(2, [&](comm::World&) {
    EXPECT_NEAR(train(options(By::count, 1, 2, false, {"--average_tokens_across_devices=false"})).loss, want, 1e-6);
    EXPECT_NEAR(train(options(By::count, 1, 2, false, {"--average_tokens_across_devices=true"})).loss, all, 1e-6);
    EXPECT_EQ(
        error_of([&] { Trainer{options(By::nothing, 1, 2, false, {"--average_tokens_across_devices=true"})}; }),
        "Trainer: --average_tokens_across_devices needs TrainerOptions::loss_count, the number of items over which the "
        "loss of a batch is a mean, or TrainerOptions::labels: without them every micro-batch has the same weight");
  });
}

TEST(TrainerCounts, a_negative_count_is_refused) {
  run_ranks(1, [&](comm::World&) {
    TrainerOptions made = options(By::count, 1, 1);
    made.loss_count = [](const TensorBatch&) { return std::int64_t{-1}; };
    EXPECT_EQ(error_of([&] { train(std::move(made)); }),
              "Trainer: TrainerOptions::loss_count returned -1, a negative number");
  });
}

}  // namespace
