#pragma once
/// \file
/// A few training steps, on whole rows in one process and on parts of rows on several ranks.

#include <tests/distributed/harness.h>
#include <tests/paths.h>

#include <ATen/ATen.h>

#include <tessera/comm/mesh_groups.h>
#include <tessera/models/checkpoint_blocks.h>
#include <tessera/models/load.h>
#include <tessera/nn/autocast.h>
#include <tessera/optim/norm.h>
#include <tessera/optim/optimizer.h>
#include <tessera/parallel/context/attention.h>
#include <tessera/parallel/context/batch.h>
#include <tessera/parallel/fully_shard.h>
#include <tessera/parallel/tensor_parallel.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tessera::testing {

/// A model folder of tests/fixtures and the class of its blocks.
struct Family {
  const char* folder;
  const char* block;
  bool in_few = false;
  std::int64_t length = 23;  ///< tokens per row: not divisible by any number of chunks
};
inline const std::vector<Family>& families() {
  static const std::vector<Family> all = {
      {"gpt2_tiny", "Gpt2Block", true, 15},
      {"llama/llama", "LlamaDecoderLayer", true},        // untied, 4 heads, 2 key heads
      {"llama/llama_biases_tied", "LlamaDecoderLayer"},  // tied
      {"llama/qwen3", "LlamaDecoderLayer", true},
      {"llama/mistral_window", "LlamaDecoderLayer"},  // a window of 6 tokens
      {"llama/dynamic_rope", "LlamaDecoderLayer"},    // frequencies that depend on the longest document
      {"llama/gemma2", "LlamaDecoderLayer"},          // capped scores, windows in some layers
      {"llama/gemma3_text", "LlamaDecoderLayer"},     // two rotations
      {"llama/phi3_longrope", "LlamaDecoderLayer"},   // frequencies for long documents, a part of each head rotated
      {"llama/cohere2", "LlamaDecoderLayer"},         // one layer without rotation, adjacent pairs
      {"llama/gpt_neox", "LlamaDecoderLayer"},        // heads of one matrix, a part of each rotated
      {"llama/phi", "LlamaDecoderLayer"},             // a head with a bias
      {"llama/opt", "LlamaDecoderLayer"},             // learned positions
      {"bert_tiny", "BertLayer", true},
      {"bert_classifier", "BertLayer"},
  };
  return all;
}

/// The layout of the batches' rows.
enum class Rows { plain, packed, prompts };

/// Dropout wherever the family supports it; 0: none.
inline std::shared_ptr<models::LanguageModel> make_family(const Family& family, at::ScalarType type,
                                                          double dropout = 0) {
  const auto edit = [&](Value config) {
    for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop", "attention_dropout", "hidden_dropout_prob",
                            "attention_probs_dropout_prob"})
      config.set(key, Value::of(dropout));
    return config;
  };
  auto model = models::load_language_folder(source_path(concat("tests/fixtures/", family.folder)), 0, edit);
  model->to(type);
  return model;
}

constexpr std::int64_t job_rows = 4;  ///< in one micro-batch of the whole job

