// No change in a checkpoint's folder goes unnoticed: the error names the file (and the tensors stored in the changed
// bytes), and the previous checkpoint is loaded. 300 changes; 10,000 with TESSERA_FULL=1.
#include <tests/checkpoint/examiners.h>
#include <tests/sharding/job.h>
#include <tests/sharding/saved_state.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <random>

#include <tessera/base/file.h>
#include <tessera/format/manifest/verify.h>

namespace tessera::testing {
namespace {

namespace fs = std::filesystem;

// Three ranks: files of a few hundred kilobytes, and one larger than a chunk of the manifest.
const Widths widths{300, 500, 2200, 120};

/// A byte range of a file that was changed; the whole file if the change is not limited to a range.
struct Change {
  std::string file;                     ///< file that the error must name, or
  std::vector<std::string> or_files{};  ///< any one of these
  std::uint64_t begin = 0, end = 0;     ///< end 0: no byte range
};

class CheckpointCorruption : public ::testing::Test {
 protected:
  void SetUp() override {
    run_ranks(
        3,
        [&](comm::World& world) {
          SavingRank rank(world, widths, out());
          for (const std::int64_t step : {1, 2}) EXPECT_EQ(rank.save(step, 0).error, "");
        },
        120);
    fs::copy(newest_, kept_, fs::copy_options::recursive);
    for (const std::string& name : list_folder(newest_)) {
      files_.push_back(name);
      if (name.ends_with(".safetensors")) shards_.push_back(name);
      if (name.ends_with(".json")) texts_.push_back(name);
    }
    std::printf("TESSERA_SEED=%u; files:", seed_);
    for (const std::string& name : files_) std::printf(" %s", name.c_str());
    std::printf("\n");
    ASSERT_GE(shards_.size(), 4u) << "expected several files of weights and of states";
    ASSERT_EQ(newest_checkpoint(out()), newest_);
  }

  const std::string& out() const { return folder_.path(); }
  std::string at(const std::string& name) const { return path_join(newest_, name); }
  std::uint64_t below(std::uint64_t n) { return std::uniform_int_distribution<std::uint64_t>(0, n - 1)(chance_); }
  const std::string& one_of(const std::vector<std::string>& names) { return names[below(names.size())]; }

  void write_at(const std::string& name, std::uint64_t offset, const std::string& bytes) {
    const int fd = ::open(at(name).c_str(), O_WRONLY | O_CLOEXEC);
    ASSERT_GE(fd, 0) << name;
    ASSERT_EQ(::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset)), static_cast<ssize_t>(bytes.size()));
    ::close(fd);
  }
  std::string read_at(const std::string& name, std::uint64_t offset, std::uint64_t count) {
    std::string bytes(count, 0);
    const int fd = ::open(at(name).c_str(), O_RDONLY | O_CLOEXEC);
    EXPECT_EQ(::pread(fd, bytes.data(), count, static_cast<off_t>(offset)), static_cast<ssize_t>(count)) << name;
    ::close(fd);
    return bytes;
  }
  std::uint64_t size_of(const std::string& name) { return fs::file_size(at(name)); }

