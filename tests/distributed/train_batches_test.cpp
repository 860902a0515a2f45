// Steps with unequal batches train as one process does: shares by speed, micro-batches by tokens, growing batches, and
// the gradient noise scale used to choose batch sizes.

#include "resume_jobs.h"

#include <ATen/record_function.h>

#include <cmath>
#include <ctime>
#include <memory>
#include <numeric>
#include <optional>

namespace tessera::testing {
namespace {

/// During its lifetime every operation of this process takes `factor` times as long, by computing rather than sleeping,
/// so that other load on the machine cannot hide it.
class SlowedDown {
 public:
  explicit SlowedDown(int factor) {
    factor_ = factor;
    handle_ = at::addGlobalCallback(at::RecordFunctionCallback(begin, end).scopes({at::RecordScope::FUNCTION}));
  }
  ~SlowedDown() { at::removeCallback(handle_); }
  SlowedDown(const SlowedDown&) = delete;
  SlowedDown& operator=(const SlowedDown&) = delete;

 private:
  struct Begin : at::ObserverContext {
    std::int64_t ns = 0;
  };
  static std::int64_t own_ns() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1'000'000'000 + time.tv_nsec;
  }
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction&) {
    if (depth_++ > 0) return nullptr;  // nested in another operation
    auto context = std::make_unique<Begin>();
    context->ns = own_ns();
    return context;
  }
  static void end(const at::RecordFunction&, at::ObserverContext* context) {
    --depth_;
    if (context == nullptr) return;
    const std::int64_t begun = static_cast<Begin*>(context)->ns, ends = own_ns() + (factor_ - 1) * (own_ns() - begun);
    while (own_ns() < ends) {
    }
  }

  static inline int factor_ = 1;
  static inline thread_local int depth_ = 0;
  at::CallbackHandle handle_;
};

class TrainBatches : public ResumeJobs {
 protected:
  TrainBatches() {
    std::string lines, text;
    for (int i = 0; i < 1000; ++i) text += concat("rank ", i % 5, " holds tile ", (i * i) % 13, " of the mosaic.\n");
    write_file_atomically(path("text.txt"), text);
    for (int i = 0; i < 120; ++i) {
      std::string text;
      for (int k = 0; k <= i * 7 % 23; ++k) text += static_cast<char>('a' + (i + k * k) % 26);
      lines += concat("{\"prompt\": \"", i % 10, "\", \"completion\": \"", text, "\"}\n");
    }
    write_file_atomically(path("examples.jsonl"), lines);
  }

  /// `slow`: the rank whose operations take longer, or -1.
  void train_on(const std::string& output, int ranks, std::int64_t steps, const Words& more, int slow = -1) const {
    const RunConfig run = config(output, steps, more);
    run_ranks(
        ranks,
        [&](comm::World& world) {
          be_quiet();
          std::optional<SlowedDown> burden;
          if (world.rank() == slow) burden.emplace(4);
          EXPECT_EQ(train::train(run, Value::make_object()), ExitCode::done) << output;
        },
        time_limit(90));
  }

  std::vector<Value> steps_of(const std::string& output) const {
    std::vector<Value> lines;
    const std::string file = path_join(path(output), "metrics.jsonl");
    for (const std::string& line : split(read_file(file), '\n')) {
      if (line.empty()) continue;
      Value value = parse_json(line, file);
      if (value.find("event") == nullptr) lines.push_back(std::move(value));
    }
    return lines;
  }

  std::vector<double> column(const std::string& output, const char* name) const {
    std::vector<double> numbers;
    for (const Value& line : steps_of(output)) numbers.push_back(line.at(name).as_real());
    return numbers;
  }

  void expect_same_losses(const std::string& output, const std::string& wanted, double bound) const {
    for (const char* name : {"loss", "grad_norm"}) {
      const auto got = column(output, name), expected = column(wanted, name);
      ASSERT_EQ(got.size(), expected.size()) << output;
      const double within = std::string(name) == "loss" ? bound : 20 * bound;
      for (std::size_t i = 0; i < got.size(); ++i)
        EXPECT_LE(std::abs(got[i] - expected[i]), within * expected[i]) << output << ", " << name << " " << i;
    }
  }

  std::vector<std::int64_t> shares_at(const Value& line) const {
    std::vector<std::int64_t> shares;
    for (const Value& share : line.at("batch_shares").items()) shares.push_back(share.as_int());
    return shares;
  }
};

const Words no_saves = {"--save_strategy", "no"};

const Words sgd = {"--optim", "sgd"};  // its weights are linear in the gradient, so differences do not grow

