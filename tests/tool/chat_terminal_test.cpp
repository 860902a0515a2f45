/// \file
/// tessera chat in a (pseudo-)terminal: the effects of Ctrl-C, Ctrl-D and SIGTERM.

#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "program.h"

namespace tessera::testing {
namespace {

/// A program in a pseudo-terminal controlled by the test; killed at the end if it still runs.
class InTerminal {
 public:
  explicit InTerminal(const Strings& command) {
    pid_ = forkpty(&terminal_, nullptr, nullptr, nullptr);
    if (pid_ != 0) return;
    setenv("OMP_NUM_THREADS", "1", 1);
    ::signal(SIGINT, SIG_DFL);  // ignored in a shell's background jobs, of which this test may be one
    std::vector<char*> words;
    for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    execv(words[0], words.data());
    _exit(127);
  }
  ~InTerminal() {
    if (!ended_) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(terminal_);
  }
  InTerminal(const InTerminal&) = delete;
  InTerminal& operator=(const InTerminal&) = delete;

  void type(const std::string& keys) const {
    EXPECT_EQ(write(terminal_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }
  void signal(int number) const { kill(pid_, number); }

  /// Reads until the text received since the last call contains `words`; false at the end of the output, or after
  /// `seconds` (scaled on a busy machine).
  bool shows(const std::string& words, double seconds = 20) {
    const Stopwatch watch;
    while (!contains(seen_, words)) {
      pollfd ready = {terminal_, POLLIN, 0};
      char bytes[4096];
      if (watch.seconds() > watch.limit(seconds)) return false;
      if (poll(&ready, 1, 100) <= 0) continue;
      const ssize_t n = read(terminal_, bytes, sizeof bytes);
      if (n <= 0) return false;  // EIO: the program has ended
      seen_.append(bytes, static_cast<std::size_t>(n));
    }
    seen_.erase(0, seen_.find(words) + words.size());
    return true;
  }
  const std::string& seen() const { return seen_; }

  /// The exit status, 128 + number for a signal. Reads remaining output, so that the program cannot block on it.
  int ends() {
    shows("these words are never written");
    int status = 0;
    const Stopwatch watch;
    while (waitpid(pid_, &status, WNOHANG) == 0)
      if (watch.seconds() > watch.limit(20)) return -1;
    ended_ = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  int terminal_ = -1;
  pid_t pid_ = -1;
  bool ended_ = false;
  std::string seen_;
};

class ChatTerminalTest : public ToolTest {
 protected:
  /// An untrained model with room for a long answer, which never ends one.
  ChatTerminalTest() {
    write_file_atomically(at("plain.jinja"), "{% for m in messages %}{{ m.content }}{% endfor %}");
    Strings making = training("model", batch(1, 1, 1));
    for (std::string& word : making)
      if (contains(word, "n_positions=64")) word.replace(word.find("n_positions=64"), 14, "n_positions=40000");
    const auto made = tessera(making);
    EXPECT_EQ(made.exit_code, 0) << made.err;
  }
  Strings talking() const {
    return {program,
            "chat",
            "--greedy",
            "--model_name_or_path",
            at("model"),
            "--chat_template",
            at("plain.jinja"),
            "--max_new_tokens",
            "20000"};
  }
};

TEST_F(ChatTerminalTest, ControlCEndsAnAnswerThenTheProgram) {
  InTerminal chat(talking());
  ASSERT_TRUE(chat.shows("> ")) << chat.seen();
  chat.type("and?\n");
  ASSERT_TRUE(chat.shows("and?\r\n")) << chat.seen();
  usleep(static_cast<useconds_t>(1e6 * patience(0.2)));  // the answer has begun
  chat.type("\x03");
  ASSERT_TRUE(chat.shows(" tok/s")) << "the answer ended: " << chat.seen();
  ASSERT_TRUE(chat.shows("> ")) << "and the next question is asked for: " << chat.seen();
  chat.type("/undo\n/undo\n");
  ASSERT_TRUE(chat.shows("the conversation is empty")) << "what was said until then was kept: " << chat.seen();
  chat.type("\x03");
  EXPECT_EQ(chat.ends(), 128 + SIGINT);
}

TEST_F(ChatTerminalTest, ControlDEndsItAndSigtermDoesInAnAnswer) {
  InTerminal calm(talking());
  ASSERT_TRUE(calm.shows("> ")) << calm.seen();
  calm.type("\x04");
  EXPECT_EQ(calm.ends(), 0);

  InTerminal stopped(talking());
  ASSERT_TRUE(stopped.shows("> ")) << stopped.seen();
  stopped.type("and?\n");
  ASSERT_TRUE(stopped.shows("and?\r\n")) << stopped.seen();
  usleep(static_cast<useconds_t>(1e6 * patience(0.2)));
  stopped.signal(SIGTERM);
  EXPECT_EQ(stopped.ends(), 3) << "stopped on request";
}

}  // namespace
}  // namespace tessera::testing