/// Micro-batch m of a step: rows [part, part + 1) of `parts` equal parts. `prompts`: the first half of every row and
/// all of row 1 are not scored, so some ranks score nothing.
inline data::Batch job_batch(const models::LanguageModel& model, const Family& family, Rows rows, int step, int m,
                             int part = 0, int parts = 1) {
  at::Generator generator = at::detail::getDefaultCPUGenerator().clone();
  generator.set_current_seed(static_cast<std::uint64_t>(900 + 10 * step + m));
  const std::int64_t t = family.length, share = job_rows / parts;
  const auto mine = [&](const at::Tensor& x) { return x.narrow(0, part * share, share).contiguous(); };
  const auto draw = [&](std::int64_t below) {
    return mine(at::randint(1, below, {job_rows, t}, generator, at::TensorOptions(at::kLong)));
  };
  data::Batch batch;
  batch.random_key = static_cast<std::uint64_t>(step);
  batch.first_row = m * job_rows + part * share;
  batch.ids = draw(model.vocab_size());
  batch.labels = batch.ids.clone();
  const auto kind = model.objective();
  if (kind == data::Objective::Kind::next_token) {
    if (rows == Rows::packed)
      for (std::int64_t row = 0; row < share; ++row)
        for (const std::int64_t start : {std::int64_t{0}, 3 + (part * share + row) % 3, t / 2, t - 2}) {
          batch.document_starts.push_back(row * t + start);
          batch.labels[row][start] = data::not_scored;
        }
  } else {
    batch.types = draw(3) - 1;
    for (std::int64_t row = 0; row < share; ++row) {
      batch.lengths.push_back(t - 4 * ((part * share + row) % 3));
      batch.labels[row].slice(0, batch.lengths.back()).fill_(data::not_scored);
    }
    if (kind == data::Objective::Kind::masked_token) batch.labels.masked_fill_(draw(4).ne(1), data::not_scored);
    if (kind == data::Objective::Kind::row_class) {
      batch.labels.remainder_(model.num_labels());
      batch.labels.slice(1, 1).fill_(data::not_scored);
    }
  }
  if (rows == Rows::prompts && kind != data::Objective::Kind::row_class) {
    batch.labels.slice(1, 0, t / 2).fill_(data::not_scored);
    if (part == 0) batch.labels[share > 1 ? 1 : 0].fill_(data::not_scored);
  }
  const std::int64_t first = kind == data::Objective::Kind::next_token ? 1 : 0;
  batch.scored_tokens = batch.labels.slice(1, first).ne(data::not_scored).sum().item<std::int64_t>();
  batch.labels_not_ignored = batch.labels.ne(data::not_scored).sum().item<std::int64_t>();
  batch.tokens = share * t;
  if (!batch.lengths.empty()) {
    batch.tokens = 0;
    for (const std::int64_t n : batch.lengths) batch.tokens += n;
  }
  return batch;
}

struct Job {
  const Family* family = nullptr;
  Rows rows = Rows::plain;
  int accumulation = 1;
  bool half = false;       ///< autocast to bf16
  bool recompute = false;  ///< on parts: recompute activations in backward
  double dropout = 0;
  int steps = 10;
  at::ScalarType type = at::kFloat;
};

struct JobRecord {
  std::vector<double> losses, norms;            ///< per step; losses per scored token
  std::map<std::string, at::Tensor> gradients;  ///< whole, of the first step
};

inline std::unique_ptr<optim::Optimizer> job_optimizer(std::vector<optim::Slot> slots) {
  return optim::make_sgd(std::move(slots), {.momentum = 0.9});
}
constexpr double job_rate = 0.01;

inline JobRecord train_whole(const Job& job) {
  const auto model = make_family(*job.family, job.type, job.dropout);
  std::vector<optim::Slot> slots;
  for (const auto& p : model->named_parameters()) slots.push_back({.name = p.key(), .parameter = p.value()});
  const auto optimizer = job_optimizer(slots);
  JobRecord record;
  for (int step = 0; step < job.steps; ++step) {
    std::vector<data::Batch> batches;
    std::int64_t scored = 0;
    for (int m = 0; m < job.accumulation; ++m) {
      batches.push_back(job_batch(*model, *job.family, job.rows, step, m));
      scored += batches.back().scored_tokens;
    }
    double sum = 0;
    model->zero_grad();
    for (const data::Batch& batch : batches) {
      at::Tensor loss;
      {
        const nn::Autocast autocast(job.half, at::kCPU);
        loss = model->loss(batch, 1 / static_cast<double>(scored));
      }
      sum += loss.item<double>();
      loss.backward();
    }
    std::vector<at::Tensor> gradients;
    for (const auto& p : model->named_parameters()) {
      gradients.push_back(p.value().grad());
      if (step == 0) record.gradients[p.key()] = p.value().grad().clone();
    }
    record.losses.push_back(sum);
    record.norms.push_back(optim::gradient_norm(gradients));
    optimizer->step(job_rate);
  }
  return record;
}

struct Placement {
  int dp = 1, cp = 2;
  ContextMethod method = ContextMethod::p2p;
  const char* strategy = "ddp";
  int replicas = 1, tp = 1;
  bool sequence_parallel = false;
  std::string text() const {
    return concat(strategy, " ", replicas, " x ", dp, " x cp ", cp, " ", layout::context_method_name(method), " x tp ",
                  tp, sequence_parallel ? " with sp" : "");
  }
};

