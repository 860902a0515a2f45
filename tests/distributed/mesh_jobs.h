#pragma once
/// \file
/// Runs of `tessera train` on meshes, compared with one process.

#include "resume_jobs.h"

#include <tessera/checkpoint/tensor_bridge.h>
#include <tessera/format/safetensors/safetensors_index.h>

#include <cmath>
#include <string>
#include <vector>

namespace tessera::testing {

inline constexpr int saved_at = 2, last_step = 4;

struct Mesh {
  std::string name;
  int ranks;
  int copies;  ///< model replicas, each with its own rows
  Words flags;
};

class TrainMesh : public ResumeJobs {
 protected:
  /// Evaluations with few rows, which do not divide evenly on any mesh.
  static Words evaluations() {
    return {"--validation_split_percentage", "4", "--eval_strategy", "steps", "--eval_steps", concat(saved_at)};
  }
  /// The rows of a step are the same on every mesh: each of `copies` replicas takes its part. A tiny Llama, unless
  /// `more` names a model.
  RunConfig run_config(const std::string& output, const Mesh& mesh, const Words& more) const {
    static const Words llama = {"--config_name", "llama-tiny", "--config_overrides",
                                "num_hidden_layers=2,hidden_size=32,num_attention_heads=4,num_key_value_heads=2,"
                                "head_dim=8,intermediate_size=48,vocab_size=257,max_position_embeddings=16"};
    const bool named = !more.empty() && more[0] == "--model_name_or_path";
    return config(output, last_step,
                  (named ? Words{more[0], more[1]} : llama) +
                      Words{"--per_device_train_batch_size", concat(4 / mesh.copies), "--check_replicas_steps", "2"} +
                      evaluations() + mesh.flags + more);
  }

  void train_on(const std::string& output, const Mesh& mesh, const Words& more) const {
    train_run(run_config(output, mesh, more), mesh.ranks);
  }

  static void train_run(const RunConfig& run, int ranks) {
    run_ranks(
        ranks,
        [&](comm::World&) {
          be_quiet();
          EXPECT_EQ(train::train(run, Value::make_object()), ExitCode::done) << run.output.output_dir;
        },
        time_limit(60));
  }

  /// Every loss, norm and evaluation logged by the run.
  std::vector<double> figures(const std::string& output) const {
    std::vector<double> all;
    const std::string metrics = path_join(path(output), "metrics.jsonl");
    for (const std::string& line : split(read_file(metrics), '\n')) {
      if (line.empty()) continue;
      const Value value = parse_json(line, metrics);
      for (const char* key : {"loss", "grad_norm", "eval_loss", "tokens"})
        if (const Value* number = value.find(key); number != nullptr && number->is_number())
          all.push_back(number->as_real());
    }
    return all;
  }

  void expect_same_run(const std::string& output, const std::string& wanted, const std::string& what,
                       const std::string& file = "") const {
    const auto got = figures(output), expected = figures(wanted);
    ASSERT_EQ(got.size(), expected.size()) << what;
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 2e-5 * std::abs(expected[i])) << what;
    expect_same_model(output, wanted, what, file);
  }

  /// `exactly`: compares bit by bit.
  void expect_same_model(const std::string& output, const std::string& wanted, const std::string& what,
                         const std::string& file = "", bool exactly = false) const {
    const format::SafetensorsFolder a(path(output + "/" + file)), b(path(wanted + "/" + file));
    ASSERT_EQ(a.tensors().size(), b.tensors().size()) << what;
    for (const auto& stored : b.tensors()) {
      const std::string& name = stored.info.name;
      const auto* own = a.find(name);
      ASSERT_NE(own, nullptr) << what << ": " << name;
      ASSERT_EQ(own->info.shape, stored.info.shape) << what << ": " << name;
      const at::Tensor x = checkpoint::read_tensor(a.files()[own->file], own->info),
                       y = checkpoint::read_tensor(b.files()[stored.file], stored.info);
      if (exactly)
        EXPECT_TRUE(at::equal(x, y)) << what << ": " << name;
      else
        EXPECT_LE((x - y).norm().item<double>(), 2e-5 * y.norm().item<double>() + 1e-6) << what << ": " << name;
    }
  }
};

inline const Mesh one{"one", 1, 1, {}};

}  // namespace tessera::testing