  // ---- the changes; nullopt: nothing would change, so a different change is drawn ----
  using Maybe = std::optional<Change>;
  Maybe flip_a_bit() {
    const std::string& name = one_of(files_);
    const std::uint64_t offset = below(size_of(name));
    std::string byte = read_at(name, offset, 1);
    byte[0] = static_cast<char>(byte[0] ^ (1 << below(8)));
    write_at(name, offset, byte);
    return Change{name, {}, offset, offset + 1};
  }
  Maybe cut_short() {
    const std::string& name = one_of(files_);
    fs::resize_file(at(name), below(size_of(name)));
    return Change{name};
  }
  Maybe append() {
    const std::string& name = one_of(files_);
    std::string bytes = read_at(name, 0, size_of(name));
    std::string more(1 + below(4096), '\0');
    for (char& c : more) c = static_cast<char>(below(256));
    if (name.ends_with(".json") && below(2) == 0) more = "\n";  // as an editor does
    write_at(name, bytes.size(), more);
    return Change{name};
  }
  Maybe zero_a_mebibyte() {
    const std::string& name = one_of(files_);
    const std::uint64_t size = size_of(name), length = std::min<std::uint64_t>(size, 1 << 20),
                        offset = below(size - length + 1);
    const std::string zeros(length, '\0');
    if (read_at(name, offset, length) == zeros) return std::nullopt;
    write_at(name, offset, zeros);
    return Change{name, {}, offset, offset + length};
  }
  Maybe swap_shards() {
    const std::string &a = one_of(shards_), &b = one_of(shards_);
    if (a == b) return std::nullopt;
    fs::rename(at(a), at("aside"));
    fs::rename(at(b), at(a));
    fs::rename(at("aside"), at(b));
    return Change{"", {a, b}};
  }
  Maybe file_of_another_step() {
    const std::string& name = one_of(files_);
    const std::string other = path_join(older_, name);
    if (read_file(other) == read_file(at(name))) return std::nullopt;  // config.json
    fs::remove(at(name));
    fs::copy_file(other, at(name));
    // With the manifest of a different step, the other files do not match it.
    return name == format::kManifestName ? Change{"", files_} : Change{name};
  }
  /// Changes a digit or a word, or removes a line or indentation, in a JSON file, which usually remains valid JSON.
  Maybe edit_json() {
    const std::string& name = one_of(texts_);
    const std::string text = read_file(at(name));
    std::string edited = text;
    switch (below(4)) {
      case 0: {  // a number
        const auto digit = text.find_first_of("0123456789", below(text.size()));
        if (digit == std::string::npos) return std::nullopt;
        edited[digit] = static_cast<char>('1' + below(9));
        break;
      }
      case 1: {  // another rank's file
        const auto rank = text.find("-0000", below(text.size()));
        if (rank == std::string::npos || rank + 5 >= text.size()) return std::nullopt;
        edited[rank + 5] = static_cast<char>('1' + below(3));
        break;
      }
      case 2: {  // a whole line
        const auto begin = text.find('\n', below(text.size()));
        const auto end = begin == std::string::npos ? begin : text.find('\n', begin + 1);
        if (end == std::string::npos) return std::nullopt;
        edited.erase(begin, end - begin);
        break;
      }
      default: {  // two spaces fewer, as a formatter does
        const auto spaces = text.find("  ", below(text.size()));
        if (spaces == std::string::npos) return std::nullopt;
        edited.erase(spaces, 2);
      }
    }
    if (edited == text) return std::nullopt;
    write_file_atomically(at(name), edited);
    return Change{name};
  }
  Maybe make_a_link() {
    const std::string& name = one_of(files_);
    fs::rename(at(name), path_join(out(), "elsewhere"));
    fs::create_symlink(path_join(out(), "elsewhere"), at(name));
    return Change{name};
  }
  Maybe remove() {
    const std::string& name = one_of(files_);
    fs::remove(at(name));
    return Change{name};
  }
  Maybe something_else_of_that_name() {
    const std::string& name = one_of(files_);
    fs::remove(at(name));
    if (below(2) == 0)
      make_folders(at(name));
    else
      EXPECT_EQ(::mkfifo(at(name).c_str(), 0600), 0);
    return Change{name};
  }
  /// Adds a file that readers would prefer to the listed ones.
  Maybe add_a_file() {
    static const std::vector<std::string> preferred{"model.safetensors", "optimizer.safetensors",
                                                    "adapter_config.json"};
    const std::string& name = one_of(preferred);
    if (path_exists(at(name))) return std::nullopt;
    fs::copy_file(at(name.ends_with(".json") ? std::string(checkpoint::kConfigFile) : one_of(shards_)), at(name));
    return Change{name};
  }

  struct Kind {
    const char* name;
    Maybe (CheckpointCorruption::*change)();
  };
  static constexpr std::array kinds{
      Kind{"a flipped bit", &CheckpointCorruption::flip_a_bit},
      Kind{"cut short", &CheckpointCorruption::cut_short},
      Kind{"bytes appended", &CheckpointCorruption::append},
      Kind{"a zeroed MiB", &CheckpointCorruption::zero_a_mebibyte},
      Kind{"two shards swapped", &CheckpointCorruption::swap_shards},
      Kind{"a file of another step", &CheckpointCorruption::file_of_another_step},
      Kind{"edited JSON", &CheckpointCorruption::edit_json},
      Kind{"a symbolic link", &CheckpointCorruption::make_a_link},
      Kind{"a removed file", &CheckpointCorruption::remove},
      Kind{"a folder or a pipe", &CheckpointCorruption::something_else_of_that_name},
      Kind{"a file too many", &CheckpointCorruption::add_a_file},
  };

  /// Restores the saved state.
  void restore(const Change& change) {
    for (const std::string& name : list_folder(out())) {
      const std::string path = path_join(out(), name);
      if (path == older_ || path == newest_ || path == kept_) continue;
      if (name.starts_with("checkpoint-2") && !path_exists(newest_))
        fs::rename(path, newest_);  // it was renamed
      else
        remove_tree(path);
    }
    for (const std::string& name : list_folder(newest_))
      if (std::find(files_.begin(), files_.end(), name) == files_.end()) remove_tree(at(name));
    std::vector<std::string> changed = change.or_files;
    if (!change.file.empty()) changed.push_back(change.file);
    for (const std::string& name : changed) {
      if (std::find(files_.begin(), files_.end(), name) == files_.end()) continue;  // the extra file
      const std::string good = path_join(kept_, name);
      if (fs::symlink_status(at(name)).type() == fs::file_type::regular && read_file(at(name)) == read_file(good))
        continue;
      remove_tree(at(name));
      fs::copy_file(good, at(name));
    }
  }

