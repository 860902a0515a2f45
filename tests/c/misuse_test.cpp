// Any misuse returns a status and a message, and never crashes.
#include <gtest/gtest.h>

#include <dlfcn.h>
#include <sys/wait.h>
#include <tests/paths.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <limits>
#include <set>
#include <thread>

#include "processes.h"

namespace tessera::testing {
namespace {

class Misuse : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(tessera_init_folder(folder_.path().c_str(), 0, 1, "alone", nullptr, &world), TESSERA_OK)
        << tessera_last_error();
    ASSERT_EQ(tessera_world_group(world, &group), TESSERA_OK);
  }
  void TearDown() override {
    if (world != 0) EXPECT_EQ(tessera_shutdown(world), TESSERA_OK);
  }
  static void expect(tessera_status got, tessera_status wanted, const std::string& sentence) {
    EXPECT_STREQ(tessera_status_name(got), tessera_status_name(wanted));
    EXPECT_EQ(tessera_last_error(), sentence);
  }

  TemporaryFolder folder_;
  tessera_world world = 0;
  tessera_group group = 0;
  float x[8] = {};
};

std::string unknown(std::uint64_t handle, const char* kind) {
  return std::to_string(handle) + " is not a " + kind +
         ": it was never issued, or was freed, or belongs to the process that forked this one.";
}

TEST_F(Misuse, Handles) {
  std::int32_t n = 0;
  expect(tessera_rank(0, &n), TESSERA_INVALID, unknown(0, "world"));
  expect(tessera_rank(group, &n), TESSERA_INVALID, unknown(group, "world"));
  expect(tessera_group_size(world, &n), TESSERA_INVALID, unknown(world, "group"));
  expect(tessera_barrier(99, nullptr, nullptr), TESSERA_INVALID, unknown(99, "group"));
  expect(tessera_work_wait(5, -1, nullptr), TESSERA_INVALID, unknown(5, "work"));
  tessera_work work = 0;
  ASSERT_EQ(tessera_barrier(group, nullptr, &work), TESSERA_OK);
  EXPECT_EQ(tessera_work_free(work), TESSERA_OK);
  expect(tessera_work_free(work), TESSERA_INVALID, unknown(work, "work"));
  expect(tessera_work_test(work, &n), TESSERA_INVALID, unknown(work, "work"));
  expect(tessera_group_destroy(group), TESSERA_INVALID, "the group 'world' ends with its world: tessera_shutdown().");
  const std::int32_t ranks[] = {0};
  tessera_group own = 0;
  ASSERT_EQ(tessera_group_create(world, ranks, 1, "own", &own), TESSERA_OK);
  EXPECT_EQ(tessera_group_destroy(own), TESSERA_OK);
  expect(tessera_group_destroy(own), TESSERA_INVALID, unknown(own, "group"));
}

TEST_F(Misuse, Nulls) {
  expect(tessera_rank(world, nullptr), TESSERA_INVALID, "rank is null.");
  expect(tessera_world_group(world, nullptr), TESSERA_INVALID, "group is null.");
  expect(tessera_init_folder(nullptr, 0, 1, "a", nullptr, &world), TESSERA_INVALID, "folder is null.");
  expect(tessera_init_folder("/tmp", 0, 1, "a", nullptr, nullptr), TESSERA_INVALID, "world is null.");
  expect(tessera_all_reduce(group, nullptr, x, 1, TESSERA_FLOAT32, TESSERA_SUM, nullptr, nullptr), TESSERA_INVALID,
         "all_reduce: the input is null.");
  expect(tessera_all_reduce(group, x, nullptr, 1, TESSERA_FLOAT32, TESSERA_SUM, nullptr, nullptr), TESSERA_INVALID,
         "all_reduce: the output is null.");
  expect(tessera_all_gather_v(group, x, x, nullptr, TESSERA_FLOAT32, nullptr, nullptr), TESSERA_INVALID,
         "counts is null.");
  expect(tessera_group_create(world, nullptr, 1, "a", &group), TESSERA_INVALID, "ranks is null.");
  expect(tessera_store_set(world, nullptr, "", 0), TESSERA_INVALID, "key is null.");
  expect(tessera_timeline_start(world, nullptr), TESSERA_INVALID, "path is null.");
  expect(tessera_view_dlpack(nullptr, 1, nullptr), TESSERA_INVALID, "view is null.");
  expect(tessera_init_functions(nullptr, 0, 1, "a", nullptr, &world), TESSERA_INVALID, "store is null.");
  expect(tessera_options_init(nullptr), TESSERA_INVALID, "options is null.");
  expect(tessera_group_name(group, nullptr, 8, nullptr), TESSERA_INVALID, "buffer is null.");
  EXPECT_EQ(tessera_all_reduce(group, nullptr, nullptr, 0, TESSERA_FLOAT32, TESSERA_SUM, nullptr, nullptr), TESSERA_OK);
}

