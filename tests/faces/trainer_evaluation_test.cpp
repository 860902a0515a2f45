// Actions of tessera::Trainer after an evaluation (the best model, reduce_lr_on_plateau), and label smoothing.
#include <tests/error_of.h>
#include <tests/faces/trainer_options.h>

#include <tessera/base/file.h>
#include <tessera/format/safetensors/safetensors_index.h>

#include <torch/optim/adamw.h>

#include <cmath>
#include <numeric>

namespace {

using namespace tessera;
using namespace tessera::testing;

struct Rates : TrainerCallback {
  std::vector<double> rates;
  void on_log(const TrainerState&, TrainerControl&, const Metrics& logs) override {
    if (logs.count("learning_rate")) rates.push_back(logs.at("learning_rate"));
  }
};

/// Flags that give the same global batches on any number of ranks.
std::vector<std::string> flags(const comm::World& world, const std::vector<std::string>& more) {
  std::vector<std::string> flags = {concat("--per_device_train_batch_size=", all_rows / world.size()),
                                    "--per_device_eval_batch_size=5"};
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

Weights stored_weights(const std::string& folder) {
  const format::SafetensorsFolder saved(folder);
  Weights weights;
  for (const auto& stored : saved.tensors()) {
    const at::Tensor tensor = at::empty(stored.info.shape, at::kFloat);
    const auto bytes = saved.bytes(stored);
    EXPECT_EQ(bytes.size(), tensor.nbytes()) << stored.info.name;
    std::memcpy(tensor.mutable_data_ptr(), bytes.data(), tensor.nbytes());
    weights[stored.info.name] = tensor;
  }
  return weights;
}

class TrainerEvaluation : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(All, TrainerEvaluation, ::testing::Values(1, 2));

const std::vector<std::string> plateau = {
    "--learning_rate=1e-2", "--lr_scheduler_type=reduce_lr_on_plateau",
    // an improvement of 100 never happens
    "--lr_scheduler_kwargs=patience=0,threshold=100,threshold_mode=abs,factor=0.5", "--eval_strategy=steps",
    "--eval_steps=2", "--logging_steps=1", "--save_steps=4"};

/// The rates of `tessera train` in the same case: tests/tool/train_settings_test.cpp, TheLearningRateFallsOnAPlateau.
TEST_P(TrainerEvaluation, the_learning_rate_falls_on_a_plateau) {
  const TemporaryFolder folder;
  run_ranks(GetParam(), [&](comm::World& world) {
    Weights whole;
    for (const bool resumed : {false, true}) {
      std::vector<std::string> given = flags(world, plateau);
      given.push_back("--output_dir=" + folder.path());
      if (resumed) given.push_back("--resume_from_checkpoint=" + folder.path() + "/checkpoint-4");
      TrainerOptions made = options(given, 8);
      made.eval_dataset = steps_of(1);
      const auto rates = std::make_shared<Rates>();
      made.callbacks = {rates};
      made.compute_metrics = [](const at::Tensor&, const TensorBatch&) { return Metrics{{"falling", 0.0}}; };
      Trainer trainer(std::move(made));
      trainer.train();
      const std::vector<double> all = {1e-2, 1e-2, 1e-2, 1e-2, 5e-3, 5e-3, 2.5e-3, 2.5e-3};
      const std::vector<double> want(all.begin() + (resumed ? 4 : 0), all.end());
      ASSERT_EQ(rates->rates.size(), want.size());
      for (std::size_t i = 0; i < want.size(); ++i) EXPECT_DOUBLE_EQ(rates->rates[i], want[i]) << i;
      if (resumed)
        expect_same_bits(weights_of(trainer.training().sharded()), whole, "the schedule's state is in the checkpoint");
      else
        whole = weights_of(trainer.training().sharded());
      trainer.evaluate();
      EXPECT_EQ(trainer.training().update().learning_rates().at(0), 1.25e-3)
          << "the last one of train() counted, this one did not";
    }
  });
}

TEST_P(TrainerEvaluation, a_plateau_follows_the_metric_that_is_named_and_lowers_every_group) {
  run_ranks(GetParam(), [&](comm::World& world) {
    TrainerOptions made =
        options(flags(world, {"--lr_scheduler_type=reduce_lr_on_plateau",
                              "--lr_scheduler_kwargs=patience=1,mode=max,factor=0.1", "--eval_strategy=steps",
                              "--eval_steps=1", "--logging_steps=1", "--metric_for_best_model=score"}),
                7);
    made.eval_dataset = steps_of(1);
    int evaluations = 0;
    made.compute_metrics = [&](const at::Tensor&, const TensorBatch&) {
      const std::vector<double> scores = {1, 2, 2, 1, 5, 4, 4};  // bad in a row: 0 0 1 2, the rate falls; 0 1 2, again
      return Metrics{{"score", scores.at(static_cast<std::size_t>(evaluations++))}};
    };
    torch::optim::AdamW optimizer(made.model->parameters(), torch::optim::AdamWOptions(1e-2));
    std::vector<at::Tensor> first = {optimizer.param_groups()[0].params()[0]};
    optimizer.param_groups()[0].params().erase(optimizer.param_groups()[0].params().begin());
    torch::optim::OptimizerParamGroup group(first);
    group.set_options(std::make_unique<torch::optim::AdamWOptions>(4e-2));
    optimizer.add_param_group(group);
    made.optimizer = &optimizer;
    const auto rates = std::make_shared<Rates>();
    made.callbacks = {rates};
    Trainer trainer(std::move(made));
    trainer.train();
    const std::vector<double> want = {1e-2, 1e-2, 1e-2, 1e-2, 1e-3, 1e-3, 1e-3};
    ASSERT_EQ(rates->rates.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(rates->rates[i], want[i], 1e-12) << i;
    const auto last = trainer.training().update().learning_rates();
    EXPECT_NEAR(last.at(0), 1e-4, 1e-12);
    EXPECT_NEAR(last.at(1), 4e-4, 1e-12);
    EXPECT_EQ(trainer.state().best_metric, 5) << "and greater is better, as its name ends otherwise than with loss";
    EXPECT_EQ(trainer.state().best_global_step, 5);
  });
}

TEST_P(TrainerEvaluation, the_best_model_is_loaded_at_the_end) {
  for (const char* strategy : {"ddp", "zero1", "full_shard"}) {
    const TemporaryFolder folder;
    const std::string best = folder.path() + "/checkpoint-2";
    run_ranks(GetParam(), [&](comm::World& world) {
      // the loss decreases, so the first one is the greatest
      TrainerOptions made =
          options(flags(world, {"--eval_strategy=steps", "--eval_steps=2", "--save_steps=2", "--load_best_model_at_end",
                                "--greater_is_better=true", "--save_total_limit=1", "--output_dir=" + folder.path(),
                                concat("--strategy=", strategy)}));
      made.eval_dataset = steps_of(1);
      Trainer trainer(std::move(made));
      trainer.train();
      EXPECT_EQ(trainer.state().best_global_step, 2);
      EXPECT_EQ(trainer.state().best_model_checkpoint, best);
      const double loss = *trainer.state().best_metric;
      EXPECT_NEAR(trainer.evaluate().at("eval_loss"), loss, 1e-6 * loss) << "the weights belong to that evaluation";
      expect_same_bits(weights_of(trainer.training().sharded()), stored_weights(best), strategy);
      EXPECT_EQ(trainer.state().best_global_step, 2) << "only evaluations of train() count";
    });
    EXPECT_TRUE(path_exists(folder.path() + "/checkpoint-6")) << "the newest stays, too";
    EXPECT_FALSE(path_exists(folder.path() + "/checkpoint-4"));
    const Value state = read_json(folder.path() + "/checkpoint-6/trainer_state.json");
    EXPECT_EQ(state.at("best_global_step").as_int(), 2);
    EXPECT_EQ(state.at("best_model_checkpoint").as_string(), best);
    run_ranks(GetParam(), [&](comm::World& world) {  // a resumed run knows the best model
      TrainerOptions made =
          options(flags(world, {"--eval_strategy=steps", "--eval_steps=2", "--save_steps=2", "--load_best_model_at_end",
                                "--greater_is_better=true", "--output_dir=" + folder.path(),
                                "--resume_from_checkpoint=last", "--max_steps=8", concat("--strategy=", strategy)}));
      made.eval_dataset = steps_of(1);
      Trainer trainer(std::move(made));
      EXPECT_EQ(trainer.train().global_step, 8);
      EXPECT_EQ(trainer.state().best_global_step, 2);
      expect_same_bits(weights_of(trainer.training().sharded()), stored_weights(best), strategy);
    });
  }
}

TEST_P(TrainerEvaluation, only_the_best_are_saved) {
  const TemporaryFolder folder;
  run_ranks(GetParam(), [&](comm::World& world) {
    TrainerOptions made =
        options(flags(world, {"--eval_strategy=steps", "--eval_steps=1", "--save_strategy=best",
                              "--metric_for_best_model=eval_score", "--output_dir=" + folder.path()}));
    made.eval_dataset = steps_of(1);
    int evaluations = 0;
    made.compute_metrics = [&](const at::Tensor&, const TensorBatch&) {
      const std::vector<double> scores = {1, 1, 3, 2, std::nan(""), 3.5};
      return Metrics{{"score", scores.at(static_cast<std::size_t>(evaluations++))}};
    };
    Trainer(std::move(made)).train();
  });
  EXPECT_EQ(list_folder(folder.path()), (std::vector<std::string>{"checkpoint-1", "checkpoint-3", "checkpoint-6"}));
}

TEST(Trainer, what_an_evaluation_does_not_give_is_an_input_error) {
  run_ranks(1, [&](comm::World& world) {
    const auto says = [&](const std::vector<std::string>& more) {
      return error_of([&] {
        TrainerOptions made = options(flags(world, more));
        made.eval_dataset = steps_of(1);
        Trainer(std::move(made)).train();
      });
    };
    const auto contains = [](const std::string& text, const char* part) {
      return text.find(part) != std::string::npos;
    };
    EXPECT_PRED2(contains, says({"--metric_for_best_model=accuracy", "--eval_strategy=steps", "--eval_steps=1"}),
                 "no eval_accuracy, only eval_loss, eval_runtime");
    EXPECT_PRED2(contains, says({"--label_smoothing_factor=0.1"}), "labels are Float of shape [24, 5]");
    TrainerOptions without = options({"--label_smoothing_factor=0.1"});
    without.outputs = nullptr;
    EXPECT_THROW(Trainer(std::move(without)), InputError);
  });
}

/// Classes of the rows of steps_of(steps); every third row is not counted unless `all_count`.
RowSource classes_of(int steps, bool all_count) {
  const std::int64_t rows = steps * all_rows;
  at::Tensor classes = at::arange(rows, at::kLong).mul(7).remainder(5);
  if (!all_count) classes = at::where(at::arange(rows).remainder(3).eq(2), at::full({1}, -100, at::kLong), classes);
  std::vector<std::int64_t> all(static_cast<std::size_t>(rows));
  std::iota(all.begin(), all.end(), 0);
  return tensor_rows({steps_of(steps).read(all)[0], classes});
}

/// transformers' LabelSmoother, line by line (trainer_pt_utils.py).
at::Tensor by_hand(const at::Tensor& logits, at::Tensor labels, double epsilon) {
  const at::Tensor log_probs = -at::log_softmax(logits, -1);
  labels = labels.unsqueeze(-1);
  const at::Tensor padding = labels.eq(-100);
  const at::Tensor nll = log_probs.gather(-1, labels.clamp_min(0)).masked_fill(padding, 0.0);
  const at::Tensor smoothed = log_probs.sum(-1, true).masked_fill(padding, 0.0);
  const at::Tensor active = padding.logical_not().sum();
  return (1 - epsilon) * (nll.sum() / active) + epsilon * (smoothed.sum() / (active * log_probs.size(-1)));
}

TEST_P(TrainerEvaluation, labels_are_smoothed_as_transformers_does) {
  const auto net = make_net();
  std::vector<std::int64_t> all(all_rows);
  std::iota(all.begin(), all.end(), 0);
  const TensorBatch rows = classes_of(1, false).read(all);
  const double want = by_hand(net->forward(rows[0]).detach(), rows[1], 0.2).item<double>();
  run_ranks(GetParam(), [&](comm::World& world) {
    const auto train = [&](const LossFunction& loss, const char* factor, bool reordered = false) {
      TrainerOptions made = options(flags(world, {concat("--label_smoothing_factor=", factor), "--strategy=zero2"}));
      made.loss = loss;
      made.train_dataset = classes_of(6, true);
      if (std::string(factor) == "0")  // smoothing counts the labels itself
        made.loss_count = [](const TensorBatch& batch) { return batch[1].ne(-100).sum().item<std::int64_t>(); };
      if (reordered) {  // labels that are not the last tensor of a batch
        const auto read = made.train_dataset->read;
        made.train_dataset->read = [read](const std::vector<std::int64_t>& rows) {
          TensorBatch batch = read(rows);
          return TensorBatch{batch[0], batch[1], batch[0]};
        };
        made.labels = [](const TensorBatch& batch) { return batch.at(1); };
      }
      auto trainer = std::make_unique<Trainer>(std::move(made));
      trainer->train();
      return trainer;
    };
    const auto plain = loss_of<SimpleModel>([](SimpleModel& net, const TensorBatch& batch) {
      return at::cross_entropy_loss(net.forward(batch[0]), batch[1]);
    });
    const auto hand = loss_of<SimpleModel>(
        [](SimpleModel& net, const TensorBatch& batch) { return by_hand(net.forward(batch[0]), batch[1], 0.2); });
    const Weights reference = weights_of(train(hand, "0")->training().sharded());
    expect_close(weights_of(train(plain, "0.2")->training().sharded()), reference, 1e-5, "smoothed");
    expect_close(weights_of(train(plain, "0.2", true)->training().sharded()), reference, 1e-5, "labels by a function");
    const Weights other = weights_of(train(plain, "0")->training().sharded());
    EXPECT_GT((other.at("layers.0.weight") - reference.at("layers.0.weight")).abs().max().item<double>(), 1e-4);

    TrainerOptions made =
        options({"--label_smoothing_factor=0.2", concat("--per_device_eval_batch_size=", all_rows / world.size())});
    made.loss = plain;
    const double loss = Trainer(std::move(made)).evaluate(classes_of(1, false)).at("eval_loss");
    EXPECT_NEAR(loss, want, 1e-6) << "also in evaluations; a third of the labels do not count";
  });
}

TEST(Trainer, what_has_no_effect_is_named_and_nothing_else) {
  run_ranks(1, [](comm::World&) {
    ::testing::internal::CaptureStderr();
    Trainer trainer(options({"--label_smoothing_factor=0.1", "--load_best_model_at_end", "--metric_for_best_model=loss",
                             "--eval_delay=2", "--dataloader_drop_last", "--ignore_data_skip", "--packing"}));
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("packing has no effect on tessera::Trainer"), std::string::npos) << said;
  });
}

TEST_P(TrainerEvaluation, delayed_evaluations_and_dropped_rows) {
  run_ranks(GetParam(), [](comm::World& world) {
    struct Seen : TrainerCallback {
      std::vector<std::int64_t> evaluated, ended;
      void on_evaluate(const TrainerState& state, TrainerControl&, const Metrics&) override {
        evaluated.push_back(state.global_step);
      }
      void on_epoch_end(const TrainerState& state, TrainerControl&) override { ended.push_back(state.global_step); }
    };
    const auto seen = std::make_shared<Seen>();
    TrainerOptions made = options(flags(world, {"--eval_strategy=steps", "--eval_steps=1", "--eval_delay=3",
                                                "--dataloader_drop_last", "--num_train_epochs=2"}));
    std::vector<std::int64_t> taken;
    const RowSource rows = steps_of(3);
    made.train_dataset = RowSource{2 * all_rows + 7, [&](const std::vector<std::int64_t>& wanted) {
                                     taken.insert(taken.end(), wanted.begin(), wanted.end());
                                     return rows.read(wanted);
                                   }};
    made.eval_dataset = steps_of(1);
    made.callbacks = {seen};
    EXPECT_EQ(Trainer(std::move(made)).train().global_step, 4);
    EXPECT_EQ(seen->evaluated, (std::vector<std::int64_t>{3, 4}));
    EXPECT_EQ(seen->ended, (std::vector<std::int64_t>{2, 4}));
    EXPECT_EQ(static_cast<std::int64_t>(taken.size()), 4 * all_rows / world.size());
    for (const std::int64_t row : taken) EXPECT_LT(row, 2 * all_rows) << "the rest of an epoch is skipped";
  });
}

}  // namespace
