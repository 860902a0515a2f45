// The cache of tokens: a hit equals the tokens that would be computed, whichever process wrote it and whichever process
// died.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/corpus/cache/build.h>
#include <tessera/corpus/cache/cache.h>
#include <tessera/corpus/cache/entry.h>
#include <tessera/corpus/cache/manage.h>
#include <tessera/corpus/sources.h>
#include <tests/error_of.h>
#include <tests/own_folder.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <thread>

namespace tessera::corpus {
namespace {

using testing::error_of;

/// One token per byte.
void encode_bytes(std::string_view text, EncodedRecord& out) {
  out.ids.insert(out.ids.end(), reinterpret_cast<const unsigned char*>(text.data()),
                 reinterpret_cast<const unsigned char*>(text.data() + text.size()));
  out.text_bytes += text.size();
  out.text_tokens += text.size();
  out.kind = "text";
}

class Cache : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return path_join(folder_.path(), name); }
  std::string root() const { return path("tokens"); }
  std::string write(const std::string& name, const std::string& text) const {
    write_file_atomically(path(name), text);
    // An old time stamp, so that the file's state is trusted.
    const struct timespec times[2] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
    ::utimensat(AT_FDCWD, path(name).c_str(), times, 0);
    return path(name);
  }
  /// A request that counts its encode calls.
  TokenRequest request(const std::vector<std::string>& files, bool examples = false) {
    TokenRequest request;
    for (const std::string& file : files) request.sources.push_back(source_file(file));
    request.examples = examples;
    request.width = 2;
    request.settings = "bytes";
    request.encode = [this](const Value& record, EncodedRecord& out) {
      ++encoded_;
      const std::string& text = record.at("text").as_string();
      if (text.find("bad") != std::string::npos) throw InputError(record.where().str() + ": bad");
      encode_bytes(text, out);
      for (const char c : text) out.scored.push_back(c >= 'A' && c <= 'Z');
    };
    request.encode_line = [this](std::string_view line, EncodedRecord& out) {
      ++encoded_;
      encode_bytes(line, out);
    };
    return request;
  }
  static std::string text_of(const TokenStore& store) {
    std::vector<std::int64_t> ids;
    store.read(0, store.tokens(), ids);
    return {ids.begin(), ids.end()};
  }
  /// Lines that fill several work items.
  static std::string long_text(std::size_t bytes, const std::string& word = "line") {
    std::string text;
    text.reserve(bytes + 100);
    for (std::size_t i = 0; text.size() < bytes; ++i)
      text.append(word).append(" ").append(std::to_string(i)).append(i % 7 == 0 ? "\n\n" : "\n");
    return text;
  }

  TemporaryFolder folder_;
  std::atomic<int> encoded_ = 0;
};

TEST_F(Cache, IsMadeOnceAndFoundAgain) {
  const std::string text = long_text(3 << 20);
  const auto asked = request({write("a.txt", text)});
  const CachedTokens made = cached_tokens(root(), asked);
  EXPECT_FALSE(made.found);
  EXPECT_EQ(text_of(*made.store), text);
  EXPECT_EQ(made.tally.tokens, static_cast<std::int64_t>(text.size()));
  EXPECT_EQ(made.tally.largest_id, 'n');
  const int before = encoded_;
  const CachedTokens found = cached_tokens(root(), asked);
  EXPECT_TRUE(found.found);
  EXPECT_EQ(encoded_, before);
  EXPECT_EQ(text_of(*found.store), text);
  EXPECT_EQ(text_of(*private_tokens(asked).store), text);
  EXPECT_EQ(verify_entry(root(), std::filesystem::path(found.entry).filename()), "");
}

TEST_F(Cache, TokensOfOneProcessLeaveNoFiles) {
  const std::string text = long_text(3 << 20);
  const auto asked = request({write("a.txt", text)});
  std::filesystem::create_directory(path("tmp"));
  const char* given = std::getenv("TMPDIR");
  const std::optional<std::string> before = given ? std::optional<std::string>(given) : std::nullopt;
  ::setenv("TMPDIR", path("tmp").c_str(), 1);
  const CachedTokens tokens = private_tokens(asked);
  before ? ::setenv("TMPDIR", before->c_str(), 1) : ::unsetenv("TMPDIR");
  EXPECT_TRUE(std::filesystem::is_empty(path("tmp"))) << "a process killed at this point would leave files behind";
  EXPECT_EQ(text_of(*tokens.store), text);
}