TEST_F(TrainBatches, a_slow_rank_gets_fewer_rows_and_the_losses_stay) {
  constexpr std::int64_t steps = 16, rows = 160;  // shares follow the speeds after six steps
  train_on("one", 1, steps, sgd + no_saves + Words{"--per_device_train_batch_size", concat(rows)});
  const std::vector<std::pair<std::string, Words>> strategies = {{"ddp", {}},
                                                                 {"zero1", {"--zero_stage", "1"}},
                                                                 {"zero2", {"--zero_stage", "2"}},
                                                                 {"full_shard", {"--fsdp", "full_shard auto_wrap"}}};
  for (const auto& [name, flags] : strategies) {
    train_on(name, 2, steps,
             sgd + flags +
                 Words{"--per_device_train_batch_size", concat(rows / 4), "--gradient_accumulation_steps", "2",
                       "--balance_batches", "true", "--save_steps", "12"},
             /*slow=*/1);
    expect_same_losses(name, "one", 1e-6);
    const auto lines = steps_of(name);
    ASSERT_EQ(lines.size(), static_cast<std::size_t>(steps));
    EXPECT_EQ(shares_at(lines.front()), (std::vector<std::int64_t>{rows / 2, rows / 2}));
    const auto last = shares_at(lines.back());
    EXPECT_GT(last[0], last[1]) << name;
    EXPECT_EQ(std::accumulate(last.begin(), last.end(), std::int64_t{0}), rows);
    EXPECT_EQ(lines.back().at("idle_by_rank").items().size(), 2u);
    if (::testing::Test::HasFailure()) return;
  }
  // A resumed run knows the ranks' speeds from its first step.
  train_on("resumed", 2, 14,
           sgd + no_saves +
               Words{"--per_device_train_batch_size", concat(rows / 4), "--gradient_accumulation_steps", "2",
                     "--balance_batches", "true", "--resume_from_checkpoint", path("ddp/checkpoint-12")});
  const auto lines = steps_of("resumed");
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(shares_at(lines.front()), shares_at(steps_of("ddp")[12])) << "speeds are adopted every few steps only";
  EXPECT_GT(shares_at(lines.front())[0], rows / 2);
}

TEST_F(TrainBatches, batches_of_tokens_hold_the_same_rows_on_any_number_of_ranks) {
  const Words tokens =
      Words{"--train_file", path("examples.jsonl"), "--tokens_per_batch", "96", "--lr_scheduler_type", "constant"};
  const auto on = [&](const std::string& name, int ranks, std::int64_t steps, const Words& more) {
    train_on(name, ranks, steps, tokens + more);
  };
  on("one", 1, 12, no_saves + Words{"--gradient_accumulation_steps", "4"});
  on("ddp2", 2, 12, no_saves + Words{"--gradient_accumulation_steps", "2"});
  on("full4", 4, 12, no_saves + Words{"--fsdp", "full_shard auto_wrap"});
  on("zero2", 2, 12, no_saves + Words{"--gradient_accumulation_steps", "2", "--zero_stage", "2"});
  for (const char* name : {"ddp2", "full4", "zero2"}) {
    expect_same_losses(name, "one", 1e-5);
    EXPECT_EQ(column(name, "rows"), column("one", "rows")) << name;
    EXPECT_EQ(column(name, "epoch"), column("one", "epoch")) << name;
  }
  on("half", 2, 12, Words{"--gradient_accumulation_steps", "2", "--save_steps", "5"});
  on("resumed", 4, 12, no_saves + Words{"--resume_from_checkpoint", path("half/checkpoint-5")});
  const auto all = column("one", "loss"), rest = column("resumed", "loss");
  ASSERT_EQ(rest.size(), 7u);
  for (std::size_t i = 0; i < rest.size(); ++i) EXPECT_NEAR(rest[i], all[5 + i], 1e-5 * all[5 + i]);
}

TEST_F(TrainBatches, a_batch_grows_alike_on_any_number_of_ranks) {
  const Words grows = {"--batch_size_schedule",      "4,4,24", "--learning_rate_rule", "square_root",
                       "--learning_rate_batch_size", "3",      "--warmup_steps",       "0"};
  train_on("one", 1, 10, grows + no_saves + Words{"--per_device_train_batch_size", "12"});
  train_on("ddp2", 2, 10,
           grows + no_saves +
               Words{"--per_device_train_batch_size", "3", "--gradient_accumulation_steps", "2", "--balance_batches",
                     "true"});
  train_on("full4", 4, 10,
           grows + Words{"--per_device_train_batch_size", "1", "--gradient_accumulation_steps", "3", "--fsdp",
                         "full_shard auto_wrap", "--save_steps", "4"});
  for (const char* name : {"ddp2", "full4"}) expect_same_losses(name, "one", 1e-5);
  EXPECT_EQ(column("one", "rows"), (std::vector<double>{4, 4, 4, 8, 8, 12, 12, 12, 12, 12}));
  const auto rate = column("one", "learning_rate");  // linear decay over 10 steps, times the square root of the rows
  for (std::size_t i = 0; i < rate.size(); ++i)
    EXPECT_NEAR(rate[i], 3e-3 * std::sqrt(column("one", "rows")[i] / 3) * (1 - static_cast<double>(i) / 10), 1e-8);
  train_on("resumed", 2, 10,
           grows + no_saves +
               Words{"--per_device_train_batch_size", "6", "--resume_from_checkpoint", path("full4/checkpoint-4")});
  const auto all = column("one", "loss"), rest = column("resumed", "loss");
  ASSERT_EQ(rest.size(), 6u);
  for (std::size_t i = 0; i < rest.size(); ++i) EXPECT_NEAR(rest[i], all[4 + i], 1e-5 * all[4 + i]);
}

