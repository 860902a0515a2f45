// One process that needs the tokens of text files, like a rank of a run: it finds them in a cache or computes
// them, and prints the result. tests/faults/cache.py starts, kills and compares such processes; bench/tokens.py times
// them.
//
//   cache_worker ROOT TOKENIZER THREADS FILE...      prints: TOKENS HASH found|made SECONDS PEAK_KIB
//
// Records of .jsonl are examples, with only their field "text". If CACHE_WORKER_COMPARE is set, it also reads lines
// [NUMBER, [ID, ...]] from standard input and reports the number of records with these ids.

#include <tessera/base/error.h>
#include <tessera/base/value.h>
#include <tessera/corpus/cache/cache.h>
#include <tessera/corpus/cache/content_hash.h>
#include <tessera/corpus/sources.h>
#include <tessera/text/tokenizer.h>

#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

using namespace tessera;  // NOLINT: a program of one file

namespace {

/// A hash over all ids in order, computed in pieces to bound the memory.
std::string hash_of_tokens(const corpus::TokenStore& store) {
  std::vector<std::int64_t> ids;
  std::string hashes;
  constexpr std::int64_t at_once = 1 << 16;
  for (std::int64_t begin = 0; begin < store.tokens(); begin += at_once) {
    ids.clear();
    store.read(begin, std::min(at_once, store.tokens() - begin), ids);
    hashes = corpus::hash_of(hashes + corpus::hash_of(std::as_bytes(std::span(ids))).hex()).hex();
  }
  return hashes;
}

/// Counts records with equal ids. Records need two or more tokens: examples of one token have nothing to score and are
/// skipped.
void compare(const corpus::TokenStore& store) {
  std::int64_t equal = 0, all = 0;
  for (std::string line; std::getline(std::cin, line); ++all) {
    const Value pair = parse_json(line, "standard input");
    std::vector<std::int64_t> ids, theirs;
    std::vector<bool> scored;
    store.read_record(pair.items().at(0).as_int(), ids, scored);
    for (const Value& id : pair.items().at(1).items()) theirs.push_back(id.as_int());
    equal += ids == theirs;
  }
  std::printf("%lld of %lld records have equal ids\n", static_cast<long long>(equal), static_cast<long long>(all));
}

int work(int argc, char** argv) {
  const auto tokenizer = text::load_tokenizer(argv[2]);
  corpus::TokenRequest request;
  for (int i = 4; i < argc; ++i) request.sources.push_back(corpus::source_file(argv[i]));
  request.width = tokenizer->vocab_size() <= 65536 ? 2 : 4;
  request.settings = std::string("cache_worker ") + argv[2];
  request.threads = std::atoi(argv[3]);
  request.encode_line = [&](std::string_view line, corpus::EncodedRecord& out) {
    out.ids = tokenizer->encode(line);
    out.text_bytes = line.size();
    out.text_tokens = out.ids.size();
    out.ill_formed = !is_utf8(line);
  };
  request.examples = request.sources.front().kind != corpus::FileKind::text;
  request.columns = {"text"};
  request.encode = [&](const Value& record, corpus::EncodedRecord& out) {
    request.encode_line(record.at("text").as_string(), out);
    out.scored.assign(out.ids.size(), true);
    out.kind = "text";
  };
  const auto begin = std::chrono::steady_clock::now();
  const auto tokens = corpus::cached_tokens(argv[1], request);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  struct rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  std::printf("%lld %s %s %.3f %ld\n", static_cast<long long>(tokens.store->tokens()),
              hash_of_tokens(*tokens.store).c_str(), tokens.found ? "found" : "made", seconds, usage.ru_maxrss);
  if (std::getenv("CACHE_WORKER_COMPARE") != nullptr) compare(*tokens.store);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fputs("usage: cache_worker ROOT TOKENIZER THREADS FILE...\n", stderr);
    return 2;
  }
  try {
    return work(argc, argv);
  } catch (const Error& error) {
    std::fprintf(stderr, "cache_worker: %s\n", error.what());
    return static_cast<int>(error.exit_code());
  }
}