TEST_F(Misuse, Arguments) {
  const auto reduce = [&](std::int64_t n, std::int32_t dtype, std::int32_t op) {
    return tessera_all_reduce(group, x, x, n, dtype, op, nullptr, nullptr);
  };
  expect(reduce(-1, TESSERA_FLOAT32, TESSERA_SUM), TESSERA_INVALID, "all_reduce: the count is -1.");
  expect(reduce(1, 12, TESSERA_SUM), TESSERA_INVALID, "all_reduce: 12 is not a dtype.");
  expect(reduce(1, -1, TESSERA_SUM), TESSERA_INVALID, "all_reduce: -1 is not a dtype.");
  expect(reduce(1, TESSERA_FLOAT32, 8), TESSERA_INVALID, "all_reduce: 8 is not a reduction.");
  expect(reduce(1, TESSERA_INT32, TESSERA_AVERAGE), TESSERA_INVALID, "average is not for int32.");
  expect(reduce(std::numeric_limits<std::int64_t>::max(), TESSERA_FLOAT32, TESSERA_SUM), TESSERA_INVALID,
         "all_reduce: the count 9223372036854775807 is more than memory can hold.");
  expect(tessera_broadcast(group, x, 1, TESSERA_FLOAT32, 1, nullptr, nullptr), TESSERA_INVALID,
         "broadcast: root 1 is not a rank of the group, which has 1.");
  expect(tessera_send(group, x, 1, TESSERA_FLOAT32, 3, 0, nullptr, nullptr), TESSERA_INVALID,
         "send: rank 3 is not a rank of the group, which has 1.");
  const std::int64_t negative[] = {-4};
  expect(tessera_all_gather_v(group, x, x, negative, TESSERA_FLOAT32, nullptr, nullptr), TESSERA_INVALID,
         "all_gather: the count of rank 0 is -4.");
  tessera_call call{};
  expect(tessera_barrier(group, &call, nullptr), TESSERA_INVALID,
         "call.size is 0 instead of " + std::to_string(sizeof call) + ".");
  call.size = sizeof call;
  call.prescale = 2;
  expect(tessera_barrier(group, &call, nullptr), TESSERA_INVALID, "barrier: only reductions have scales.");
  expect(tessera_all_reduce(group, x, x, 1, TESSERA_INT32, TESSERA_SUM, &call, nullptr), TESSERA_INVALID,
         "all_reduce: int32 cannot be scaled.");
  call.prescale = std::numeric_limits<double>::infinity();
  expect(tessera_all_reduce(group, x, x, 1, TESSERA_FLOAT32, TESSERA_SUM, &call, nullptr), TESSERA_INVALID,
         "all_reduce: a scale is inf.");
  call.prescale = 0;
  call.timeout_ms = -5;
  expect(tessera_barrier(group, &call, nullptr), TESSERA_INVALID, "barrier: the timeout is -5 ms.");
  expect(tessera_group_set_timeout(group, 0), TESSERA_INVALID, "the timeout is 0 ms.");
  const std::int32_t strange[] = {1}, twice[] = {0, 0};
  tessera_group made = 0;
  expect(tessera_group_create(world, strange, 1, "a", &made), TESSERA_INVALID,
         "rank 1 does not exist in a world of 1 ranks.");
  expect(tessera_group_create(world, twice, 2, "a", &made), TESSERA_INVALID, "a group of 2 ranks in a world of 1.");
  expect(tessera_group_split(group, -2, 0, nullptr, &made), TESSERA_INVALID, "the colour is -2.");
  expect(tessera_group_find(world, "nobody", &made), TESSERA_INVALID, "no group of this process is named 'nobody'.");
  std::int32_t rank = 0;
  expect(tessera_group_ranks(group, &rank, 0), TESSERA_INVALID, "room for 0 ranks of 1.");
  expect(tessera_host_of(world, 1, &rank), TESSERA_INVALID, "rank 1 does not exist in a world of 1 ranks.");
  char text[4];
  std::int64_t needed = 0;
  EXPECT_EQ(tessera_group_name(group, text, sizeof text, &needed), TESSERA_OK);
  EXPECT_STREQ(text, "wor");
  EXPECT_EQ(needed, 6);
}