TEST_F(Cache, SeveralFilesAreOneStreamWithKnownBorders) {
  const auto made = cached_tokens(
      root(), request({write("a.txt", "one\n"), write("b.txt", ""), write("c.txt", "3"), write("d.txt", "four")}));
  EXPECT_EQ(text_of(*made.store), "one\n3four");
  EXPECT_EQ(made.store->starts_in(0, 9), (std::vector<std::int64_t>{0, 4, 5}));
  EXPECT_EQ(made.store->starts_in(2, 3), (std::vector<std::int64_t>{2}));
  EXPECT_EQ(made.tally.records, 4);
}

TEST_F(Cache, ExamplesKeepLengthsAndMarks) {
  const auto made = cached_tokens(
      root(), request({write("a.jsonl", "{\"text\": \"aBC\"}\n{\"text\": \"none\"}\n{\"text\": \"xY\"}\n")}, true));
  EXPECT_EQ(made.tally.records, 2);
  EXPECT_EQ(made.tally.dropped, 1);
  EXPECT_EQ(made.tally.scored, 3);
  EXPECT_EQ(made.tally.longest, 3);
  ASSERT_EQ(made.store->records(), 2);
  EXPECT_EQ(made.store->length(1), 2);
  std::vector<std::int64_t> ids;
  std::vector<bool> scored;
  made.store->read_record(0, ids, scored);
  EXPECT_EQ(ids, (std::vector<std::int64_t>{'a', 'B', 'C'}));
  EXPECT_EQ(scored, (std::vector<bool>{false, true, true}));
}

TEST_F(Cache, ContentsCountAndNotNamesOrTimes) {
  const std::string text = long_text(1 << 20);
  const std::string a = write("a.txt", text);
  cached_tokens(root(), request({a}));
  EXPECT_TRUE(cached_tokens(root(), request({write("moved.txt", text)})).found);
  write("a.txt", text);  // another inode and other times
  EXPECT_TRUE(cached_tokens(root(), request({a})).found);
  auto other = request({a});
  other.settings = "other";
  EXPECT_FALSE(cached_tokens(root(), other).found);
  auto wide = request({a});
  wide.width = 4;
  EXPECT_FALSE(cached_tokens(root(), wide).found);
}

// Every start after the one that wrote seen.json reads it.
TEST_F(Cache, ATouchedTextIsFoundAtEveryLaterStart) {
  const std::string text = long_text(1 << 20);
  const std::string a = write("a.txt", text);
  const std::string entry = cached_tokens(root(), request({a})).entry;
  const std::string moved = write(concat("a text whose name is no short string ", std::string(64, 'x'), ".txt"), text);
  std::this_thread::sleep_for(std::chrono::milliseconds(2100));  // only a state this old is recorded
  for (int start = 0; start < 3; ++start) {
    EXPECT_TRUE(cached_tokens(root(), request({moved})).found) << start;
    const std::vector<SeenSource> seen = read_seen(entry);
    ASSERT_EQ(seen.size(), 1U) << start;
    EXPECT_EQ(seen[0].source, 0U);
    EXPECT_EQ(seen[0].path, absolute_path(moved));
    EXPECT_EQ(seen[0].state, state_of(moved));
  }
}

TEST_F(Cache, AChangeThatAGlanceDoesNotSeeIsSeen) {
  std::string text = long_text(2 << 20);
  const std::string a = write("a.txt", text);
  cached_tokens(root(), request({a}));
  const std::size_t quarter = text.size() / 4;  // neither start, middle nor end
  text[quarter] = text[quarter] == 'x' ? 'y' : 'x';
  write("a.txt", text);
  const auto changed = cached_tokens(root(), request({a}));
  EXPECT_FALSE(changed.found);
  EXPECT_EQ(text_of(*changed.store), text);
  EXPECT_TRUE(cached_tokens(root(), request({a})).found);
  EXPECT_EQ(list_cache(root()).size(), 2U);
}

