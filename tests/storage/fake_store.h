#pragma once
/// \file
/// tests/storage/: object stores. This header: runs fake_s3.py, and writes a checkpoint to send to it.

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/format/manifest/manifest.h>
#include <tessera/launch/agent/process.h>
#include <tessera/storage/object_store.h>
#include <tests/paths.h>

namespace tessera::testing {

/// Tests that need a server. They are skipped where the plug-in cannot be built (the cross build for ARM).
class StoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!storage::has_http_plugin()) GTEST_SKIP() << "libtessera_s3.so was not built: make deps";
  }
};

/// The server of tests/storage/fake_s3.py, with one bucket named "bucket".
class FakeStore {
 public:
  explicit FakeStore(std::vector<std::string> options = {}, int port = 0) : process_(start(std::move(options), port)) {
    std::string line;
    char c = 0;
    pollfd ready{process_.stdout_pipe().get(), POLLIN, 0};
    while (::poll(&ready, 1, 20'000) > 0 && ::read(ready.fd, &c, 1) == 1 && c != '\n') line += c;
    port_ = static_cast<int>(parse_int(line).value_or(0));
    EXPECT_NE(port_, 0) << "fake_s3.py did not start";
  }

  int port() const { return port_; }
  std::string endpoint() const { return concat("http://127.0.0.1:", port_); }
  storage::Access access(int attempts = 4) const {
    storage::Access access;
    access.endpoint = endpoint();
    access.path_style = true;
    access.key_id = "key";
    access.secret = "secret";
    access.attempts = attempts;
    access.first_pause = 0.02;
    return access;
  }
  /// The environment variables that the program reads.
  launch::Environment environment(int attempts = 4) const {
    return {{"AWS_ENDPOINT_URL", endpoint()},     {"AWS_ACCESS_KEY_ID", "key"},
            {"AWS_SECRET_ACCESS_KEY", "secret"},  {"AWS_MAX_ATTEMPTS", concat(attempts)},
            {"AWS_CONFIG_FILE", "/nonexistent"},  {"AWS_SHARED_CREDENTIALS_FILE", "/nonexistent"},
            {"AWS_SESSION_TOKEN", std::nullopt},  {"AWS_REGION", std::nullopt},
            {"AWS_DEFAULT_REGION", std::nullopt}, {"AWS_ENDPOINT_URL_S3", std::nullopt},
            {"http_proxy", std::nullopt},         {"all_proxy", std::nullopt}};
  }

  /// Sends a control line such as "503 PUT model 2".
  void control(const std::string& line) const {
    const std::string answer = ask(concat(
        "POST /_control HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: ", line.size(), "\r\n\r\n", line));
    EXPECT_TRUE(answer.find(" 200 ") != std::string::npos) << line << ": " << answer;
  }
  /// Requests so far that start with `begin`, such as "PUT /bucket/a".
  std::vector<std::string> requests(const std::string& begin = "") const {
    const std::string answer = ask("GET /_log HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    std::vector<std::string> found;
    for (const std::string& line : split(answer.substr(answer.find("\r\n\r\n") + 4), '\n'))
      if (!line.empty() && line.starts_with(begin)) found.push_back(line);
    return found;
  }

 private:
  static launch::Process start(std::vector<std::string> options, int port) {
    launch::ProcessOptions process;
    process.command = {"python3", source_path("tests/storage/fake_s3.py"), "--port", concat(port)};
    process.command.insert(process.command.end(), options.begin(), options.end());
    process.capture_stdout = true;
    return launch::Process(process);
  }

  std::string ask(const std::string& request) const {
    const launch::UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port_));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return "";
    if (::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) return "";
    std::string all;
    char bytes[4096];
    for (ssize_t n = 0; (n = ::recv(fd.get(), bytes, sizeof bytes, 0)) > 0;)
      all.append(bytes, static_cast<std::size_t>(n));
    return all;
  }

  launch::Process process_;
  int port_ = 0;
};

/// Writes a folder with a manifest: `large` bytes in model.safetensors (checksums per 64 KiB) and two small files.
inline void write_checkpoint(const std::string& folder, std::size_t large, std::int64_t step, unsigned seed = 1) {
  make_folders(folder);
  format::Manifest manifest{step, {}};
  const auto add = [&](const std::string& name, std::size_t size) {
    std::string bytes(size, '\0');
    std::uint64_t state = seed * 977 + size;
    for (char& c : bytes) c = static_cast<char>((state = state * 6364136223846793005U + 1442695040888963407U) >> 56);
    write_file_atomically(path_join(folder, name), bytes);
    manifest.files.push_back({name, format::digest_of(std::as_bytes(std::span(bytes)), std::uint64_t{64} << 10)});
  };
  add("model.safetensors", large);
  add("config.json", 300);
  add("empty.txt", 0);
  format::write_manifest(folder, manifest);
}

inline bool same_folders(const std::string& a, const std::string& b) {
  const auto names = list_folder(a);
  return names == list_folder(b) && std::all_of(names.begin(), names.end(), [&](const std::string& name) {
           return read_file(path_join(a, name)) == read_file(path_join(b, name));
         });
}

}  // namespace tessera::testing
