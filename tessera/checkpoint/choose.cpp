#include <tessera/checkpoint/choose.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <future>
#include <span>
#include <string_view>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/checkpoint/files.h>
#include <tessera/format/manifest/crc32c.h>
#include <tessera/format/manifest/verify.h>

namespace tessera::checkpoint {
namespace {

/// One rank's findings in a folder.
struct Sight {
  Finding::Kind kind = Finding::Kind::whole;
  std::uint32_t manifest = 0;      ///< checksum of its text, to detect that ranks see different folders
  std::vector<std::string> lines;  ///< reasons if it is not whole
};

std::vector<std::string> gather(const Ranks& ranks, const std::string& text) {
  return ranks.size == 1 ? std::vector<std::string>{text} : ranks.gather(text);
}

// Separator between parts of a text: a byte that occurs in no path or message.
constexpr char between = '\0';

std::string to_text(const Sight& sight) {
  std::string text = concat(static_cast<int>(sight.kind), between, sight.manifest);
  for (const std::string& line : sight.lines) text += concat(between, line);
  return text;
}

Sight sight_of(const std::string& text) {
  const std::vector<std::string> parts = split(text, between);
  const auto kind = parse_int(parts.at(0)), manifest = parse_int(parts.at(1));
  TESSERA_CHECK(kind && manifest, "cannot parse a rank's report about a checkpoint");
  return {static_cast<Finding::Kind>(*kind), static_cast<std::uint32_t>(*manifest), {parts.begin() + 2, parts.end()}};
}

bool is_small_file(const std::string& name) { return !name.ends_with(".safetensors"); }

/// Checks what can be checked without reading tensors. All ranks check the same few bytes.
Sight glance(const std::string& folder, const WhyNotResumable& why_not) {
  using Kind = Finding::Kind;
  if (!is_directory(folder)) return {Kind::unusable, 0, {"no such checkpoint folder"}};
  const std::string list = path_join(folder, format::kManifestName);
  if (!path_exists(list))
    return {Kind::unusable,
            0,
            {concat("not a complete checkpoint: it has no ", format::kManifestName, ", which is written last")}};
  if (!std::filesystem::is_regular_file(std::filesystem::symlink_status(list)))  // opening a pipe would block forever
    return {Kind::damaged, 0, {concat(format::kManifestName, " is not a regular file")}};
  const std::string listed = read_file(list);
  Sight sight{Kind::whole, format::crc32c(std::as_bytes(std::span(listed))), {}};
  try {
    const format::Manifest manifest = format::read_manifest(folder);
    if (const std::string why = why_not(manifest); !why.empty()) return {Kind::unusable, sight.manifest, {why}};
    format::verify_sizes(folder, manifest);
    for (const format::ManifestFile& file : manifest.files)
      if (is_small_file(file.name) &&
          format::digest_of_file(path_join(folder, file.name), file.digest.chunk_bytes) != file.digest)
        sight.lines.push_back(concat(file.name, " is damaged"));
    if (!sight.lines.empty()) sight.kind = Kind::damaged;
  } catch (const InputError& error) {
    sight.kind = Kind::damaged;
    sight.lines.push_back(error.what());
  }
  return sight;
}

/// Reads and checks this rank's share of the bytes that `known` does not cover. Its threads divide the share.
Sight read_share(const std::string& folder, const Ranks& ranks, const format::ReadSums* known,
                 const WhyNotResumable& why_not) {
  Sight sight = glance(folder, why_not);
  if (sight.kind == Finding::Kind::unusable) return sight;
  sight.lines.clear();  // reported again, in more detail, by the following code
  const int threads = std::max(1, ranks.threads);
  std::vector<std::future<format::Verdict>> parts;
  for (int i = 0; i < threads; ++i)
    parts.push_back(std::async(threads == 1 ? std::launch::deferred : std::launch::async, [&, threads, i] {
      return format::verify_folder(folder, {ranks.rank * threads + i, ranks.size * threads}, {}, known);
    }));
  for (auto& part : parts) {
    const format::Verdict verdict = part.get();
    for (const format::Damage& damage : verdict.damages) sight.lines.push_back(damage.text);
    if (!verdict.whole()) sight.kind = Finding::Kind::damaged;
  }
  return sight;
}

/// Calls `look`, and turns an error into a finding, because the other ranks wait for this rank's report.
template <typename Look>
Sight seen(const Look& look) {
  try {
    return look();
  } catch (const std::exception& error) {
    return {Finding::Kind::unusable, 0, {error.what()}};
  }
}

/// Joins at most three of the lines, without duplicates: all ranks report the results of the cheap checks.
std::string summary(const std::vector<std::string>& lines) {
  std::vector<std::string> different;
  for (const std::string& line : lines)
    if (std::find(different.begin(), different.end(), line) == different.end()) different.push_back(line);
  constexpr std::size_t shown = 3;
  if (different.size() <= shown) return join(different, "; ");
  const std::size_t more = different.size() - shown;
  different.resize(shown);
  return concat(join(different, "; "), " and ", more, " more");
}

/// The checkpoints of an output folder; empty if it cannot be listed.
std::vector<StepFolder> siblings(const std::string& output_dir) {
  try {
    return step_folders(output_dir);
  } catch (const InputError&) {
    return {};
  }
}

/// Returns rank 0's list on every rank.
std::vector<StepFolder> of_rank_0(const std::vector<StepFolder>& folders, const Ranks& ranks) {
  std::string mine;
  for (const StepFolder& folder : folders) mine += concat(folder.step, between, folder.path, between);
  const std::vector<std::string> parts = split(gather(ranks, mine)[0], between);
  std::vector<StepFolder> result;
  for (std::size_t i = 0; i + 1 < parts.size(); i += 2) {
    const auto step = parse_int(parts[i]);
    TESSERA_CHECK(step, "cannot parse rank 0's list of checkpoints");
    result.push_back({*step, parts[i + 1]});
  }
  return result;
}

/// Combines the findings of all ranks.
Finding conclude(const std::string& folder, const Sight& mine, const Ranks& ranks) {
  const std::vector<std::string> texts = gather(ranks, to_text(mine));
  Finding finding;
  std::uint32_t manifest = 0;
  std::vector<std::string> lines;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    const Sight sight = sight_of(texts[rank]);
    if (rank == 0) manifest = sight.manifest;
    if (sight.manifest != manifest)
      return {Finding::Kind::not_shared,
              concat(folder, ": rank 0 and rank ", rank, " do not see the same folder",
                     sight.lines.empty() ? "" : concat(" (", sight.lines[0], ")"),
                     ": all ranks must see the same --output_dir and checkpoints (a common file system)")};
    if (finding.kind == Finding::Kind::whole || sight.kind == Finding::Kind::damaged) finding.kind = sight.kind;
    lines.insert(lines.end(), sight.lines.begin(), sight.lines.end());
  }
  if (finding.kind == Finding::Kind::whole) return finding;
  finding.text = summary(lines);
  if (!finding.text.starts_with(folder)) finding.text = concat(folder, ": ", finding.text);
  return finding;
}

}  // namespace

