// Memory of a sharded step on each device, by the compiler's report.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <tessera/models/load.h>
#include <tessera/models/overrides.h>
#include <tessera/models/registry.h>
#include <tessera/xla/pjrt/topology.h>
#include <tessera/xla/step/compiled_training.h>
#include <tessera/xla/step/programs.h>
#include <tessera/xla/step/update_program.h>

#include <tests/xla/plugin_for_tests.h>

namespace tessera {
namespace {

using testing::cpu_devices;

/// Eight blocks whose parameters are much larger than a row's activations.
Value wide() {
  return models::with_overrides(models::preset("gpt2-tiny"),
                                "n_layer=8,n_embd=128,n_head=2,vocab_size=64,n_positions=8,resid_pdrop=0,embd_pdrop=0,"
                                "attn_pdrop=0");
}

struct Measured {
  xla::StepMemory memory;
  xla::Collectives collectives;
  std::vector<xla::FlatUnit> units;
};

xla::TrainingOptions options_of(bool shard, bool reshard, bool global = false) {
  xla::TrainingOptions options;
  options.global = global;
  options.units = {.kind = layout::WrapPolicy::Kind::by_regex, .pattern = R"((.*\.)?h\.\d+)"};
  options.shard = shard;
  options.reshard_after_forward = reshard;
  return options;
}
xla::CompiledStep::Loss loss_of(models::LanguageModel& model) {
  return [&model](const std::vector<at::Tensor>& batch) {
    data::Batch given;
    given.ids = batch[0];
    given.labels = batch[1];
    return model.loss(given, 1);
  };
}
const xla::ValueInfo ids_info{{1, 8}, at::kLong};

Measured measure(int devices, bool shard, bool reshard, bool global = false) {
  const auto model = models::make_language_model(wide(), 1);
  const xla::TrainingOptions options = options_of(shard, reshard, global);
  xla::CompiledTraining training(cpu_devices(devices), *model, loss_of(*model), options);
  const at::Tensor ids = at::zeros({1, 8}, at::kLong);
  training.accumulate(
      std::vector<xla::CompiledStep::MicroBatch>(static_cast<std::size_t>(devices), {{ids, ids}, 0, 0}));
  const auto program = xla::program_of_step(parallel::parameters_of(*model), training.units(), {ids_info, ids_info},
                                            loss_of(*model), options, devices);
  return {training.memory(),
          global ? xla::collectives_added(training.gradients().optimized()) : xla::count_collectives(program.text),
          training.units()};
}

class XlaMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    if (testing::cpu_plugin().empty()) GTEST_SKIP() << "no PJRT plug-in: tools/deps_pjrt.sh installs one";
  }
};

/// Parameters and gradients only: the moments are arguments of the update.
std::int64_t arguments_by_formula(const Measured& m, bool shard) {
  std::int64_t bytes = 0;
  for (const xla::FlatUnit& unit : m.units) bytes += 2 * 4 * (shard ? unit.shard : unit.elements);
  return bytes;
}

TEST_F(XlaMemory, ArgumentsAreAShareOfTheStates) {
  for (const auto& [devices, shard] : {std::pair{1, true}, {2, true}, {4, true}, {4, false}}) {
    const Measured m = measure(devices, shard, true);
    const auto expected = static_cast<double>(arguments_by_formula(m, shard));
    EXPECT_NEAR(static_cast<double>(m.memory.arguments), expected, 0.02 * expected) << devices << ", " << shard;
    EXPECT_NEAR(static_cast<double>(m.memory.states), 2 * expected, 0.001 * expected);
  }
}

TEST_F(XlaMemory, AGlobalProgramsArgumentsAreAShareOfTheStates) {
  for (const int devices : {1, 2, 4, 8}) {
    const Measured m = measure(devices, true, true, /*global=*/true);
    const auto expected = static_cast<double>(arguments_by_formula(m, true));
    EXPECT_NEAR(static_cast<double>(m.memory.arguments), expected, 0.02 * expected) << devices;
    EXPECT_NEAR(static_cast<double>(m.memory.states), 2 * expected, 0.001 * expected);
    EXPECT_EQ(m.collectives.gathers > 0, devices > 1);
  }
}