TEST_F(Misuse, Worlds) {
  tessera_world other = 0;
  expect(tessera_init_folder("/tmp", 0, 0, "a", nullptr, &other), TESSERA_INVALID, "a world of 0 ranks.");
  expect(tessera_init_folder("/tmp", 2, 2, "a", nullptr, &other), TESSERA_INVALID,
         "rank 2 does not exist in a world of 2 ranks.");
  expect(tessera_init_store("localhost", 0, 0, 1, "a", nullptr, &other), TESSERA_INVALID, "the port is 0.");
  tessera_options options = options_of("carrier pigeon");
  expect(tessera_init_folder("/tmp", 0, 1, "a", &options, &other), TESSERA_INVALID,
         "unknown transport 'carrier pigeon'; use auto, shm or tcp.");
  options = options_of("shm");
  options.local_size = 2;
  options.local_rank = 7;
  expect(tessera_init_folder("/tmp", 0, 1, "a", &options, &other), TESSERA_INVALID,
         "options: local_rank 7 is out of range for local_size 2.");
  options = options_of("shm");
  options.join_store = 9;
  expect(tessera_init_folder("/tmp", 0, 1, "a", &options, &other), TESSERA_INVALID,
         "options: join_store is 9; it must be 0 or 1.");
  options.size = 8;
  expect(tessera_init_folder("/tmp", 0, 1, "a", &options, &other), TESSERA_INVALID,
         "options.size is 8 instead of " + std::to_string(sizeof options) + ": call tessera_options_init().");
  expect(tessera_init_folder("/dev/null/no", 0, 1, "a", nullptr, &other), TESSERA_STORE,
         "/dev/null/no: cannot be created or is not a folder.");
  tessera_store_functions functions{};
  functions.size = sizeof functions;
  expect(tessera_init_functions(&functions, 0, 1, "a", nullptr, &other), TESSERA_INVALID,
         "a store needs set, get and add.");
  EXPECT_EQ(other, 0u);
}

TEST_F(Misuse, AfterShutdown) {
  tessera_work work = 0;
  ASSERT_EQ(tessera_barrier(group, nullptr, &work), TESSERA_OK);
  ASSERT_EQ(tessera_shutdown(world), TESSERA_OK);
  const std::string group_text = "the group " + std::to_string(group) + " was shut down.";
  const std::string world_text = "the world " + std::to_string(world) + " was shut down.";
  std::int32_t n = 0;
  expect(tessera_barrier(group, nullptr, nullptr), TESSERA_SHUT_DOWN, group_text);
  expect(tessera_group_state(group), TESSERA_SHUT_DOWN, group_text);
  expect(tessera_rank(world, &n), TESSERA_SHUT_DOWN, world_text);
  expect(tessera_shutdown(world), TESSERA_SHUT_DOWN, world_text);
  EXPECT_EQ(tessera_work_wait(work, -1, nullptr), TESSERA_OK);
  EXPECT_EQ(tessera_work_free(work), TESSERA_OK);
  world = 0;
}

