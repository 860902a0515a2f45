// Detects whether a base model has changed, without reading all of it.

#include <gtest/gtest.h>

#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/checkpoint/weights_glance.h>

#include <string>

namespace tessera::checkpoint {
namespace {

class WeightsGlance : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& bytes) {
    write_file_atomically(path_join(folder_.path(), name), bytes);
  }
  std::string glance() const { return describe_weights(folder_.path()); }

  TemporaryFolder folder_;
};

TEST_F(WeightsGlance, IsOfTheWeightsAndTheConfiguration) {
  write("model.safetensors", "abc");
  write("config.json", "{}");
  const std::string before = glance();
  EXPECT_EQ(before.find("2 files, 5 bytes, contents "), 0u) << before;
  write("optimizer.safetensors", "moments");
  write("README.md", "a card");
  EXPECT_EQ(glance(), before);
  write("config.json", "[]");
  EXPECT_NE(glance(), before);
  write("config.json", "{}");
  EXPECT_EQ(glance(), before);
  write("model.safetensors", "abd");
  EXPECT_NE(glance(), before);
  EXPECT_EQ(describe_weights(path_join(folder_.path(), "model.safetensors")).find("1 file, 3 bytes, "), 0u);
  EXPECT_EQ(describe_weights(path_join(folder_.path(), "gone")), "");
}

TEST_F(WeightsGlance, SeesBeginningEndAndWhatIsWideOfALargeFile) {
  std::string weights(2'000'001, 'w');
  write("model.safetensors", weights);
  const std::string before = glance();
  for (const std::size_t at : {std::size_t{0}, weights.size() - 1}) {
    std::string other = weights;
    other[at] = 'x';
    write("model.safetensors", other);
    EXPECT_NE(glance(), before) << at;
  }
  for (std::size_t at = 0; at + 50'000 < weights.size(); at += 400'000) {  // one of many tensors
    std::string other = weights;
    other.replace(at, 50'000, 50'000, 'x');
    write("model.safetensors", other);
    EXPECT_NE(glance(), before) << at;
  }
}

}  // namespace
}  // namespace tessera::checkpoint