inline JobRecord train_parts(comm::World& world, const Job& job, const Placement& placement) {
  using layout::Axis;
  const layout::Mesh mesh = layout::parse_mesh(concat("dp_replicate=", placement.replicas, ",dp_shard=", placement.dp,
                                                      ",cp=", placement.cp, ",tp=", placement.tp));
  const ContextGroups groups = context_groups(world, mesh, placement.method);
  const comm::Group sums = comm::mesh_group(world, mesh, std::vector{Axis::dp_replicate, Axis::dp_shard, Axis::cp}),
                    tensor = comm::mesh_group(world, mesh, std::vector{Axis::tp});
  const layout::Coordinates place = layout::coordinates(mesh, world.rank());
  const int rows_of = place[1] * placement.dp + place[2], rows_parts = placement.replicas * placement.dp;
  const auto model = make_family(*job.family, job.type, job.dropout);
  model->set_attention(context_attention_function(groups));
  if (job.recompute) (void)models::checkpoint_blocks(*model, {});
  std::optional<TensorParallel> cut_parameters;
  if (placement.tp > 1)
    cut_parameters.emplace(
        *model, TensorParallelOptions{
                    .group = tensor, .plan = model->tensor_plan(), .sequence_parallel = placement.sequence_parallel});
  std::map<std::string, at::Tensor> parameters;
  for (const auto& p : model->named_parameters()) parameters[p.key()] = p.value();
  ShardingOptions options{.strategy = placement.strategy, .group = sums, .reduction = comm::Reduction::sum};
  if (placement.replicas > 1) options.shard_group_size = placement.dp * placement.cp;
  if (placement.strategy != std::string("ddp")) options.wrap = by_class({job.family->block});
  Sharded sharded(*model, options);
  const auto optimizer = job_optimizer(sharded.slots());
  JobRecord record;
  for (int step = 0; step < job.steps; ++step) {
    std::vector<data::Batch> batches;
    at::Tensor counts = at::zeros({3}, at::kLong);
    for (int m = 0; m < job.accumulation; ++m) {
      const data::Batch whole = job_batch(*model, *job.family, job.rows, step, m, rows_of, rows_parts);
      batches.push_back(cut_batch(whole, groups, model->objective()));
      const data::Batch& cut = batches.back();
      counts += at::tensor({cut.scored_tokens, cut.tokens, cut.labels_not_ignored});
      at::Tensor of_rows = at::tensor({cut.scored_tokens, cut.tokens, cut.labels_not_ignored});
      groups.all.all_reduce(of_rows).wait();
      EXPECT_TRUE(at::equal(of_rows, at::tensor({whole.scored_tokens, whole.tokens, whole.labels_not_ignored})))
          << placement.text() << ": the parts' counts do not add up to the batch's";
    }
    sums.all_reduce(counts).wait();
    at::Tensor sum = at::zeros({1}, at::kDouble);
    sharded.zero_grad();
    for (std::size_t m = 0; m < batches.size(); ++m) {
      std::optional<Sharded::NoSync> pause;
      if (m + 1 < batches.size()) pause.emplace(sharded);
      at::Tensor loss;
      {
        const nn::Autocast autocast(job.half, at::kCPU);
        loss = model->loss(batches[m], 1 / counts[0].item<double>());
      }
      sum += loss.item<double>();
      loss.backward();
    }
    sums.all_reduce(sum).wait();
    record.losses.push_back(sum.item<double>());
    record.norms.push_back(sharded.grad_norm());
    if (step == 0)
      for (const ShardedParameter& p : sharded.named_parameters())
        record.gradients[p.name] =
            gather_tensor_parts(parameters.at(p.name), sharded.gather_like(p, p.local.grad()).reshape(p.shape)).clone();
    optimizer->step(job_rate);
  }
  return record;
}

inline void expect_equal_jobs(const JobRecord& got, const JobRecord& want, double bar, const std::string& what) {
  for (std::size_t step = 0; step < want.losses.size(); ++step) {
    EXPECT_NEAR(got.losses[step] / want.losses[step], 1, bar) << what << ": loss of step " << step;
    EXPECT_NEAR(got.norms[step] / want.norms[step], 1, bar) << what << ": gradient norm of step " << step;
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace tessera::testing