TEST_F(Cache, ManyAtOnceShareTheWork) {
  const std::string text = long_text(6 << 20);
  const auto asked = request({write("a.txt", text)});
  const auto lines = std::count(text.begin(), text.end(), '\n');
  {
    std::vector<std::jthread> jobs;
    for (int i = 0; i < 4; ++i)
      jobs.emplace_back([&] { EXPECT_EQ(text_of(*cached_tokens(root(), asked).store), text); });
  }
  EXPECT_EQ(encoded_, lines);  // none twice
}

// A process that waits for another's last item finds the folder published and must not encode the item again.
TEST_F(Cache, WhoWaitsWhileAnotherPublishesFindsIt) {
  const std::string text = long_text(1 << 20);
  const auto asked = request({write("a.txt", text)});
  for (int round = 0; round < 12; ++round) {
    const std::string root = path(concat("round ", round));
    std::vector<std::jthread> jobs;
    for (int i = 0; i < 4; ++i)
      jobs.emplace_back([&] {
        try {
          EXPECT_EQ(cached_tokens(root, asked).tally.tokens, std::ssize(text)) << round;
        } catch (const Error& error) {
          ADD_FAILURE() << error.what();
        }
      });
    jobs.clear();
    const std::vector<std::string> entries = list_folder(root);
    ASSERT_EQ(entries.size(), 1u);
    EXPECT_EQ(verify_entry(root, entries[0]), "");
    for (const std::string& file : list_folder(path_join(root, entries[0]))) EXPECT_FALSE(file.ends_with(".done"));
    remove_tree(root);
  }
}

TEST_F(Cache, AKilledWorkersItemsAreTakenOver) {
  const std::string text = long_text(2 << 20);
  const auto asked = request({write("a.txt", text)});
  for (int attempt = 0; attempt < 12; ++attempt) {
    const pid_t child = ::fork();
    if (child == 0) {
      cached_tokens(root(), asked);
      ::_exit(0);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5 + 7 * attempt));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    if (attempt % 4 != 3) continue;
    EXPECT_EQ(text_of(*cached_tokens(root(), asked).store), text);
    std::filesystem::remove_all(root());
  }
}

TEST_F(Cache, RecordsThatCannotBeUsedLeaveNothing) {
  const auto complaints = [&](const std::string& text) {
    const std::string file = write("a.jsonl", text);
    return error_of([&] { cached_tokens(root(), request({file}, true)); });
  };
  EXPECT_EQ(complaints("{\"text\": \"A bad\"}\n"), path("a.jsonl") + ":1:1: bad");
  const std::string two = complaints("{\"text\": \"A bad\"}\n{\"text\": \"good\"}\n[]\n");
  EXPECT_NE(two.find("2 unusable records"), std::string::npos) << two;
  EXPECT_NE(two.find("a.jsonl:3:1"), std::string::npos) << two;
  std::string many;
  for (int i = 0; i < 50; ++i) many += "{\"text\": \"bad\"}\n";
  EXPECT_NE(complaints(many).find("the first 20 unusable records"), std::string::npos);
  EXPECT_TRUE(list_folder(root()).empty());
  const std::string csv = write("a.csv", "text\n\"unclosed\n");
  const std::string once = error_of([&] { cached_tokens(root(), request({csv}, true)); });
  EXPECT_EQ(once.find("unusable records"), std::string::npos) << "a reader that stops is reported once: " << once;
}

TEST_F(Cache, ASourceThatChangesMeanwhileIsRefused) {
  const std::string file = write("a.txt", long_text(3 << 20));
  auto asked = request({file});
  const auto encode = asked.encode_line;
  asked.encode_line = [&](std::string_view line, EncodedRecord& out) {
    if (encoded_ == 1000) write_file_atomically(file, long_text(3 << 20, "lime"));
    encode(line, out);
  };
  EXPECT_NE(error_of<Error>([&] { cached_tokens(root(), asked); }).find("was changed while it was being tokenized"),
            std::string::npos);
  EXPECT_TRUE(list_folder(root()).empty());
}

