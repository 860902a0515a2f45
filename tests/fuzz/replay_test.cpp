// Runs every reader on the inputs that its fuzzer kept (tests/fuzz/corpus) and on fixed mutations of them, in each
// build of the tests, so that a bug found once stays found, with or without sanitizers. Readers run in a child process,
// so that a crash is a single failure that names its input and saves its bytes.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>

#include <tests/fuzz/readers.h>
#include <tests/paths.h>
#include <tests/stopwatch.h>

namespace tessera::testing {

static void PrintTo(const FuzzReader& reader, std::ostream* out) { *out << reader.name; }

namespace {

constexpr std::size_t mutations = 6;  // mutated copies of each input

/// Limit for a reader that hangs; normally it takes milliseconds.
unsigned seconds_for_a_reader() {
  static const auto seconds = static_cast<unsigned>(patience(120));
  return seconds;
}

struct Input {
  std::string file;
  std::string bytes;
};

std::vector<Input> corpus(const std::string& name) {
  std::vector<Input> inputs;
  const std::string folder = source_path(concat("tests/fuzz/corpus/", name));
  if (!std::filesystem::is_directory(folder)) return inputs;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    inputs.push_back({entry.path().filename().string(), read_file(entry.path().string())});
  std::sort(inputs.begin(), inputs.end(), [](const Input& a, const Input& b) { return a.file < b.file; });
  return inputs;
}

/// `bytes` with one to four changes drawn from `random`: a flipped bit, a random byte, or a piece truncated, removed,
/// doubled or moved.
std::string mutated(std::string bytes, std::mt19937& random) {
  const auto below = [&random](std::size_t limit) { return static_cast<std::size_t>(random() % limit); };
  for (std::size_t change = 1 + below(4); change > 0 && !bytes.empty(); --change) {
    const std::size_t at = below(bytes.size()), length = 1 + below(std::min<std::size_t>(bytes.size() - at, 16));
    switch (below(6)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ 1 << below(8));
        break;
      case 1:
        bytes[at] = "\0\x7f\x80\xff\"{[-"[below(8)];
        break;
      case 2:
        bytes.resize(at);
        break;
      case 3:
        bytes.erase(at, length);
        break;
      case 4:
        bytes.insert(at, bytes.substr(at, length));
        break;
      default: {
        const std::string piece = bytes.substr(at, length);
        bytes.erase(at, length);
        bytes.insert(below(bytes.size() + 1), piece);
      }
    }
  }
  return bytes;
}

/// The child's progress, which the parent reads after a crash.
struct Place {
  std::size_t input = 0;
  std::size_t mutation = 0;  ///< 0: the input itself
};

/// Mutations depend only on the input's index and the mutation's number.
std::string bytes_at(const std::vector<Input>& inputs, const Place& place) {
  if (place.mutation == 0) return inputs[place.input].bytes;
  std::mt19937 random(static_cast<std::mt19937::result_type>(place.input * 1000 + place.mutation));
  return mutated(inputs[place.input].bytes, random);
}

/// Runs in the child and never returns; noexcept, so that GoogleTest does not catch unexpected exceptions there.
[[noreturn]] void read_all(const FuzzReader& reader, const std::vector<Input>& inputs, Place& place) noexcept {
  log::set_level(log::Level::error);
  ::alarm(seconds_for_a_reader());
  for (place.input = 0; place.input < inputs.size(); ++place.input)
    for (place.mutation = 0; place.mutation <= mutations; ++place.mutation) {
      const std::string bytes = bytes_at(inputs, place);
      const std::vector<std::uint8_t> exact(bytes.begin(),
                                            bytes.end());  // no trailing NUL, so that a read past the end is detected
      reader.read(exact.data(), exact.size());
    }
  std::exit(0);  // removes the readers' temporary files and checks for leaks
}

std::string end_of(int status) {
  if (WIFEXITED(status)) return concat("exit status ", WEXITSTATUS(status));
  if (WTERMSIG(status) == SIGALRM) return concat("no end within ", seconds_for_a_reader(), " s");
  return concat("signal ", WTERMSIG(status));
}

class Replay : public ::testing::TestWithParam<FuzzReader> {};

TEST_P(Replay, TakesTheCorpusAndItsMutations) {
  const FuzzReader& reader = GetParam();
  const std::vector<Input> inputs = corpus(reader.name);
  ASSERT_FALSE(inputs.empty()) << "tests/fuzz/corpus/" << reader.name
                               << " has no inputs: run tests/fuzz/small_corpus.py";
  void* page = ::mmap(nullptr, sizeof(Place), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  Place& place = *new (page) Place;
  std::fflush(nullptr);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) read_all(reader, inputs, place);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  const Place last = place;
  ::munmap(page, sizeof(Place));
  if (status == 0) return;
  if (last.input == inputs.size()) {
    ADD_FAILURE() << reader.name << ": " << end_of(status) << " after the last input (a leak?)";
    return;
  }
  const std::string kept =
      (std::filesystem::temp_directory_path() / concat("tessera-fuzz-", reader.name, "-", ::getpid())).string();
  std::ofstream(kept, std::ios::binary) << bytes_at(inputs, last);
  ADD_FAILURE() << reader.name << ": " << end_of(status) << " at tests/fuzz/corpus/" << reader.name << "/"
                << inputs[last.input].file << ", mutation " << last.mutation << "; the bytes are in " << kept;
}

INSTANTIATE_TEST_SUITE_P(Readers, Replay, ::testing::ValuesIn(fuzz_readers().begin(), fuzz_readers().end()),
                         [](const auto& reader) { return std::string(reader.param.name); });

}  // namespace
}  // namespace tessera::testing
