// With --check_replicas_steps no checkpoint of diverged replicas is written, whatever the interval of the check: a
// restart resumes from the newest checkpoint, which must be correct.

#include <tests/distributed/resume_jobs.h>

#include <tests/error_of.h>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <tessera/train/core/run_groups.h>
#include <tessera/train/loop/setup.h>
#include <tessera/train/loop/training_loop.h>

namespace tessera::testing {
namespace {

class SavesCompare : public ResumeJobs {
 protected:
  /// Runs two replicas, flips a bit in one of them in the second step, and checks the outcome.
  void run(const Words& more, const std::string& expected) {
    const RunConfig job = config("out", 7, Words{"--save_steps", "3", "--check_replicas_steps", "5"} + more);
    run_ranks(
        2,
        [&](comm::World& world) {
          be_quiet();
          const train::RunGroups groups = train::make_run_groups(job, world);
          train::Setup setup = train::prepare(job, world, groups, train::choose_start(job, world));
          const auto model = setup.model;
          const Value configuration = Value::make_object();
          train::TrainingLoop loop(std::move(setup), configuration, 0);
          if (world.rank() == 1) {  // in the second backward: replicas are also compared in the first step
            at::Tensor weight = model->named_parameters()["transformer.h.0.mlp.c_fc.weight"];
            weight.register_hook([weight, steps = std::make_shared<int>()](const at::Tensor& gradient) {
              const at::NoGradGuard no_grad;
              if (++*steps == 2) weight.detach().view(at::kInt)[0][0].bitwise_xor_(1 << 20);
              return gradient;
            });
          }
          const std::string what = error_of<Error>([&] { loop.run(); });
          if (world.rank() == 0) EXPECT_NE(what.find(expected), std::string::npos) << what;
        },
        time_limit(60));
  }
};

TEST_F(SavesCompare, ReplicasThatDifferAreNotSaved) {
  run({}, "after step 3: ");
  EXPECT_FALSE(path_exists(path("out/checkpoint-3")));
  EXPECT_FALSE(path_exists(path("out/model.safetensors")));
}

}  // namespace
}  // namespace tessera::testing
