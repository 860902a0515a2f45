/// \file
/// tessera checkpoint push, fetch, ls, and verify of s3://: checkpoints in object stores.

#include <tessera/base/clock.h>
#include <tessera/base/error.h>
#include <tessera/base/object_url.h>
#include <tessera/base/value.h>
#include <tessera/config/resolve/command_flags.h>
#include <tessera/storage/fetch.h>
#include <tools/tessera/checkpoint_tools.h>
#include <tools/tessera/text_progress.h>

#include <algorithm>
#include <iostream>

namespace tessera::tool {
namespace {

constexpr const char* store_help =
    "The store is Amazon S3 or one with its API (MinIO, Ceph, ...): AWS_ENDPOINT_URL,\n"
    "AWS_REGION; credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (AWS_SESSION_TOKEN), or\n"
    "AWS_PROFILE of ~/.aws/credentials.\n";

constexpr const char* push_help =
    "tessera checkpoint push: copies a checkpoint to an object store\n\n"
    "usage: tessera checkpoint push DIR s3://BUCKET/PREFIX [--connections N]\n\n"
    "DIR becomes PREFIX. Objects with the right size and checksum are not sent again, so that\n"
    "the same command continues an interrupted push. manifest.json is sent last: until then\n"
    "there is no checkpoint. Every byte is compared with the manifest before it is sent, and the\n"
    "store's checksum after.\n\n"
    "  --connections N   parallel transfers; default 4\n\n";

constexpr const char* fetch_help =
    "tessera checkpoint fetch: copies a checkpoint from an object store\n\n"
    "usage: tessera checkpoint fetch s3://BUCKET/PREFIX DIR [--connections N]\n\n"
    "PREFIX: a checkpoint, or the parent of several checkpoint-N: the newest complete one. It\n"
    "becomes DIR, complete or not at all: it grows as DIR.fetching, and the same command continues\n"
    "from there. Every byte is compared with the manifest.\n\n"
    "  --connections N   parallel transfers; default 4\n\n";

constexpr const char* ls_help =
    "tessera checkpoint ls: checkpoints in an object store\n\n"
    "usage: tessera checkpoint ls s3://BUCKET/PREFIX [--json]\n\n"
    "One line per checkpoint-N below PREFIX: whole or unfinished (still uploading).\n\n"
    "  --json   one JSON object per line: url, step, whole, objects, bytes\n\n";

bool wants_help(const Arguments& arguments, const char* help) {
  if (std::find(arguments.begin(), arguments.end(), "--help") == arguments.end()) return false;
  std::cout << help << store_help;
  return true;
}

storage::TransferOptions transfer_options(const config::Flags& flags, TextProgress& progress, const std::string& what) {
  storage::TransferOptions options;
  const std::int64_t connections = flags.integer("connections", 4);
  if (connections < 1 || connections > 64)
    throw InputError(concat("--connections is ", connections, "; expected 1 to 64"));
  options.connections = static_cast<int>(connections);
  options.progress = [&progress, what](std::uint64_t done, std::uint64_t all) {
    progress.show(what, static_cast<std::int64_t>(done), static_cast<std::int64_t>(all), true);
  };
  return options;
}

Value number(std::uint64_t value) { return Value::of(static_cast<std::int64_t>(value)); }

std::string described(std::uint64_t bytes, std::uint64_t there, std::int64_t begin_ns) {
  return concat(format_bytes(bytes), there > 0 ? concat(", of which ", format_bytes(there), " existed already") : "",
                ", ", format_real(seconds_since(begin_ns), 3), " s");
}

}  // namespace

int checkpoint_push(const Arguments& arguments) {
  if (wants_help(arguments, push_help)) return 0;
  const auto [words, rest] = split_positional(arguments, {"connections"});
  const config::Flags flags("checkpoint push", rest, {"connections"}, {});
  if (words.size() != 2) throw InputError("tessera checkpoint push takes a folder and an s3:// URL");
  const ObjectUrl to = parse_object_url(words[1]);
  const storage::OpenCheckpoint checkpoint(words[0]);
  const storage::ObjectStore store(storage::read_access());
  TextProgress progress;
  const std::int64_t begin = monotonic_ns();
  const storage::PushReport report =
      storage::push_checkpoint(store, checkpoint, to, transfer_options(flags, progress, "pushing " + words[0]));
  std::cout << concat("pushed   ", to.text(), "  step ", checkpoint.step(), ", ",
                      described(report.bytes, report.bytes - report.sent, begin), "\n");
  return 0;
}

int checkpoint_fetch(const Arguments& arguments) {
  if (wants_help(arguments, fetch_help)) return 0;
  const auto [words, rest] = split_positional(arguments, {"connections"});
  const config::Flags flags("checkpoint fetch", rest, {"connections"}, {});
  if (words.size() != 2) throw InputError("tessera checkpoint fetch takes an s3:// URL and a folder");
  const ObjectUrl url = parse_object_url(words[0]);
  const storage::ObjectStore store(storage::read_access());
  TextProgress progress;
  const std::int64_t begin = monotonic_ns();
  const ObjectUrl from = storage::newest_at(store, url).url;
  const storage::FetchReport report =
      storage::fetch_checkpoint(store, from, words[1], transfer_options(flags, progress, "fetching " + from.text()));
  std::cout << concat("fetched  ", from.text(), " -> ", report.folder, "  step ", report.step, ", ",
                      described(report.bytes, report.bytes - report.fetched, begin), "\n");
  return 0;
}

int checkpoint_ls(const Arguments& arguments) {
  if (wants_help(arguments, ls_help)) return 0;
  const auto [words, rest] = split_positional(arguments, {});
  const config::Flags flags("checkpoint ls", rest, {}, {"json"});
  if (words.size() != 1) throw InputError("tessera checkpoint ls takes one s3:// URL");
  const storage::ObjectStore store(storage::read_access());
  const auto list = storage::checkpoints_at(store, parse_object_url(words[0]));
  for (const storage::StoredCheckpoint& checkpoint : list) {
    if (flags.has("json"))
      std::cout << dump_json(Value::make_object({{"url", Value::of(checkpoint.url.text())},
                                                 {"step", checkpoint.step ? Value::of(*checkpoint.step) : Value()},
                                                 {"whole", Value::of(checkpoint.whole)},
                                                 {"objects", number(checkpoint.objects)},
                                                 {"bytes", number(checkpoint.bytes)}}),
                             -1)
                << "\n";
    else
      std::cout << concat(checkpoint.whole ? "whole      " : "unfinished ", checkpoint.url.text(), "  ",
                          checkpoint.objects, " objects, ", format_bytes(checkpoint.bytes), "\n");
  }
  if (list.empty()) throw InputError(words[0] + ": no checkpoint found");
  return 0;
}

bool verify_objects(const std::string& url, bool json) {
  const storage::ObjectStore store(storage::read_access());
  TextProgress progress;
  bool whole = true;
  const auto list = storage::checkpoints_at(store, parse_object_url(url));
  if (std::none_of(list.begin(), list.end(), [](const storage::StoredCheckpoint& c) { return c.whole; }))
    throw InputError(concat(url, ": no complete checkpoint found",
                            list.empty() ? "" : concat(" (", list.size(), "with an unfinished upload)")));
  for (const storage::StoredCheckpoint& checkpoint : list) {
    if (!checkpoint.whole) continue;  // an unfinished upload is not a checkpoint
    storage::TransferOptions options;
    options.progress = [&](std::uint64_t done, std::uint64_t all) {
      progress.show("verifying " + checkpoint.url.text(), static_cast<std::int64_t>(done),
                    static_cast<std::int64_t>(all), true);
    };
    const storage::RemoteVerdict verdict = storage::verify_checkpoint(store, checkpoint.url, options);
    whole = whole && verdict.damages.empty();
    if (json) {
      Value damages = Value::make_array();
      for (const std::string& damage : verdict.damages)
        damages.push_back(Value::make_object({{"text", Value::of(damage)}}));
      std::cout << dump_json(Value::make_object({{"folder", Value::of(checkpoint.url.text())},
                                                 {"whole", Value::of(verdict.damages.empty())},
                                                 {"step", Value::of(verdict.manifest.step)},
                                                 {"files", number(verdict.manifest.files.size())},
                                                 {"bytes", number(checkpoint.bytes)},
                                                 {"damages", std::move(damages)}}),
                             -1)
                << "\n";
      continue;
    }
    std::cout << concat(verdict.damages.empty() ? "whole    " : "damaged  ", checkpoint.url.text(), "  step ",
                        verdict.manifest.step, ", ", verdict.manifest.files.size(), " files\n");
    for (const std::string& damage : verdict.damages) std::cout << "  " << damage << "\n";
  }
  return whole;
}

}  // namespace tessera::tool