// Each number of micro-batches gives a pipeline a different order of work.
TEST_F(TrainBatches, a_batch_grows_alike_in_a_pipeline) {
  const Words grows = no_saves + Words{"--batch_size_schedule", "4,4,24", "--warmup_steps", "0"};
  train_on("one", 1, 8, grows + Words{"--per_device_train_batch_size", "12"});
  const Words steps = {"--per_device_train_batch_size", "2", "--gradient_accumulation_steps", "6", "--pp_size", "2"};
  for (const char* schedule : {"1f1b", "interleaved_1f1b"}) {
    train_on(schedule, 2, 8, grows + steps + Words{"--pipeline_schedule", schedule});
    expect_same_losses(schedule, "one", 1e-5);
  }
  train_on("dp2", 4, 8,
           grows + Words{"--per_device_train_batch_size", "3", "--gradient_accumulation_steps", "2", "--pp_size", "2"});
  expect_same_losses("dp2", "one", 1e-5);  // 4 rows a step: one micro-batch of 2 for each, then two of 2, then two of 3
  EXPECT_EQ(column("dp2", "rows"), (std::vector<double>{4, 4, 4, 8, 8, 12, 12, 12}));
}

// 10 rows give steps of 4, 4 and 2; in the last one, some ranks and micro-batches have none.
TEST_F(TrainBatches, the_last_step_of_an_epoch_is_alike_on_every_mesh) {
  const Words epochs = sgd + Words{"--max_train_samples", "10", "--warmup_steps", "0"};
  const auto of = [&](const char* rows, const char* micro_batches) {
    return epochs + Words{"--per_device_train_batch_size", rows, "--gradient_accumulation_steps", micro_batches};
  };
  train_on("one", 1, 6, of("4", "1") + no_saves);
  train_on("ddp2", 2, 6, of("1", "2") + no_saves);
  train_on("full4", 4, 6, of("1", "1") + Words{"--fsdp", "full_shard auto_wrap", "--save_steps", "1"});
  train_on("tp2", 2, 6, of("2", "2") + Words{"--tp_size", "2"} + no_saves);
  train_on("pp2", 2, 6, of("1", "4") + Words{"--pp_size", "2", "--pipeline_schedule", "interleaved_1f1b"} + no_saves);
  for (const char* name : {"ddp2", "full4", "tp2", "pp2"}) expect_same_losses(name, "one", 1e-5);
  std::vector<std::int64_t> short_steps;
  for (const Value& line : steps_of("pp2"))
    if (line.find("rows") != nullptr) short_steps.push_back(line.at("rows").as_int());
  EXPECT_EQ(short_steps, (std::vector<std::int64_t>{2, 2}));
  const auto all = column("one", "loss");
  for (const char* step : {"2", "3", "5"}) {
    train_on(concat("resumed", step), 1, 6,
             of("2", "2") + no_saves + Words{"--resume_from_checkpoint", path(concat("full4/checkpoint-", step))});
    const auto rest = column(concat("resumed", step), "loss");
    ASSERT_EQ(rest.size(), 6 - std::stoul(step));
    for (std::size_t i = 0; i < rest.size(); ++i)
      EXPECT_NEAR(rest[i], all[all.size() - rest.size() + i], 1e-5 * all[0]) << step;
  }
}