TEST_F(Cache, AFullDiskIsSaidWithSizes) {
  const auto asked = request({write("a.txt", long_text(3 << 20))});
  const pid_t child = ::fork();  // the limit and the ignored signal affect the child only
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const struct rlimit limit{200'000, 200'000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const std::string what = error_of<Error>([&] { cached_tokens(root(), asked); });
    const bool good =
        what.find("File too large") != std::string::npos && what.find(" free, and the tokens of ") != std::string::npos;
    ::_exit(good && list_folder(root()).empty() ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(cached_tokens(root(), asked).found);
}

TEST_F(Cache, ADamagedEntryIsMadeAgain) {
  const std::string text = long_text(1 << 20);
  const auto asked = request({write("a.txt", text)});
  const std::string entry = cached_tokens(root(), asked).entry;
  const std::string shard = path_join(entry, "000000-0.tokens");
  std::filesystem::resize_file(shard, std::filesystem::file_size(shard) - 1);
  const auto again = cached_tokens(root(), asked);
  EXPECT_FALSE(again.found);
  EXPECT_EQ(text_of(*again.store), text);
  const int fd = ::open(path_join(again.entry, "000000-0.tokens").c_str(), O_WRONLY);
  ASSERT_EQ(::pwrite(fd, "x", 1, 100), 1);
  ::close(fd);
  EXPECT_NE(verify_entry(root(), std::filesystem::path(entry).filename()).find("000000-0.tokens: bytes 0 to"),
            std::string::npos);
}

TEST_F(Cache, WhatIsInUseIsNotRemoved) {
  const auto asked = request({write("a.txt", "some text\n")});
  auto held = cached_tokens(root(), asked);
  const std::string name = std::filesystem::path(held.entry).filename();
  ASSERT_EQ(list_cache(root()).size(), 1U);
  EXPECT_TRUE(list_cache(root())[0].in_use);
  EXPECT_EQ(list_cache(root())[0].sources, std::vector<std::string>{path("a.txt")});
  EXPECT_FALSE(remove_entry(root(), name));
  held.store.reset();
  EXPECT_FALSE(list_cache(root())[0].in_use);
  EXPECT_TRUE(remove_entry(root(), name));
  EXPECT_TRUE(list_folder(root()).empty());
  EXPECT_NE(error_of([&] { remove_entry(root(), "../x"); }), "");
  EXPECT_NE(error_of([&] { remove_entry(root(), name); }), "");
}

TEST(CacheLimits, TheOldestGoFirst) {
  const auto entry = [](const char* name, std::uint64_t bytes, std::int64_t used, bool in_use = false) {
    CacheEntry entry;
    entry.name = name;
    entry.bytes = bytes;
    entry.used_ns = used;
    entry.in_use = in_use;
    return entry;
  };
  const std::vector<CacheEntry> entries = {entry("a", 10, 100), entry("b", 10, 90), entry("c", 10, 80, true),
                                           entry("d", 10, 70)};
  using Names = std::vector<std::string>;
  EXPECT_EQ(to_remove(entries, {}, 20, 100), (Names{"d"}));  // c is in use
  EXPECT_EQ(to_remove(entries, {}, 10, 100), (Names{"b", "d"}));
  EXPECT_EQ(to_remove(entries, 5, {}, 100), (Names{"b", "d"}));
  EXPECT_EQ(to_remove(entries, {}, {}, 100), Names{});
  EXPECT_EQ(parse_age("1.5h"), std::int64_t{5'400'000'000'000});
  EXPECT_EQ(parse_age("5"), std::nullopt);
  EXPECT_EQ(parse_size("2K"), 2048U);
  EXPECT_EQ(parse_size("100"), 100U);
  EXPECT_EQ(parse_size("-1"), std::nullopt);
}

}  // namespace
}  // namespace tessera::corpus
