#include <tessera/format/deepspeed/deepspeed_files.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/format/manifest/manifest.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

namespace tessera::format::deepspeed {
namespace {

constexpr std::size_t longest_tag = 4096;

// ---- names ----

/// A parsed file name.
struct StateName {
  bool optimizer = false;
  std::optional<std::int64_t> rank;  ///< data-parallel rank; nullopt: mp_rank_00_model_states.pt
  std::int64_t model_rank = 0;
};

/// Consumes "PREFIX0123" from the front of the text; returns the number.
std::optional<std::int64_t> take_number(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return std::nullopt;
  text.remove_prefix(prefix.size());
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  if (digits == 0 || digits > 9) return std::nullopt;
  const auto value = parse_int(text.substr(0, digits));
  text.remove_prefix(digits);
  return value;
}

/// [bf16_|fp16_][zero_pp_rank_R_]mp_rank_M_{optim|model}_states.pt. fp16_ is written by old versions
/// (checkpoint/constants.py).
std::optional<StateName> parse_name(std::string_view name) {
  StateName out;
  if (name.starts_with("bf16_zero") || name.starts_with("fp16_zero")) name.remove_prefix(5);
  std::string_view rest = name;
  if (const auto rank = take_number(rest, "zero_pp_rank_")) {
    out.rank = *rank;
    name = rest.starts_with("_") ? rest.substr(1) : rest;
  }
  const auto model_rank = take_number(name, "mp_rank_");
  if (!model_rank || (name != "_optim_states.pt" && name != "_model_states.pt")) return std::nullopt;
  out.model_rank = *model_rank;
  out.optimizer = name == "_optim_states.pt";
  if (out.optimizer && !out.rank) return std::nullopt;
  return out;
}

/// The reason why a file *_states.pt with a name unknown to ZeRO prevents reading the checkpoint; "": it does not.
std::string why_not(std::string_view name) {
  if (name.find("expert_") != std::string_view::npos || name.starts_with("expp_rank_"))
    return concat("'", name,
                  "' contains experts (MoE), which are not supported; convert with DeepSpeed's ds_to_universal.py");
  if (name.starts_with("layer_"))
    return concat("'", name, "' is from pipeline parallelism, which is not supported; save without pipeline stages");
  return "";
}

// ---- `latest` ----

/// The text of the file without its line end.
std::string read_tag(const std::string& latest) {
  std::string tag = read_file(require_regular(latest), longest_tag);
  while (!tag.empty() && (tag.back() == '\n' || tag.back() == '\r' || tag.back() == ' ')) tag.pop_back();
  if (!is_plain_file_name(tag) || !is_utf8(tag))
    throw InputError(concat(latest, ": '", tag, "' is not the plain name of a folder next to it"));
  return tag;
}

InputError link_error(const std::string& path) {
  return InputError(concat(path, ": is a symbolic link; the files of a checkpoint must be in its folder"));
}

std::string tag_folder(const std::string& folder) {
  const std::string latest = path_join(folder, latest_file);
  std::error_code error;
  if (std::filesystem::symlink_status(latest, error).type() == std::filesystem::file_type::not_found) return folder;
  const std::string path = path_join(folder, read_tag(latest));
  const auto type = std::filesystem::symlink_status(path, error).type();
  if (type == std::filesystem::file_type::symlink) throw link_error(path);
  if (type != std::filesystem::file_type::directory)
    throw InputError(concat(path, ": no such folder, but ", latest, " names it"));
  return path;
}

}  // namespace

const std::string& require_regular(const std::string& path) {
  const auto type = std::filesystem::symlink_status(path).type();
  if (type == std::filesystem::file_type::symlink) throw link_error(path);
  if (type != std::filesystem::file_type::regular) throw InputError(concat(path, ": is not a regular file"));
  return path;
}

Folder sort_states(const std::string& path, const std::vector<std::string>& names) {
  Folder out;
  out.path = path;
  const auto fail = [&](const auto&... parts) { return InputError(concat(path, ": ", parts...)); };
  for (const std::string& name : names) {
    if (!name.ends_with("_optim_states.pt") && !name.ends_with("model_states.pt")) continue;
    const auto parsed = parse_name(name);
    if (!parsed) {
      if (const std::string reason = why_not(name); !reason.empty()) throw fail(reason);
      continue;
    }
    if (parsed->model_rank > 0)
      throw fail("'", name, "' is from tensor parallelism (model rank ", parsed->model_rank,
                 "), whose parts cannot be joined here; convert with DeepSpeed's ds_to_universal.py");
    auto& files = parsed->optimizer ? out.optimizer : out.model;
    const auto [known, is_new] = files.emplace(parsed->rank.value_or(-1), name);
    if (!is_new)
      throw fail("'", name, "' and '", known->second,
                 "' belong to the same rank, so they are from two runs; remove those of the older one");
  }
  if (out.optimizer.empty())
    throw fail("contains no file *_optim_states.pt, so it is not a ZeRO checkpoint of DeepSpeed",
               out.model.contains(-1)
                   ? "; in stage 0 mp_rank_00_model_states.pt contains whole weights: torch.save() its "
                     "'module' to a file of its own"
                   : "");
  return out;
}

Folder list_states(const std::string& folder) {
  const std::string path = tag_folder(folder);
  return sort_states(path, list_folder(path));
}

}  // namespace tessera::format::deepspeed
