// The table of backends: the choice of `auto` for every placement, and that rows can be distinguished.
#include <gtest/gtest.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/layout/backends.h>
#include <tests/paths.h>

#include <set>

namespace {

using namespace tessera::layout;
using tessera::Device;

std::string_view taken(tessera::Device device, const Placement& placement) {
  const BackendRow* row = fitting_backend(device, placement);
  return row == nullptr ? "" : row->name;
}

TEST(Backends, auto_follows_the_places_of_the_ranks) {
  EXPECT_EQ(taken(Device::cpu, {.ranks = 1, .hosts = 1}), "local");
  EXPECT_EQ(taken(Device::cpu, {.ranks = 4, .hosts = 1}), "shm");
  EXPECT_EQ(taken(Device::cpu, {.ranks = 4, .hosts = 2}), "hier");
  EXPECT_EQ(taken(Device::cpu, {.ranks = 3, .hosts = 2}), "hier");
  EXPECT_EQ(taken(Device::cpu, {.ranks = 4, .hosts = 4}), "gloo");
  EXPECT_EQ(taken(Device::cuda, {.ranks = 1, .hosts = 1}), "local");
  EXPECT_EQ(taken(Device::cuda, {.ranks = 4, .hosts = 1}), "nccl");
  EXPECT_EQ(taken(Device::cuda, {.ranks = 4, .hosts = 1, .shares_device = true}), "");  // through host memory
}

TEST(Backends, the_table_in_the_docs_has_every_row) {
  const std::string text = tessera::read_file(tessera::testing::source_path("docs/communication.md"));
  for (const BackendRow& row : backends())
    EXPECT_NE(text.find(tessera::concat("\n| `", row.name, "` |")), std::string::npos) << row.name;
}

TEST(Backends, rows_have_names_of_their_own_and_say_when_they_are_taken) {
  std::set<std::string_view> names = {"auto"};
  for (const BackendRow& row : backends()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_EQ(find_backend(row.name), &row);
    EXPECT_FALSE(row.rule.empty()) << row.name;
  }
  EXPECT_EQ(find_backend("auto"), nullptr);
  EXPECT_EQ(usual_backend(Device::cpu), "gloo");
  EXPECT_EQ(usual_backend(Device::cuda), "nccl");
}

}  // namespace
