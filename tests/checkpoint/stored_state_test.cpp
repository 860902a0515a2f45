// Reading parts of an optimizer's state from any number of files.

#include <tessera/checkpoint/stored_state.h>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <string>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/checkpoint/tensor_bridge.h>
#include <tessera/format/safetensors/safetensors.h>

namespace tessera::checkpoint {
namespace {

/// Writes pieces of tensors into files, and the index that lists them.
class PieceWriter {
 public:
  explicit PieceWriter(std::string folder) : folder_(std::move(folder)) {}

  void tensor(const std::string& name, const at::Tensor& whole) {
    index_.tensors.push_back({name, dtype_of(whole.scalar_type()), whole.sizes().vec(), {}});
  }
  /// Adds a part of the tensor named last; `values`: its elements.
  void piece(int file, const layout::Region& region, const at::Tensor& values) {
    format::StoredTensor& tensor = index_.tensors.back();
    const std::string key = concat(tensor.name, tensor.pieces.empty() ? "" : concat(".", tensor.pieces.size()));
    tensor.pieces.push_back({name_of(file), key, region});
    files_[file].push_back(tensor_source(key, values));
  }
  /// Adds a range of the flattened tensor.
  void range(int file, const at::Tensor& whole, std::int64_t begin, std::int64_t end) {
    piece(file, layout::flat_region(whole.sizes().vec(), begin, end), whole.flatten().slice(0, begin, end));
  }
  void write() {
    for (auto& [number, tensors] : files_) format::write_safetensors(path_join(folder_, name_of(number)), tensors);
    std::sort(index_.tensors.begin(), index_.tensors.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
    write_file_atomically(path_join(folder_, "optimizer.safetensors.index.json"), format::state_index_text(index_));
  }
  static std::string name_of(int file) { return concat("optimizer-", file, ".safetensors"); }

 private:
  std::string folder_;
  std::map<int, std::vector<format::TensorSource>> files_;
  format::StateIndex index_;
};

bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.contiguous(), y = b.contiguous();
  return x.scalar_type() == y.scalar_type() && x.nbytes() == y.nbytes() &&
         (x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0);
}

using Random = std::mt19937;
std::int64_t at_most(Random& random, std::int64_t n) {
  return std::uniform_int_distribution<std::int64_t>(0, n)(random);
}

/// Flat ranges, in any order, in any files.
void cut_into_ranges(PieceWriter& writer, const at::Tensor& whole, Random& random) {
  std::vector<std::int64_t> cuts = {0, whole.numel()};
  for (std::int64_t i = at_most(random, 4); i > 0; --i) cuts.push_back(at_most(random, whole.numel()));
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  std::vector<std::size_t> order(cuts.size() - 1);
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), random);
  for (const std::size_t i : order) writer.range(static_cast<int>(at_most(random, 3)), whole, cuts[i], cuts[i + 1]);
}

/// Two boxes along a dimension, as under tensor parallelism, each in two ranges.
void cut_into_boxes(PieceWriter& writer, const at::Tensor& whole, Random& random) {
  const std::int64_t dim = at_most(random, whole.dim() - 1), size = whole.size(dim), cut = at_most(random, size);
  for (const auto& [begin, end] : {std::pair(std::int64_t{0}, cut), std::pair(cut, size)}) {
    if (begin == end) continue;
    const at::Tensor box = whole.slice(dim, begin, end).contiguous().flatten();
    layout::Region region = layout::whole_region(whole.slice(dim, begin, end).sizes().vec());
    region.offset[static_cast<std::size_t>(dim)] = begin;
    const std::int64_t middle = at_most(random, box.numel());
    for (const auto& [from, to] : {std::pair(std::int64_t{0}, middle), std::pair(middle, box.numel())}) {
      if (from == to) continue;
      region.begin = from, region.end = to;
      writer.piece(static_cast<int>(at_most(random, 3)), region, box.slice(0, from, to));
    }
  }
}

TEST(StoredState, AnyRangeOfAnyPartitionHasTheBytesOfTheWhole) {
  for (unsigned seed = 0; seed < 25; ++seed) {
    Random random(seed);
    at::manual_seed(seed);
    const TemporaryFolder folder;
    PieceWriter writer(folder.path());
    std::map<std::string, at::Tensor> wholes;
    for (int i = 0; i < 4; ++i) {
      std::vector<std::int64_t> shape;
      for (std::int64_t d = at_most(random, 3); d > 0; --d) shape.push_back(1 + at_most(random, 8));
      const at::Tensor whole = at::randn(shape).to(i % 2 ? at::kBFloat16 : at::kFloat);
      const std::string name = concat("exp_avg.", i);
      wholes[name] = whole;
      writer.tensor(name, whole);
      if (whole.dim() > 0 && random() % 2)
        cut_into_boxes(writer, whole, random);
      else
        cut_into_ranges(writer, whole, random);
    }
    writer.write();
    const StoredState state(folder.path());
    ASSERT_EQ(state.tensors().size(), wholes.size());
    EXPECT_TRUE(state.in_pieces());
    std::uint64_t bytes = 0;
    for (const auto& [name, whole] : wholes) {
      bytes += whole.nbytes();
      const format::StoredTensor* stored = state.find(name);
      ASSERT_NE(stored, nullptr);
      EXPECT_EQ(stored->shape, whole.sizes().vec());
      for (int i = 0; i < 5; ++i) {
        const std::int64_t begin = at_most(random, whole.numel()), end = begin + at_most(random, whole.numel() - begin);
        const at::Tensor expected = whole.flatten().slice(0, begin, end);
        const at::Tensor piece = at::full({end - begin}, 7, whole.options());
        state.read(name, begin, piece);
        EXPECT_TRUE(same_bytes(piece, expected))
            << "seed " << seed << ", " << name << " [" << begin << ", " << end << ")";
        const at::Tensor other =
            at::full({end - begin}, 7, whole.scalar_type() == at::kFloat ? at::kBFloat16 : at::kFloat);
        state.read(name, begin, other);
        EXPECT_TRUE(same_bytes(other, expected.to(other.scalar_type()))) << "seed " << seed << ", converted";
      }
    }
    EXPECT_EQ(state.bytes(), bytes);
  }
}