TEST_F(Misuse, Batches) {
  expect(tessera_batch_end(group, nullptr), TESSERA_INVALID, "this thread has not begun a batch in this group.");
  ASSERT_EQ(tessera_batch_begin(group), TESSERA_OK);
  expect(tessera_batch_begin(group), TESSERA_INVALID, "this thread has already begun a batch in this group.");
  tessera_work work = 0;
  expect(tessera_barrier(group, nullptr, &work), TESSERA_INVALID,
         "an operation in a batch has no work handle; pass NULL.");
  EXPECT_EQ(tessera_batch_end(group, nullptr), TESSERA_OK);
  expect(tessera_batch_begin(77), TESSERA_INVALID, unknown(77, "group"));
}

TEST_F(Misuse, Works) {
  tessera_work work = 0;
  ASSERT_EQ(tessera_barrier(group, nullptr, &work), TESSERA_OK);
  std::int32_t n = 0;
  expect(tessera_work_wait(work, -2, nullptr), TESSERA_INVALID, "the timeout is -2 ms.");
  expect(tessera_work_status(work), TESSERA_INVALID, "the operation has not ended.");
  expect(tessera_work_source(work, &n), TESSERA_INVALID, "the operation has not ended.");
  EXPECT_EQ(tessera_work_wait(work, 0, &n), TESSERA_OK);
  EXPECT_EQ(n, 1);
  expect(tessera_work_source(work, &n), TESSERA_INVALID, "the operation received no message.");
  EXPECT_EQ(tessera_work_free(work), TESSERA_OK);
}

TEST_F(Misuse, Memory) {
  void* memory = nullptr;
  expect(tessera_memory_allocate(0, &memory), TESSERA_INVALID, "0 bytes cannot be allocated.");
  EXPECT_EQ(tessera_memory_allocate(std::numeric_limits<std::int64_t>::max(), &memory), TESSERA_SYSTEM);
  ASSERT_EQ(tessera_memory_allocate(100, &memory), TESSERA_OK);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 64, 0u);
  EXPECT_EQ(tessera_memory_free(memory), TESSERA_OK);
  const char* sentence = "the memory is not from tessera_memory_allocate(), or was freed before.";
  expect(tessera_memory_free(memory), TESSERA_INVALID, sentence);
  expect(tessera_memory_free(x), TESSERA_INVALID, sentence);
  EXPECT_EQ(tessera_memory_free(nullptr), TESSERA_OK);
}

