#include <gtest/gtest.h>
#include <sys/stat.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/launch/agent/start.h>

#include <tests/error_of.h>

namespace tessera::launch {
namespace {

using tessera::testing::error_of;

TEST(SecretFile, DigitsOfAPrivateFile) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/secret";
  const Secret secret = make_secret();
  write_file_atomically(path, secret_digits(secret) + "\n");
  ::chmod(path.c_str(), 0600);
  EXPECT_EQ(read_secret_file(path), secret);
  ::chmod(path.c_str(), 0400);
  EXPECT_EQ(read_secret_file(path), secret);
  for (const mode_t mode : {0640, 0604, 0620}) {
    ::chmod(path.c_str(), mode);
    EXPECT_NE(error_of([&] { read_secret_file(path); }).find("others can read or write it"), std::string::npos);
  }
  ::chmod(path.c_str(), 0600);
  for (const char* bad : {"", "12", "zz00000000000000000000000000000000000000000000000000000000000000"}) {
    write_file_atomically(path, bad);
    ::chmod(path.c_str(), 0600);
    EXPECT_NE(error_of([&] { read_secret_file(path); }).find("64 hexadecimal digits"), std::string::npos) << bad;
  }
  EXPECT_NE(error_of([&] { read_secret_file(path + "x"); }).find("No such file"), std::string::npos);
}

TEST(SecretOfAJob, StrangersAreKeptOut) {
  LaunchCommand one;
  EXPECT_FALSE(secret_of(one));
  LaunchCommand two = parse_launch_command({"--nnodes=2", "--node_rank=1", "--master_addr=10.0.0.1", "prog"});
  EXPECT_NE(error_of([&] { secret_of(two); }).find("--secret_file"), std::string::npos);
  two.trusted_network = true;
  const auto open = secret_of(two);
  ASSERT_TRUE(open);
  two.options.machine_rank = 0;  // the same on all machines, but different for each job
  EXPECT_EQ(secret_of(two), open);
  two.options.master_port = 1;
  EXPECT_NE(secret_of(two), open);
  two.trusted_network = false;
  two.options.master_addr = "127.0.0.1";
  EXPECT_TRUE(secret_of(two));
}

}  // namespace
}  // namespace tessera::launch