  /// Tensors of the saved file that have bytes in [begin, end).
  std::vector<std::string> tensors_at(const std::string& name, std::uint64_t begin, std::uint64_t end) const {
    const format::SafetensorsFile file(path_join(kept_, name));
    std::vector<std::string> names;
    for (const auto& tensor : file.tensors())
      if (file.data_begin() + tensor.begin < end && begin < file.data_begin() + tensor.end)
        names.push_back(tensor.name);
    return names;
  }

  /// Returns the errors of two ranks that resume from the folder: those about its small files, or those found while
  /// loading.
  std::vector<std::string> resume() const {
    return checkpoint::on_ranks(2, [&](const checkpoint::Ranks& here) {
      const auto small_files = checkpoint::examine(newest_, here, checkpoint::Depth::small_files);
      if (small_files.kind != checkpoint::Finding::Kind::whole) return small_files.text;
      checkpoint::Examination examination(newest_, here);
      try {
        checkpoint::load_part(newest_, here, examination.sums());
      } catch (const Error&) {  // an invalid header or a truncated file: only the verdict counts
      }
      return examination.finish().text;
    });
  }

  /// Describes what is wrong with the program's response to this change; "": nothing.
  std::string judge(const Change& change) {
    std::vector<std::string> files = change.or_files;
    if (!change.file.empty()) files.push_back(change.file);
    const auto names_it = [&](const std::string& text) {
      return std::any_of(files.begin(), files.end(),
                         [&](const std::string& name) { return text.find(name) != std::string::npos; });
    };
    const format::Verdict verdict = format::verify_folder(newest_);
    if (verdict.whole()) return "it is taken for whole";
    if (!names_it(verdict.text())) return concat("the verdict does not name the file: ", verdict.text());
    if (change.end > 0 && change.file.ends_with(".safetensors")) {
      std::vector<std::string> named;
      for (const auto& damage : verdict.damages)
        if (damage.file == change.file) {
          if (damage.begin > change.begin || damage.end < change.end)
            return concat("the damaged bytes are not in what is named: ", verdict.text());
          named.insert(named.end(), damage.tensors.begin(), damage.tensors.end());
        }
      // The header stores the tensors' positions, so none of them can be trusted: the error then names the header.
      const bool in_header = change.begin < format::SafetensorsFile(path_join(kept_, change.file)).data_begin();
      for (const std::string& tensor : tensors_at(change.file, change.begin, change.end))
        if (!in_header && std::find(named.begin(), named.end(), tensor) == named.end())
          return concat(tensor, " is not named: ", verdict.text());
    }
    for (const std::string& text : resume())
      if (!names_it(text)) return concat("two ranks that load it: ", text);
    ::testing::internal::CaptureStderr();
    const auto chosen = newest_checkpoint(out());
    const std::string said = ::testing::internal::GetCapturedStderr();
    if (chosen != older_) return concat("chosen was ", chosen.value_or("none"), "; ", said);
    if (said.find("warning") == std::string::npos || !names_it(said))
      return concat("no warning names the file: ", said);
    return "";
  }

  TemporaryFolder folder_;
  const std::string older_ = path_join(folder_.path(), "checkpoint-1"),
                    newest_ = path_join(folder_.path(), "checkpoint-2"), kept_ = path_join(folder_.path(), "kept");
  std::vector<std::string> files_, shards_, texts_;
  const unsigned seed_ = test_seed();
  std::mt19937_64 chance_{seed_};
};

TEST_F(CheckpointCorruption, EveryChangeIsFoundAndTheCheckpointBeforeIsTaken) {
  const int trials = full_product() ? 10'000 : 300;
  std::map<std::string, int> counts;
  int failures = 0;
  for (int trial = 0; trial < trials && failures < 10; ++trial) {
    const Kind& kind = kinds[static_cast<std::size_t>(trial) % kinds.size()];
    Maybe change;
    while (!(change = (this->*kind.change)())) {
    }
    const std::string wrong = judge(*change);
    if (!wrong.empty()) {
      ++failures;
      ADD_FAILURE() << "trial " << trial << ", " << kind.name << ", " << change->file << " [" << change->begin << ", "
                    << change->end << "): " << wrong;
    } else {
      ++counts[kind.name];
    }
    restore(*change);
  }
  ASSERT_EQ(newest_checkpoint(out()), newest_) << "the restored checkpoint is complete";
  EXPECT_EQ(resume(), (std::vector<std::string>{"", ""}));
  int found = 0;
  for (const auto& [name, count] : counts) {
    std::printf("  %5d %s\n", count, name.c_str());
    found += count;
  }
  std::printf("%d of %d found and named\n", found, trials);
}

}  // namespace
}  // namespace tessera::testing