// A rank that computes without rows does not count: in the routers' losses and loads, in means over ranks, in the
// number of tokens seen, in the noise scale.
TEST_F(TrainBatches, a_rank_without_rows_counts_nowhere) {
  const auto of = [&](const char* rows, const char* micro_batches, const Words& more) {
    return sgd + no_saves + more +
           Words{"--max_train_samples",
                 rows,
                 "--warmup_steps",
                 "0",
                 "--per_device_train_batch_size",
                 "1",
                 "--gradient_accumulation_steps",
                 micro_batches,
                 "--include_num_input_tokens_seen",
                 "true"};
  };
  write_file_atomically(path("moe.json"),
                        R"({"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "hidden_size": 32,
                            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
                            "intermediate_size": 24, "num_local_experts": 4, "num_experts_per_tok": 2,
                            "vocab_size": 257, "max_position_embeddings": 16, "tie_word_embeddings": false})");
  const Words experts = {"--config_name",          path("moe.json"),
                         "--config_overrides",     "max_position_embeddings=16",
                         "--router_aux_loss_coef", "1",
                         "--router_aux_loss_form", "micro_batch"};
  train_on("experts1", 1, 4, of("10", "4", experts));
  train_on("experts4", 4, 4, of("10", "1", experts));
  train_on("experts_pp", 2, 4, of("10", "4", experts + Words{"--pp_size", "2"}));
  for (const char* name : {"experts4", "experts_pp"}) {
    expect_same_losses(name, "experts1", 1e-5);
    for (const char* counted : {"router_aux_loss", "num_input_tokens_seen"}) {
      const auto got = column(name, counted), expected = column("experts1", counted);
      for (std::size_t i = 0; i < got.size(); ++i)
        EXPECT_NEAR(got[i], expected[i], 1e-5 * expected[i]) << name << " " << counted << " " << i;
    }
  }
  // Only one rank has a row left, so its mean is the overall mean.
  train_on("means1", 1, 3, of("9", "4", {"--average_tokens_across_devices", "false"}));
  train_on("means4", 4, 3, of("9", "1", {"--average_tokens_across_devices", "false"}));
  expect_same_losses("means4", "means1", 1e-5);
  // Two rows are left: two small batches on any mesh.
  const Words noise = {"--gradient_noise_scale", "true", "--learning_rate", "0"};
  train_on("noise2", 2, 3, of("10", "2", noise));
  train_on("noise4", 4, 3, of("10", "1", noise));
  const double want = column("noise2", "gradient_noise_trace").at(2);
  EXPECT_NEAR(column("noise4", "gradient_noise_trace").at(2), want, 1e-4 * std::abs(want));
}

double mean_square(const std::vector<double>& norms) {
  double sum = 0;
  for (const double norm : norms) sum += norm * norm;
  return sum / static_cast<double>(norms.size());
}

double mean(const std::vector<double>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0.0) / static_cast<double>(numbers.size());
}

/// Two runs with fixed weights and batches of 1 and 8 rows give both norms and thus an estimate. It must agree with the
/// estimate that a single run computes from the norms of ranks and micro-batches before reduction.
TEST_F(TrainBatches, the_noise_scale_is_that_of_two_batches) {
  // The weights do not change, so every step measures the same.
  const Words still = no_saves + Words{"--learning_rate",
                                       "1e-12",
                                       "--warmup_steps",
                                       "0",
                                       "--weight_decay",
                                       "0",
                                       "--optim",
                                       "sgd",
                                       "--config_overrides",
                                       "n_layer=1,n_embd=16,n_head=2,vocab_size=257,n_positions=16,resid_pdrop=0,"
                                       "embd_pdrop=0,attn_pdrop=0"};
  train_on("small", 1, 640, still);
  train_on("big", 1, 160, still + Words{"--per_device_train_batch_size", "8"});
  const double n1 = mean_square(column("small", "grad_norm")), n8 = mean_square(column("big", "grad_norm"));
  const double trace = (n1 - n8) / (1 - 1 / 8.0), square = (8 * n8 - n1) / 7, reference = trace / square;
  const std::vector<std::pair<std::string, std::pair<int, Words>>> runs = {
      {"ddp4", {4, {"--per_device_train_batch_size", "2"}}},
      {"ddp2_accumulating", {2, {"--per_device_train_batch_size", "2", "--gradient_accumulation_steps", "2"}}},
      {"full_shard2",
       {2,
        {"--per_device_train_batch_size", "2", "--gradient_accumulation_steps", "2", "--fsdp",
         "full_shard auto_wrap"}}},
      {"zero2", {2, {"--per_device_train_batch_size", "4", "--zero_stage", "2"}}},
      {"alone", {1, {"--per_device_train_batch_size", "2", "--gradient_accumulation_steps", "4"}}}};
  for (const auto& [name, run] : runs) {
    train_on(name, run.first, 160, still + run.second + Words{"--gradient_noise_scale", "true"});
    const double found = mean(column(name, "gradient_noise_trace")) / mean(column(name, "gradient_squared_norm"));
    EXPECT_NEAR(found, reference, 0.15 * reference) << name;
    const double last = steps_of(name).back().at("gradient_noise_scale").as_real();
    EXPECT_NEAR(last, reference, 0.3 * reference) << name << ": of the last 50 steps or so";
  }
}

}  // namespace
}  // namespace tessera::testing
