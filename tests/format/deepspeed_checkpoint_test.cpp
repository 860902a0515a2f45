// DeepSpeed ZeRO checkpoints written by DeepSpeed 0.19.8 on two processes, compared with its own zero_to_fp32
// (tests/parity/make_deepspeed_checkpoints.py).

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/format/deepspeed/deepspeed_checkpoint.h>
#include <tessera/format/deepspeed/deepspeed_rows.h>
#include <tessera/format/safetensors/safetensors.h>
#include <tessera/format/torch/pickle.h>

#include <tests/error_of.h>
#include <tests/paths.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>

namespace tessera::format {
namespace {

namespace fs = std::filesystem;
using namespace std::string_literals;
using tessera::testing::error_of;

std::string fixture(const std::string& name) {
  return tessera::testing::source_path("tests/fixtures/deepspeed_checkpoint/" + name);
}

struct Whole {
  DType dtype;
  std::vector<std::int64_t> shape;
  std::string bytes;
  bool operator==(const Whole&) const = default;
};
using Tensors = std::map<std::string, Whole>;

std::string copy_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Reads every byte.
Tensors tensors_of(const TorchWeights& weights) {
  Tensors out;
  for (const TensorSource& tensor : weights.tensors)
    out[tensor.name] = {tensor.dtype, tensor.shape, copy_of(tensor.bytes())};
  return out;
}

Tensors expected(const std::string& name) {
  const SafetensorsFile file(fixture(name + "/expected.safetensors"));
  Tensors out;
  for (const auto& tensor : file.tensors())
    out[tensor.name] = {tensor.dtype, tensor.shape, copy_of(file.bytes(tensor))};
  return out;
}

void write(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

/// A copy of a fixture that a test may corrupt.
class Copy {
 public:
  explicit Copy(const std::string& name) {
    fs::copy(fixture(name), folder_.path(), fs::copy_options::recursive);
    fs::remove(path("expected.safetensors"));
  }
  std::string path(const std::string& name = "") const {
    return name.empty() ? folder_.path() : path_join(folder_.path(), name);
  }
  std::string state(const std::string& name) const { return path("global_step2/" + name); }
  std::string error() const {
    return error_of([&] { (void)tensors_of(read_deepspeed_checkpoint(folder_.path())); });
  }
  /// Replaces text by text of the same length in a file; `occurrence` 0: the first. Must not touch a tensor's bytes,
  /// because checksums are not updated.
  void replace(const std::string& name, const std::string& from, const std::string& to, int occurrence = 0) const {
    std::string bytes = read_file(state(name));
    std::size_t at = bytes.find(from);
    while (occurrence-- > 0 && at != std::string::npos) at = bytes.find(from, at + 1);
    ASSERT_NE(at, std::string::npos) << from;
    bytes.replace(at, to.size(), to);
    write(state(name), bytes);
  }

 private:
  TemporaryFolder folder_;
};

constexpr const char* optimizer0 = "zero_pp_rank_0_mp_rank_00_optim_states.pt";
constexpr const char* optimizer1 = "zero_pp_rank_1_mp_rank_00_optim_states.pt";
constexpr const char* model2 = "mp_rank_00_model_states.pt";
constexpr const char* model3 = "zero_pp_rank_0_mp_rank_00_model_states.pt";

class DeepspeedCheckpoint : public ::testing::TestWithParam<const char*> {};

TEST_P(DeepspeedCheckpoint, gives_what_zero_to_fp32_gives) {
  const std::string name = GetParam();
  Tensors wanted = expected(name);
  const bool stage1 = name.starts_with("zero1") || name == "bf16_optimizer";
  ASSERT_EQ(wanted.size(), stage1 ? 11u : 12u);
  if (stage1) {
    // DeepSpeed's own script omits frozen parameters in stage 1; the module's state has them in the training dtype.
    wanted["frozen"] = expected(name == "zero1" ? "zero2" : "zero2_bf16").at("frozen");
  }
  EXPECT_EQ(wanted.at("frozen").dtype, name.find("bf16") != std::string::npos ? DType::bf16 : DType::f32);
  EXPECT_EQ(wanted.at("halves").dtype, DType::f32);
  EXPECT_EQ(tensors_of(read_deepspeed_checkpoint(fixture(name), true)), wanted);

  const TorchWeights once = read_deepspeed_checkpoint(fixture(name));
  EXPECT_EQ(once.tied, (std::vector<std::pair<std::string, std::string>>{{"head.weight", "embed.weight"}}));
  EXPECT_TRUE(once.left_aside.empty());
  wanted.erase("head.weight");
  EXPECT_EQ(tensors_of(once), wanted);
  EXPECT_EQ(once.parameters, 75u + 7 + 3 + 7 + 1);
  std::uint64_t bytes = 0;
  for (const auto& [_, tensor] : wanted) bytes += tensor.bytes.size();
  EXPECT_EQ(once.bytes, bytes);
  EXPECT_EQ(tensors_of(read_deepspeed_checkpoint(fixture(name + "/global_step2"))), wanted) << "the tag's own folder";
}

INSTANTIATE_TEST_SUITE_P(stages, DeepspeedCheckpoint,
                         ::testing::Values("zero1", "zero2", "zero3", "bf16_optimizer", "zero1_bf16", "zero2_bf16",
                                           "zero3_bf16"));

/// Unknown objects in the files become names with arguments; the callee may be a name or itself an object.
TEST(DeepspeedCheckpointFolder, unknown_objects_are_data) {
  static constexpr std::string_view every[] = {"*"};
  const std::string text = "cos\nsystem\n(X\x04\0\0\0truetR."s;
  const Pickle called = parse_pickle(std::as_bytes(std::span(text)), "p", every);
  EXPECT_TRUE(called.is_a(called.root(), "os.system"));
  EXPECT_EQ(called[called.arguments(called.root())[0]].text, "true");
  const std::string twice = "cbuiltins\ngetattr\n(NNtR)R."s;
  const Pickle nested = parse_pickle(std::as_bytes(std::span(twice)), "p", every);
  ASSERT_EQ(nested.root().kind, PickleKind::object);
  EXPECT_TRUE(nested.is_a(nested[nested.root().items[0]], "builtins.getattr"));
  EXPECT_FALSE(nested.is_a(nested.root(), "builtins.getattr"));
}

TEST(DeepspeedCheckpointFolder, is_told_from_others) {
  EXPECT_TRUE(is_deepspeed_checkpoint(fixture("zero2")));
  EXPECT_TRUE(is_deepspeed_checkpoint(fixture("zero2/global_step2")));
  EXPECT_FALSE(is_deepspeed_checkpoint(fixture("zero2/latest")));
  EXPECT_FALSE(is_deepspeed_checkpoint(fixture("")));
  EXPECT_FALSE(is_deepspeed_checkpoint(fixture("none")));
}

TEST(DeepspeedCheckpointFolder, latest_names_a_folder_beside_it) {
  const Copy copy("zero2");
  for (const std::string tag : {"../../etc", "/etc", "", ".."}) {
    write(copy.path("latest"), tag);
    EXPECT_EQ(copy.error(), concat(copy.path("latest"), ": '", tag, "' is not the plain name of a folder next to it"));
  }
  write(copy.path("latest"), "global_step3");
  EXPECT_EQ(copy.error(),
            concat(copy.path("global_step3"), ": no such folder, but ", copy.path("latest"), " names it"));
  fs::create_directory_symlink(copy.path("global_step2"), copy.path("global_step3"));
  EXPECT_EQ(copy.error(),
            concat(copy.path("global_step3"), ": is a symbolic link; the files of a checkpoint must be in its folder"));
  write(copy.path("latest"), "global_step2\n");
  EXPECT_EQ(copy.error(), "");
}

TEST(DeepspeedCheckpointFolder, files_that_are_missing) {
  for (const char* stage : {"zero2", "zero3"}) {
    const Copy copy(stage);
    fs::remove(copy.state(optimizer0));
    EXPECT_EQ(
        copy.error(),
        concat(copy.path("global_step2"),
               ": the checkpoint has 2 ranks, but only 1 of the files *_optim_states.pt; that of rank 0 is missing: "
               "copy the files of all nodes into one folder"));
    fs::remove(copy.state(optimizer1));
    EXPECT_EQ(copy.error(),
              concat(copy.path("global_step2"),
                     ": contains no file *_optim_states.pt, so it is not a ZeRO checkpoint of DeepSpeed",
                     stage == std::string("zero2") ? "; in stage 0 mp_rank_00_model_states.pt contains whole weights: "
                                                     "torch.save() its 'module' to a file of its own"
                                                   : ""));
  }
  const Copy second("zero2");
  fs::remove(second.state(model2));
  EXPECT_EQ(
      second.error(),
      concat(
          second.path("global_step2"),
          ": 'mp_rank_00_model_states.pt' is missing, which every checkpoint of ZeRO stage 2 with 2 ranks contains"));
  const Copy third("zero3");
  fs::remove(third.state("zero_pp_rank_1_mp_rank_00_model_states.pt"));
  EXPECT_EQ(third.error(), concat(third.path("global_step2"),
                                  ": 'zero_pp_rank_1_mp_rank_00_model_states.pt' is missing, which every checkpoint "
                                  "of ZeRO stage 3 with 2 ranks contains"));
}

TEST(DeepspeedCheckpointFolder, files_of_other_runs) {
  const Copy stages("zero2");
  fs::copy(fixture(concat("zero1/global_step2/", optimizer1)), stages.state(optimizer1),
           fs::copy_options::overwrite_existing);
  EXPECT_EQ(stages.error(), concat(stages.state(optimizer1), ": 'zero_stage' is 1, but 2 in ", stages.state(optimizer0),
                                   ": the files are from two runs"));
  const Copy more("zero2");
  fs::copy(more.state(optimizer1), more.state("zero_pp_rank_5_mp_rank_00_optim_states.pt"));
  EXPECT_EQ(more.error(),
            concat(more.state("zero_pp_rank_5_mp_rank_00_optim_states.pt"),
                   ": belongs to rank 5, but the checkpoint has 2 ranks: left over from another run; remove it"));
  const Copy twice("zero2");
  fs::copy(twice.state(optimizer1), twice.state("bf16_"s + optimizer1));
  EXPECT_EQ(twice.error(),
            concat(twice.path("global_step2"), ": '", optimizer1, "' and 'bf16_", optimizer1,
                   "' belong to the same rank, so they are from two runs; remove those of the older one"));
  const Copy models("zero3");  // the dtypes of 'count', 'frozen', 'mean' differ
  fs::copy(fixture("zero3_bf16/global_step2/zero_pp_rank_1_mp_rank_00_model_states.pt"),
           models.state("zero_pp_rank_1_mp_rank_00_model_states.pt"), fs::copy_options::overwrite_existing);
  EXPECT_EQ(models.error(), concat(models.state("zero_pp_rank_1_mp_rank_00_model_states.pt"),
                                   ": frozen parameter 'frozen' is BF16 here and F32 before"));
}

TEST(DeepspeedCheckpointFolder, what_is_not_read) {
  const auto with = [](const std::string& name) {
    const Copy copy("zero2");
    fs::copy(copy.state(model2), copy.state(name));
    std::string error = copy.error();
    EXPECT_TRUE(error.starts_with(copy.path("global_step2") + ": ")) << error;
    return error.substr(std::min(error.size(), copy.path("global_step2").size() + 2));
  };
  EXPECT_EQ(with("mp_rank_01_model_states.pt"),
            "'mp_rank_01_model_states.pt' is from tensor parallelism (model rank 1), whose parts cannot be joined "
            "here; convert "
            "with DeepSpeed's ds_to_universal.py");
  EXPECT_EQ(
      with("layer_0_expert_1_mp_rank_00_model_states.pt"),
      "'layer_0_expert_1_mp_rank_00_model_states.pt' contains experts (MoE), which are not supported; convert with "
      "DeepSpeed's ds_to_universal.py");
  EXPECT_EQ(with("expp_rank_0_mp_rank_00_optim_states.pt"),
            "'expp_rank_0_mp_rank_00_optim_states.pt' contains experts (MoE), which are not supported; convert with "
            "DeepSpeed's ds_to_universal.py");
  EXPECT_EQ(
      with("layer_01-model_00-model_states.pt"),
      "'layer_01-model_00-model_states.pt' is from pipeline parallelism, which is not supported; save without pipeline "
      "stages");
}

TEST(DeepspeedCheckpointFolder, links_and_pipes) {
  for (const char* name : {optimizer1, model2}) {
    const Copy copy("zero2");
    fs::rename(copy.state(name), copy.path("elsewhere"));
    fs::create_symlink(copy.path("elsewhere"), copy.state(name));
    EXPECT_EQ(copy.error(),
              concat(copy.state(name), ": is a symbolic link; the files of a checkpoint must be in its folder"));
    fs::remove(copy.state(name));
    fs::create_directory(copy.state(name));
    EXPECT_EQ(copy.error(), concat(copy.state(name), ": is not a regular file"));
  }
  const Copy copy("zero3");
  fs::remove(copy.path("latest"));
  fs::create_symlink("/etc/passwd", copy.path("latest"));
  EXPECT_EQ(copy.error(),
            concat(copy.path("latest"), ": is a symbolic link; the files of a checkpoint must be in its folder"));
}

/// Sizes in the pickles are BININT1: 'K', a byte. embed.weight's shape is K 7, K 5, TUPLE2.
TEST(DeepspeedCheckpointFolder, sizes_that_do_not_add_up) {
  const std::string shape("K\x07K\x05\x86", 5);
  const auto of_model =
      [&](const Copy& copy,
          const char* name) {  // the last shape before 'param_shapes', which is pickled after the module
        const std::string bytes = read_file(copy.state(name));
        int before = 0;
        for (std::size_t at = bytes.find(shape); at < bytes.find("param_shapes"); at = bytes.find(shape, at + 1))
          ++before;
        return before;
      };
  const Copy larger("zero2");
  larger.replace(model2, shape, std::string("K\x1eK\x05\x86", 5), of_model(larger, model2));
  EXPECT_EQ(
      larger.error(),
      concat(
          larger.state(model2),
          ": parameter 'embed.weight' of shape [30, 5] begins at element 0 of group 0, but the ranks contain only 65"));
  const Copy smaller("zero2");
  smaller.replace(model2, shape, std::string("K\x01K\x05\x86", 5), of_model(smaller, model2));
  EXPECT_EQ(smaller.error(), concat(smaller.state(model2),
                                    ": the parameters of group 0 take 35 elements, but the ranks contain 65 (both are "
                                    "padded to a multiple of 4)"));
  const Copy divided("zero3");
  divided.replace(model3, shape, std::string("K\x1eK\x05\x86", 5), of_model(divided, model3));
  EXPECT_EQ(
      divided.error(),
      concat(divided.state(model3),
             ": parameter 'embed.weight' of shape [30, 5] begins at element 0 of each rank's part, which has 41"));
  const Copy less("zero3");
  less.replace(model3, shape, std::string("K\x01K\x05\x86", 5), of_model(less, model3));
  EXPECT_EQ(less.error(),
            concat(less.state(model3), ": the parameters take 26 elements of each rank, but the ranks contain 41"));
}

TEST(DeepspeedCheckpointFolder, a_stage_that_is_not_known) {
  const Copy copy("zero2");
  std::string bytes = read_file(copy.state(optimizer0));
  std::size_t at = bytes.find("ZeroStageEnum");
  at = bytes.find("K\x02", at);
  ASSERT_NE(at, std::string::npos);
  bytes[at + 1] = 4;
  write(copy.state(optimizer0), bytes);
  EXPECT_EQ(copy.error(), concat(copy.state(optimizer0), ": has ZeRO stage 4; 1, 2 and 3 are supported"));
}

/// Without the list of paddings that BF16_Optimizer writes, a file without a stage has an unknown writer.
TEST(DeepspeedCheckpointFolder, no_stage_and_not_of_bf16_optimizer) {
  const Copy copy("bf16_optimizer");
  copy.replace("bf16_"s + optimizer0, "group_paddings", "other_paddings");
  EXPECT_EQ(copy.error(),
            concat(copy.state("bf16_"s + optimizer0),
                   ": has no 'zero_stage': it was not written by DeepSpeed's ZeRO, or by a version before 0.6"));
}

TEST(DeepspeedCheckpointFolder, a_rank_of_another_stage_beside_bf16_optimizer) {
  const Copy copy("bf16_optimizer");
  fs::copy(fixture(concat("zero2_bf16/global_step2/bf16_", optimizer1)), copy.state("bf16_"s + optimizer1),
           fs::copy_options::overwrite_existing);
  EXPECT_EQ(copy.error(), concat(copy.state("bf16_"s + optimizer1), ": 'zero_stage' is 2, but 1 in ",
                                 copy.state("bf16_"s + optimizer0), ": the files are from two runs"));
}

TEST(DeepspeedCheckpointFolder, a_flipped_bit_in_the_weights_is_found) {
  const Copy copy("zero3");
  const std::string scale = expected("zero3").at("scale").bytes;  // a single element, on rank 0
  std::string bytes = read_file(copy.state(optimizer0));
  const std::size_t at = bytes.find(scale);
  ASSERT_NE(at, std::string::npos);
  bytes[at] ^= 1;
  write(copy.state(optimizer0), bytes);
  const std::string error = copy.error();
  EXPECT_TRUE(error.starts_with(copy.state(optimizer0) + ": bytes ")) << error;
  EXPECT_TRUE(error.ends_with(": the file is damaged")) << error;
}

/// Parts of any size, including empty ones: a cut contains the elements in its range, in order. Part i starts at byte
/// 1000 (i + 1).
RC_GTEST_PROP(DeepspeedRow, a_cut_is_the_elements_between, ()) {
  const auto sizes = *rc::gen::container<std::vector<std::int64_t>>(rc::gen::inRange<std::int64_t>(0, 4));
  std::vector<TorchTensor> parts(sizes.size());
  std::vector<std::uint64_t> places;  // byte position of each element
  deepspeed::Row row;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    parts[i].shape = {sizes[i]};
    parts[i].begin = 1000 * (i + 1);
    for (std::int64_t e = 0; e < sizes[i]; ++e) places.push_back(parts[i].begin + 4 * static_cast<std::uint64_t>(e));
    row.add(nullptr, parts[i]);
  }
  RC_ASSERT(row.elements() == places.size());
  const auto begin = *rc::gen::inRange<std::size_t>(0, places.size() + 1),
             end = *rc::gen::inRange<std::size_t>(begin, places.size() + 1);
  std::vector<deepspeed::Piece> pieces;
  row.cut(begin, end, pieces);
  std::vector<std::uint64_t> found;
  for (const auto& piece : pieces) {
    RC_ASSERT(piece.begin < piece.end);
    for (std::uint64_t at = piece.begin; at < piece.end; at += 4) found.push_back(at);
  }
  RC_ASSERT(found == std::vector<std::uint64_t>(places.begin() + static_cast<std::ptrdiff_t>(begin),
                                                places.begin() + static_cast<std::ptrdiff_t>(end)));
}

/// No crash, no hang, and no tensors larger than the files.
RC_GTEST_PROP(DeepspeedCheckpointFolder, damage_is_found_or_harmless, ()) {
  static const Copy copies[] = {Copy("zero1"), Copy("zero3")};
  const Copy& copy = copies[*rc::gen::inRange(0, 2)];
  const std::vector<std::string> names = list_folder(copy.path("global_step2"));
  const std::string path = copy.state(names[*rc::gen::inRange<std::size_t>(0, names.size())]);
  const std::string whole = read_file(path);
  std::string file = whole;
  const auto changes = *rc::gen::inRange(1, 4);
  for (int i = 0; i < changes; ++i)
    file[*rc::gen::inRange<std::size_t>(0, file.size())] = static_cast<char>(*rc::gen::arbitrary<std::uint8_t>());
  if (*rc::gen::inRange(0, 8) == 0) file.resize(*rc::gen::inRange<std::size_t>(0, file.size()));
  write(path, file);
  std::size_t bytes = 0;
  try {
    for (const auto& [_, tensor] : tensors_of(read_deepspeed_checkpoint(copy.path()))) bytes += tensor.bytes.size();
  } catch (const InputError&) {
  }
  write(path, whole);
  RC_ASSERT(bytes < 2 * 6 * whole.size());
}

}  // namespace
}  // namespace tessera::format
