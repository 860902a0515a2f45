#include <tessera/base/system/abandoned.h>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/base/file.h>

namespace tessera {
namespace {

using Names = std::vector<std::string>;

/// A process that runs `work` until `work` calls `stay`, which waits to be killed.
class Process {
 public:
  explicit Process(const std::function<void(const std::function<void(const std::string&)>& stay)>& work) {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::pipe(ends), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(ends[0]);
      work([&](const std::string& told) {
        [[maybe_unused]] const ssize_t written = ::write(ends[1], told.data(), told.size());
        ::close(ends[1]);
        for (;;) ::pause();
      });
      ::_exit(1);
    }
    ::close(ends[1]);
    char buffer[256];
    for (ssize_t got = 0; (got = ::read(ends[0], buffer, sizeof buffer)) > 0;)
      told.append(buffer, static_cast<std::size_t>(got));
    ::close(ends[0]);
  }
  ~Process() { kill(); }
  void kill() {
    if (pid_ < 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  std::string told;

 private:
  pid_t pid_ = -1;
};

TEST(Abandoned, HalfWrittenFilesGoWithTheirWriterAndNotBefore) {
  const TemporaryFolder folder;
  const auto path = [&](const std::string& name) { return path_join(folder.path(), name); };
  const auto sweep = [&] {
    remove_abandoned(folder.path(), [](const std::string& name) { return name_of_temporary(name) == "report.html"; });
    return list_folder(folder.path());
  };
  Process writer([&](const auto& stay) {
    write_file_atomically(path("report.html"), [&](int fd) {
      write_all(fd, std::as_bytes(std::span("half", 4)), "report.html");
      stay("x");
    });
  });
  write_file_atomically(path("report.html"), "whole");
  write_file_atomically(path("notes.tmp.12"), "a person's");
  const Names before = list_folder(folder.path());
  ASSERT_EQ(before.size(), 3u);
  EXPECT_EQ(sweep(), before) << "its writer is alive";
  writer.kill();
  EXPECT_EQ(sweep(), (Names{"notes.tmp.12", "report.html"}));
  EXPECT_EQ(read_file(path("report.html")), "whole");
}

TEST(Abandoned, TemporaryFoldersGoWithTheirOwnerAtTheNextStart) {
  const TemporaryFolder folder;
  const char* const given = std::getenv("TMPDIR");
  const std::optional<std::string> before = given != nullptr ? std::optional<std::string>(given) : std::nullopt;
  ::setenv("TMPDIR", folder.path().c_str(), 1);
  const auto make = [](const auto& stay) {
    const TemporaryFolder own("tessera-tokenizer");
    write_file_atomically(path_join(own.path(), "tokenizer.json"), "{}");
    stay(own.path());
  };
  Process dead(make), living(make);
  dead.kill();
  make_folders(path_join(folder.path(), "tessera-tokenizer.mine"));
  // Created by a process on another host, whose locks may not be visible here.
  const std::string far = path_join(folder.path(), "tessera-tokenizer.held.00000000-1.abcdef");
  make_folders(far);
  EXPECT_TRUE(path_exists(dead.told));
  Process next(make);  // a new process, because each process looks only once
  EXPECT_FALSE(path_exists(dead.told));
  EXPECT_TRUE(path_exists(path_join(living.told, "tokenizer.json")));
  EXPECT_TRUE(path_exists(path_join(next.told, "tokenizer.json")));
  EXPECT_TRUE(path_exists(path_join(folder.path(), "tessera-tokenizer.mine")));
  EXPECT_TRUE(path_exists(far));
  before ? ::setenv("TMPDIR", before->c_str(), 1) : ::unsetenv("TMPDIR");
}

TEST(Abandoned, LinksAreNoFilesOfOurs) {
  const TemporaryFolder folder;
  const std::string kept = path_join(folder.path(), "kept");
  write_file_atomically(kept, "x");
  ASSERT_EQ(::symlink(kept.c_str(), path_join(folder.path(), "a.tmp.1").c_str()), 0);
  remove_abandoned(folder.path(), [](const std::string& name) { return name.ends_with(".tmp.1"); });
  EXPECT_EQ(list_folder(folder.path()), (Names{"a.tmp.1", "kept"}));
  remove_abandoned(path_join(folder.path(), "missing"), [](const std::string&) { return true; });
}

TEST(Abandoned, NamesOfTemporaryFiles) {
  EXPECT_EQ(name_of_temporary("report.html.tmp.123"), "report.html");
  EXPECT_EQ(name_of_temporary(".tessera-files.tmp.1"), ".tessera-files");
  for (const char* other : {"report.html", "report.html.tmp", "report.html.tmp.", "report.html.tmp.1x", ".tmp.1",
                            "report.html.12", "", ".", "report.html.tmp.-1"}) {
    EXPECT_EQ(name_of_temporary(other), "") << other;
  }
}

}  // namespace
}  // namespace tessera
