#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/launch/agent/unique_fd.h>
#include <tessera/wire/failure.h>
#include <tessera/wire/store.h>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <thread>

namespace tessera::wire {
namespace {

class FolderStore final : public Store {
 public:
  explicit FolderStore(std::string folder) : folder_(std::move(folder)) {
    std::error_code error;
    std::filesystem::create_directories(folder_, error);
    if (!std::filesystem::is_directory(folder_, error)) fail(folder_, "cannot be created or is not a folder");
  }

  void set(const std::string& key, const std::string& value) override {
    static std::atomic<unsigned> number{0};
    const std::string path = path_of(key), next = concat(path, ".", getpid(), ".", number++, "~");
    {
      std::ofstream file(next, std::ios::binary);
      file.write(value.data(), static_cast<std::streamsize>(value.size()));
      file.close();
      if (!file) fail(next, "cannot be written");
    }
    if (rename(next.c_str(), path.c_str()) != 0) fail(path, std::strerror(errno));
  }

  std::string get(const std::string& key, milliseconds timeout) override {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    for (auto pause = std::chrono::microseconds(200);; pause = std::min(2 * pause, std::chrono::microseconds(10'000))) {
      if (auto value = find(key)) return *value;
      if (std::chrono::steady_clock::now() >= deadline) {
        throw Failure(Code::timeout,
                      concat("nobody wrote '", key, "' in ", folder_, " within ", timeout.count(), " ms."));
      }
      std::this_thread::sleep_for(pause);
    }
  }

  std::int64_t add(const std::string& key, std::int64_t delta) override {
    const launch::UniqueFd lock(open((folder_ + "/lock~").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!lock || flock(lock.get(), LOCK_EX) != 0) fail(folder_ + "/lock~", std::strerror(errno));
    const auto former = find(key);
    const auto number = former ? parse_int(*former) : 0;
    if (!number) throw Failure(Code::store, concat("the value of '", key, "' in ", folder_, " is not a number."));
    set(key, std::to_string(*number + delta));
    return *number + delta;
  }

  void remove(const std::string& key) override { unlink(path_of(key).c_str()); }

 private:
  [[noreturn]] static void fail(const std::string& path, const std::string& why) {
    throw Failure(Code::store, concat(path, ": ", why, "."));
  }

  // Encodes a key as a file name, which has no '/' and does not end with '~'.
  std::string path_of(const std::string& key) const {
    std::string name;
    for (const char c : key) {
      if (c == '/' || c == '%' || c == '~' || c == '.') {
        name += '%';
        name += "0123456789abcdef"[static_cast<unsigned char>(c) >> 4];
        name += "0123456789abcdef"[static_cast<unsigned char>(c) & 15];
      } else {
        name += c;
      }
    }
    if (name.size() > 200) throw Failure(Code::store, concat("the key '", key, "' is too long for a file's name."));
    return folder_ + "/" + name;
  }

  std::optional<std::string> find(const std::string& key) const {
    const std::string path = path_of(key);
    while (path_exists(path)) {
      try {
        return read_file(path);
      } catch (const InputError& error) {
        if (path_exists(path)) throw Failure(Code::store, error.what());  // otherwise deleted after the first look
      }
    }
    return std::nullopt;
  }

  const std::string folder_;
};

}  // namespace

std::shared_ptr<Store> open_folder(const std::string& folder) { return std::make_shared<FolderStore>(folder); }

}  // namespace tessera::wire
