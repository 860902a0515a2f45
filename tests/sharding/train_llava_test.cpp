// Complete runs of a vision-language model on text rows: a run on several processes equals the run on one, and a
// resumed run equals the uninterrupted one.
#include <tests/distributed/mesh_jobs.h>
#include <tests/paths.h>

namespace tessera::testing {
namespace {

class TrainLlava : public TrainMesh {
 protected:
  TrainLlava() {
    Value json = read_json(source_path("tests/fixtures/llava_tiny/config.json"));
    Value text = json.at("text_config");
    text.set("vocab_size", Value::of(257));
    json.set("text_config", text);
    write_file_atomically(path("llava.json"), dump_json(json));
  }
  Words model() const { return {"--config_name", path("llava.json"), "--config_overrides", "image_token_index=300"}; }
};

TEST_F(TrainLlava, two_processes_are_one) {
  train_on("one", one, model());
  for (const Mesh& mesh :
       {Mesh{"ddp", 2, 2, {}}, Mesh{"zero1", 2, 2, {"--zero_stage", "1"}}, Mesh{"zero2", 2, 2, {"--zero_stage", "2"}},
        Mesh{"zero3", 2, 2, {"--zero_stage", "3"}}, Mesh{"full_shard", 2, 2, {"--fsdp", "full_shard auto_wrap"}}}) {
    train_on(mesh.name, mesh, model());
    expect_same_run(mesh.name, "one", mesh.name);
  }
}

TEST_F(TrainLlava, resumed_runs_go_on) {
  const Mesh mesh{"whole",
                  2,
                  2,
                  {"--fsdp", "full_shard auto_wrap", "--gradient_checkpointing", "--save_strategy", "steps",
                   "--save_steps", concat(saved_at)}};
  train_on("whole", mesh, model());
  train_on("resumed", mesh, model() + Words{"--resume_from_checkpoint", path(concat("whole/checkpoint-", saved_at))});
  expect_same_model("resumed", "whole", "resumed", "", /*exactly=*/true);
}

}  // namespace
}  // namespace tessera::testing