std::string why_not_resumable(const format::Manifest& manifest) {
  const auto lists = [&](const char* name) {
    return std::any_of(manifest.files.begin(), manifest.files.end(), [&](const auto& f) { return f.name == name; });
  };
  const bool optimizer = lists(kOptimizerFile) || lists(kOptimizerIndexFile);
  if (!lists(kRunStateFile) && !optimizer && lists(kTrainerStateFile))
    return "it contains only the model (--save_only_model), so no run can be resumed from it; a new run can start from "
           "it with --model_name_or_path";
  const bool adapters = lists(kAdapterConfigFile);  // the frozen base model is in another folder
  const auto lacks = [](const char* name) {
    return concat(format::kManifestName, " does not list ", name, ", which a checkpoint needs");
  };
  for (const char* needed : {adapters ? kAdapterConfigFile : kConfigFile, kTrainerStateFile, kRunStateFile})
    if (!lists(needed)) return lacks(needed);
  if (adapters ? !lists(kAdapterWeightsFile) : !lists(kWeightsFile) && !lists(kWeightsIndexFile))
    return lacks(adapters ? kAdapterWeightsFile : kWeightsFile);
  return optimizer ? "" : lacks(kOptimizerFile);
}

Examination::Examination(std::string folder, const Ranks& ranks) : folder_(std::move(folder)), ranks_(ranks) {
  try {
    sums_ = std::make_shared<format::ReadSums>(folder_, format::read_manifest(folder_));
  } catch (const Error&) {  // finish() checks again and reports it; nothing is recorded until then
  }
}

Finding Examination::finish() {
  const std::vector<std::string> told = gather(ranks_, sums_ ? sums_->told() : "");
  const Sight mine = seen([&] {
    if (sums_) sums_->hear_all(told);
    return read_share(folder_, ranks_, sums_.get(), why_not_resumable);
  });
  return conclude(folder_, mine, ranks_);
}

Finding examine(const std::string& folder, const Ranks& ranks, Depth depth, const WhyNotResumable& why_not) {
  const Sight mine =
      seen([&] { return depth == Depth::all ? read_share(folder, ranks, nullptr, why_not) : glance(folder, why_not); });
  return conclude(folder, mine, ranks);
}

std::optional<std::string> choose_newest(const std::vector<StepFolder>& candidates, const Ranks& ranks, Depth depth,
                                         const WhyNotResumable& why_not) {
  for (const StepFolder& candidate : of_rank_0(candidates, ranks)) {
    const Finding finding = examine(candidate.path, ranks, depth, why_not);
    if (finding.kind == Finding::Kind::whole) return candidate.path;
    if (finding.kind == Finding::Kind::not_shared) throw InputError(finding.text);
    if (ranks.rank != 0) continue;
    if (finding.kind == Finding::Kind::damaged)
      set_aside(candidate.path, finding);
    else
      log::warning("skipping a checkpoint: ", finding.text);
  }
  return std::nullopt;
}

void set_aside(const std::string& folder, const Finding& finding) {
  const std::string aside = folder + damaged_suffix;
  try {
    remove_written(aside);
    if (std::rename(folder.c_str(), aside.c_str()) != 0) throw Error(std::strerror(errno));
    log::warning("damaged checkpoint, set aside as ", aside, ": ", finding.text);
  } catch (const Error& error) {
    log::warning("damaged checkpoint, skipped (renaming it to ", aside, " failed: ", error.what(), "): ", finding.text);
  }
}

std::string named_but_not_whole(const std::string& folder, const Finding& finding, const Ranks& ranks,
                                const WhyNotResumable& why_not) {
  if (finding.kind != Finding::Kind::damaged) return finding.text;
  const std::string own = std::filesystem::weakly_canonical(folder).string(),
                    parent = std::filesystem::path(own).parent_path().string();
  for (const StepFolder& other : of_rank_0(siblings(parent), ranks))
    if (other.path != own && examine(other.path, ranks, Depth::all, why_not).kind == Finding::Kind::whole)
      return concat(finding.text, ": the checkpoint is damaged; the newest whole checkpoint in the same folder is ",
                    other.path);
  return concat(finding.text, ": the checkpoint is damaged, and the same folder has no whole checkpoint");
}

}  // namespace tessera::checkpoint