TEST_F(Misuse, AChildHasNoHandles) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    std::int32_t n = 0;
    const bool refused = tessera_rank(world, &n) == TESSERA_INVALID &&
                         tessera_last_error() == unknown(world, "world") &&
                         tessera_barrier(group, nullptr, nullptr) == TESSERA_INVALID;
    tessera_world own = 0;
    tessera_group all = 0;
    const bool makes = tessera_init_folder(folder_.path().c_str(), 0, 1, "child", nullptr, &own) == TESSERA_OK &&
                       tessera_world_group(own, &all) == TESSERA_OK &&
                       tessera_barrier(all, nullptr, nullptr) == TESSERA_OK && tessera_shutdown(own) == TESSERA_OK;
    _exit(refused && makes ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST_F(Misuse, ErrorsBelongToTheThread) {
  ASSERT_EQ(tessera_shutdown(12), TESSERA_INVALID);
  std::thread([] { EXPECT_STREQ(tessera_last_error(), ""); }).join();
  EXPECT_EQ(tessera_last_error(), unknown(12, "world"));
}

struct Dl {
  struct {
    std::uint32_t major = 1, minor = 0;
  } version;
  void* context = nullptr;
  void* deleter = nullptr;
  std::uint64_t flags = 0;
  struct {
    void* data;
    std::int32_t device = 1, number = 0, dimensions = 2;
    std::uint8_t code = 2, bits = 32;
    std::uint16_t lanes = 1;
    std::int64_t* shape;
    std::int64_t* strides = nullptr;
    std::uint64_t offset = 4;
  } tensor;
};

TEST_F(Misuse, DlPack) {
  std::int64_t shape[] = {2, 3}, dense[] = {3, 1}, columns[] = {1, 2};
  Dl managed;
  managed.tensor.data = x;
  managed.tensor.shape = shape;
  tessera_view view{};
  ASSERT_EQ(tessera_view_dlpack(&managed, 1, &view), TESSERA_OK) << tessera_last_error();
  EXPECT_EQ(view.data, x + 1);
  EXPECT_EQ(view.count, 6);
  EXPECT_EQ(view.dtype, TESSERA_FLOAT32);
  EXPECT_EQ(view.read_only, 0);
  managed.tensor.strides = dense;
  managed.flags = 1;
  ASSERT_EQ(tessera_view_dlpack(&managed, 1, &view), TESSERA_OK);
  EXPECT_EQ(view.read_only, 1);
  EXPECT_EQ(tessera_view_dlpack(&managed.tensor, 0, &view), TESSERA_OK);
  managed.tensor.strides = columns;
  expect(tessera_view_dlpack(&managed, 1, &view), TESSERA_INVALID,
         "DLPack: the elements are not dense in row-major order: pass a contiguous tensor.");
  managed.tensor.strides = nullptr;
  managed.tensor.device = 2;
  expect(tessera_view_dlpack(&managed, 1, &view), TESSERA_INVALID,
         "DLPack: the tensor is on a device of type 2; only CPU memory (1) is supported.");
  managed.tensor.device = 1;
  managed.tensor.bits = 8;
  expect(tessera_view_dlpack(&managed, 1, &view), TESSERA_INVALID,
         "DLPack: the dtype (code 2, 8 bits, 1 lanes) has no tessera_dtype.");
  managed.version.major = 2;
  expect(tessera_view_dlpack(&managed, 1, &view), TESSERA_INVALID,
         "DLPack: version 2.0; this library reads version 1.");
}

TEST_F(Misuse, TimelineAndReport) {
  const std::string path = folder_.path() + "/trace.json";
  ASSERT_EQ(tessera_timeline_start(world, path.c_str()), TESSERA_OK);
  tessera_call call{};
  call.size = sizeof call;
  call.label = "a \"label\"";
  ASSERT_EQ(tessera_all_reduce(group, x, x, 8, TESSERA_FLOAT32, TESSERA_SUM, &call, nullptr), TESSERA_OK);
  ASSERT_EQ(tessera_timeline_stop(world), TESSERA_OK);
  ASSERT_EQ(tessera_barrier(group, nullptr, nullptr), TESSERA_OK);
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_NE(text.find(R"("name":"all_reduce","ph":"X","pid":0,"tid":0,"ts":)"), std::string::npos) << text;
  EXPECT_NE(text.find(R"(8 x float32, sum, tag 'a \"label\"')"), std::string::npos) << text;
  EXPECT_EQ(text.find("barrier"), std::string::npos) << text;
  EXPECT_TRUE(text.starts_with("[\n") && text.ends_with("\n]\n")) << text;
  std::int64_t needed = 0;
  ASSERT_EQ(tessera_report(world, nullptr, 0, &needed), TESSERA_OK);
  std::vector<char> report(static_cast<std::size_t>(needed) + 100);
  ASSERT_EQ(tessera_report(world, report.data(), static_cast<std::int64_t>(report.size()), nullptr), TESSERA_OK);
  EXPECT_NE(std::string(report.data()).find("group 'world': rank 0 of 1, local, nothing in flight"), std::string::npos)
      << report.data();
  EXPECT_EQ(tessera_timeline_start(world, "/nowhere/trace.json"), TESSERA_SYSTEM);
}

TEST_F(Misuse, TheStore) {
  EXPECT_EQ(tessera_store_set(world, "a/b", "xyz", 3), TESSERA_OK);
  char value[2];
  std::int64_t bytes = 0, sum = 0;
  EXPECT_EQ(tessera_store_get(world, "a/b", 0, value, 2, &bytes), TESSERA_OK);
  EXPECT_EQ(bytes, 3);
  EXPECT_EQ(std::string(value, 2), "xy");
  EXPECT_EQ(tessera_store_add(world, "n", 5, &sum), TESSERA_OK);
  EXPECT_EQ(tessera_store_add(world, "n", -2, &sum), TESSERA_OK);
  EXPECT_EQ(sum, 3);
  EXPECT_EQ(tessera_store_remove(world, "a/b"), TESSERA_OK);
  expect(tessera_store_get(world, "a/b", 10, value, 2, &bytes), TESSERA_TIMEOUT, "nobody set 'a/b' within 10 ms.");
  EXPECT_EQ(tessera_store_set(world, "a/b", nullptr, 3), TESSERA_INVALID);
}

// Binary compatibility: functions are only added at the end of the list, none is removed, and nothing else is exported.
TEST(Abi, TheLibraryExportsTheHeadersFunctionsAndNothingElse) {
  std::ifstream header(source_path("tessera/c/tessera_c.h"));
  std::set<std::string> declared;
  for (std::string line; std::getline(header, line);) {
    if (line.starts_with("/") || line.starts_with(" ") || line.starts_with("typedef") || line.starts_with("enum"))
      continue;
    const auto begin = line.find(" tessera_"), end = line.find('(');
    if (begin == std::string::npos || end == std::string::npos || end < begin) continue;
    declared.insert(line.substr(begin + 1, end - begin - 1));
  }
  std::ifstream frozen(source_path("tests/c/functions.txt"));
  std::set<std::string> known;
  for (std::string line; std::getline(frozen, line);) known.insert(line);
  EXPECT_EQ(declared, known);
  EXPECT_GE(known.size(), 60u);

  const std::string command = "nm -D --defined-only '" + build_path("libtessera_c.so") + "'";
  std::FILE* symbols = popen(command.c_str(), "r");
  ASSERT_NE(symbols, nullptr);
  std::set<std::string> exported;
  for (std::array<char, 1024> line; std::fgets(line.data(), line.size(), symbols) != nullptr;) {
    std::string name(line.data());
    name = name.substr(name.rfind(' ') + 1);
    exported.insert(name.substr(0, name.find_last_not_of('\n') + 1));
  }
  EXPECT_EQ(pclose(symbols), 0);
  EXPECT_EQ(exported, known);
}

TEST(Abi, Numbers) {
  EXPECT_EQ(tessera_abi_version(), TESSERA_ABI_VERSION);
  EXPECT_STREQ(tessera_version(), TESSERA_VERSION);
  EXPECT_EQ(sizeof(tessera_options), 72u);
  EXPECT_EQ(sizeof(tessera_store_functions), 48u);
  EXPECT_EQ(sizeof(tessera_call), 40u);
  EXPECT_EQ(sizeof(tessera_view), 24u);
  EXPECT_EQ(tessera_dtype_size(TESSERA_COMPLEX128), 16);
  EXPECT_EQ(tessera_dtype_size(12), 0);
  EXPECT_STREQ(tessera_dtype_name(TESSERA_BFLOAT16), "bfloat16");
  EXPECT_STREQ(tessera_dtype_name(-1), "unknown");
  EXPECT_STREQ(tessera_op_name(TESSERA_BXOR), "bxor");
  EXPECT_STREQ(tessera_status_name(TESSERA_PEER_LOST), "peer lost");
  EXPECT_STREQ(tessera_status_name(42), "unknown status");
}

}  // namespace
}  // namespace tessera::testing