TEST(StoredState, WholeTensorsAreReadAlike) {
  const TemporaryFolder folder;
  const at::Tensor matrix = at::randn({5, 7}), count = at::scalar_tensor(3.0);
  format::write_safetensors(path_join(folder.path(), "optimizer.safetensors"),
                            {tensor_source("exp_avg.w", matrix), tensor_source("step", count)});
  const StoredState state(folder.path());
  EXPECT_FALSE(state.in_pieces());
  EXPECT_EQ(state.files().size(), 1u);
  ASSERT_EQ(state.tensors().size(), 2u);
  EXPECT_EQ(state.find("exp_avg"), nullptr);
  const at::Tensor part = at::empty({2, 5}), one = at::empty({});
  state.read("exp_avg.w", 9, part);
  EXPECT_TRUE(at::equal(part.flatten(), matrix.flatten().slice(0, 9, 19)));
  state.read("step", 0, one);
  EXPECT_EQ(one.item<float>(), 3);
  state.read("exp_avg.w", 35, at::empty({0}));
  EXPECT_THROW(state.read("exp_avg.w", 30, at::empty({6})), Error);
  EXPECT_THROW(state.read("exp_avg.w", -1, at::empty({2})), Error);
  EXPECT_THROW(state.read("nothing", 0, at::empty({1})), Error);
}

class SpoiltState : public ::testing::Test {
 protected:
  SpoiltState() {
    PieceWriter writer(folder_.path());
    writer.tensor("exp_avg.a", whole_);
    writer.range(1, whole_, 0, 20);
    writer.range(2, whole_, 20, 36);
    writer.tensor("exp_avg.b", whole_);
    writer.range(2, whole_, 0, 36);
    writer.write();
  }
  std::string path(int file) const { return path_join(folder_.path(), PieceWriter::name_of(file)); }
  void replace(int file, std::vector<format::TensorSource> tensors) const {
    format::write_safetensors(path(file), std::move(tensors));
  }
  std::string complaint() const {
    try {
      const StoredState state(folder_.path());
      const at::Tensor out = at::empty({36});
      for (const auto& tensor : state.tensors()) state.read(tensor.name, 0, out);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  }
  void expect(const std::vector<std::string>& parts) const {
    const std::string text = complaint();
    for (const std::string& part : parts)
      EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
  }

  TemporaryFolder folder_;
  at::Tensor whole_ = at::randn({6, 6});
};

TEST_F(SpoiltState, IsWholeAtFirst) { EXPECT_EQ(complaint(), ""); }

TEST_F(SpoiltState, AMissingFileIsNamed) {
  remove_tree(path(2));
  expect({"optimizer-2.safetensors", "not in the folder"});
}

TEST_F(SpoiltState, AMissingTensorIsNamed) {
  replace(1, {tensor_source("exp_avg.other", at::randn({20}))});
  expect({"optimizer-1.safetensors", "exp_avg.a", "is missing"});
}

TEST_F(SpoiltState, AnotherTypeIsNamed) {
  replace(1, {tensor_source("exp_avg.a", at::zeros({20}, at::kDouble))});
  expect({"optimizer-1.safetensors", "exp_avg.a", "F64", "F32"});
}

TEST_F(SpoiltState, AnotherSizeIsNamed) {
  replace(1, {tensor_source("exp_avg.a", at::randn({19}))});
  expect({"optimizer-1.safetensors", "exp_avg.a", "[19]", "[0, 20)"});
  replace(1, {tensor_source("exp_avg.a", at::randn({4, 5}))});
  expect({"optimizer-1.safetensors", "exp_avg.a", "[4, 5]"});
}

TEST_F(SpoiltState, ATruncatedFileIsNamed) {
  const std::string bytes = read_file(path(2));
  write_file_atomically(path(2), bytes.substr(0, bytes.size() - 1));
  expect({"optimizer-2.safetensors"});
}

TEST_F(SpoiltState, AFileThatIsCutAfterItsHeaderWasReadIsAnErrorAndNoSignal) {
  const StoredState state(folder_.path());
  const std::string bytes = read_file(path(2));
  write_file_atomically(path(2), bytes.substr(0, bytes.size() - 100));
  EXPECT_THROW(state.read("exp_avg.b", 0, at::empty({36})), InputError);
}

TEST_F(SpoiltState, NeitherFileIsAnError) {
  remove_tree(path_join(folder_.path(), "optimizer.safetensors.index.json"));
  expect({"neither optimizer.safetensors nor optimizer.safetensors.index.json"});
}

TEST_F(SpoiltState, BoolsAreRefused) {
  remove_tree(path_join(folder_.path(), "optimizer.safetensors.index.json"));
  format::write_safetensors(path_join(folder_.path(), "optimizer.safetensors"),
                            {tensor_source("mask", at::zeros({2}, at::kBool))});
  expect({"mask", "BOOL"});
}

}  // namespace
}  // namespace tessera::checkpoint