TEST_F(XlaMemory, CollectivesFollowTheFormula) {
  const auto expect = [](const Measured& m, int gathers, int sums) {
    EXPECT_EQ(m.collectives.gathers, gathers);
    EXPECT_EQ(m.collectives.reduce_scatters, sums);
    EXPECT_EQ(m.collectives.all_reduces, 0);
  };
  const int units = 9;  // eight blocks and the root
  expect(measure(2, true, true), 2 * units, units);
  expect(measure(2, true, false), units, units);
  expect(measure(2, false, true), 0, 0);
}

TEST_F(XlaMemory, RecomputationKeepsFewerActivations) {
  const auto temporary = [](bool recompute) {
    const auto model = models::make_language_model(models::with_overrides(wide(), "n_embd=32,n_positions=128"), 1);
    xla::TrainingOptions options = options_of(true, true);
    options.recompute = recompute;
    xla::CompiledTraining training(cpu_devices(1), *model, loss_of(*model), options);
    const at::Tensor ids = at::zeros({4, 128}, at::kLong);
    training.accumulate({{{ids, ids}, 0, 0}});
    return training.memory().temporary;
  };
  const std::int64_t kept = temporary(false), computed = temporary(true);
  EXPECT_LT(computed, kept / 2) << kept;
}

/// Needs TESSERA_LIBTPU, the file of libtpu.so: memory of a TPU by its compiler's report.
TEST_F(XlaMemory, ATpuHasFewGatheredUnitsAtATime) {
  const char* const libtpu = std::getenv("TESSERA_LIBTPU");
  if (libtpu == nullptr) GTEST_SKIP() << "TESSERA_LIBTPU does not name libtpu.so";
  setenv("TPU_SKIP_MDS_QUERY", "1", 1);
  const auto model = models::make_language_model(wide(), 1);
  const parallel::ModuleParameters parameters = parallel::parameters_of(*model);
  const xla::Topology topology(xla::Plugin::load(libtpu), "v5e:2x2");
  ASSERT_EQ(topology.devices(), 4);
  std::map<bool, std::int64_t> temporary;
  std::int64_t unit = 0;
  for (const bool reshard : {true, false}) {
    const xla::TrainingOptions options = options_of(true, reshard);
    const auto units = xla::flat_units(parameters, options.units, 4, [](const std::string&) { return true; });
    for (const xla::FlatUnit& u : units) unit = std::max(unit, 4 * u.elements);
    const auto program = xla::program_of_step(parameters, units, {ids_info, ids_info}, loss_of(*model), options, 4);
    const xla::AheadOfTime compiled = topology.compile(program.text, {.replicas = 4});
    temporary[reshard] = compiled.memory.temporary;
  }
  // Two gathered units, the gradients of one, and less than one unit of activations.
  EXPECT_LT(temporary[true], 4 * unit);
  EXPECT_LT(temporary[true], temporary[false]);
}

/// Needs TESSERA_LIBTPU.
TEST_F(XlaMemory, ATpusCompilerDividesAGlobalProgram) {
  const char* const libtpu = std::getenv("TESSERA_LIBTPU");
  if (libtpu == nullptr) GTEST_SKIP() << "TESSERA_LIBTPU does not name libtpu.so";
  setenv("TPU_SKIP_MDS_QUERY", "1", 1);
  const auto model = models::make_language_model(models::with_overrides(wide(), "n_layer=2"), 1);
  const parallel::ModuleParameters parameters = parallel::parameters_of(*model);
  const xla::Topology topology(xla::Plugin::load(libtpu), "v5e:2x2");
  const xla::TrainingOptions options = options_of(true, true, /*global=*/true);
  const auto units = xla::units_of(parameters, options, 4);
  const auto program = xla::program_of_step(parameters, units, {ids_info, ids_info}, loss_of(*model), options, 4);
  const xla::AheadOfTime compiled = topology.compile(program.text, xla::compile_options(options, 4));
  // Parameters and gradients, each array padded to 4 KiB, and the batch and the loss.
  const std::int64_t half = xla::bytes_of_states(units, options) / 2;
  EXPECT_GE(compiled.memory.arguments, half);
  EXPECT_LE(compiled.memory.arguments, half + 4096 * (2 * std::ssize(units) + 3));
  EXPECT_GT(xla::collectives_added(compiled.optimized).gathers, 0);
}

}  // namespace
}  // namespace tessera
