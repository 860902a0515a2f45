#include <tessera/format/deepspeed_states.h>

#include <tessera/format/manifest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <optional>
#include <system_error>

namespace tessera::format::deepspeed {
namespace {

constexpr std::size_t longest_name = 1024;  // a pickle can refer to one text any number of times: what is copied must be short
constexpr auto every_name = std::to_array<std::string_view>({"*"});  // loss scalers, enums, what users put beside: nothing is called

/// The path of a regular file: a link could lead out of the folder, opening a pipe would wait for ever.
const std::string& require_regular(const std::string& path) {
  const auto type = std::filesystem::symlink_status(path).type();
  if (type == std::filesystem::file_type::symlink) throw InputError(concat(path, ": is a symbolic link; the files of a checkpoint must be in its folder"));
  if (type != std::filesystem::file_type::regular) throw InputError(concat(path, ": is not a regular file"));
  return path;
}

}  // namespace

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::vector<std::string> parts;
  for (const std::int64_t n : shape) parts.push_back(std::to_string(n));
  return concat("[", join(parts), "]");
}

namespace {

// ---- the folder ----

/// What a file's name says.
struct StateName {
  bool optimizer = false;
  std::optional<std::int64_t> rank;  ///< of data parallelism; none: mp_rank_00_model_states.pt
  std::int64_t model_rank = 0;
};

/// Takes "PREFIX0123" off the text's front.
std::optional<std::int64_t> take_number(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return std::nullopt;
  text.remove_prefix(prefix.size());
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  if (digits == 0 || digits > 9) return std::nullopt;
  const auto value = parse_int(text.substr(0, digits));
  text.remove_prefix(digits);
  return value;
}

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

std::string tag_folder(const std::string& folder) {
  const std::string latest = path_join(folder, latest_file);
  std::error_code error;
  if (std::filesystem::symlink_status(latest, error).type() == std::filesystem::file_type::not_found) return folder;
  require_regular(latest);
  std::string tag = read_file(latest, 4096);
  while (!tag.empty() && (tag.back() == '\n' || tag.back() == '\r' || tag.back() == ' ')) tag.pop_back();
  if (!is_plain_file_name(tag) || !is_utf8(tag)) throw InputError(concat(latest, ": '", tag, "' is not the plain name of a folder beside it"));
  const std::string path = path_join(folder, tag);
  const auto type = std::filesystem::symlink_status(path, error).type();
  if (type == std::filesystem::file_type::symlink) throw InputError(concat(path, ": is a symbolic link; the files of a checkpoint must be in its folder"));
  if (type != std::filesystem::file_type::directory) throw InputError(concat(path, ": there is no such folder, but ", latest, " names it"));
  return path;
}

}  // namespace

Folder list_states(const std::string& folder) {
  Folder out;
  out.path = tag_folder(folder);
  const auto fail = [&](const auto&... parts) { return InputError(concat(out.path, ": ", parts...)); };
  for (const std::string& name : list_folder(out.path)) {
    if (!name.ends_with("_optim_states.pt") && !name.ends_with("model_states.pt")) continue;
    const auto parsed = parse_name(name);
    if (!parsed) {
      if (name.find("expert_") != std::string::npos || name.starts_with("expp_rank_"))
        throw fail("'", name, "' holds experts (MoE), which are not read; convert with DeepSpeed's ds_to_universal.py");
      if (name.starts_with("layer_"))
        throw fail("'", name, "' is of pipeline parallelism, which is not read; save without pipeline stages");
      continue;
    }
    if (parsed->model_rank > 0)
      throw fail("'", name, "' is of tensor parallelism (model rank ", parsed->model_rank, "), whose parts are not joined; convert with DeepSpeed's ds_to_universal.py");
    auto& files = parsed->optimizer ? out.optimizer : out.model;
    const auto [known, is_new] = files.emplace(parsed->rank.value_or(-1), name);
    if (!is_new) throw fail("'", name, "' and '", known->second, "' are of one rank: files of two runs; remove those of the older one");
  }
  if (out.optimizer.empty())
    throw fail("holds no file *_optim_states.pt, so it is no ZeRO checkpoint of DeepSpeed",
               out.model.contains(-1) ? "; of stage 0, mp_rank_00_model_states.pt holds whole weights: torch.save() its 'module' to a file of its own" : "");
  return out;
}

// ---- a file ----

StateFile::StateFile(const std::string& where) : path(require_regular(where)), mapping(where), archive(mapping.bytes(), where, every_name) {}

std::span<const std::byte> StateFile::bytes(std::size_t storage, std::uint64_t begin, std::uint64_t end) {
  if (!verified.contains(storage)) {
    verify_storage(mapping.bytes(), archive.storages()[storage], path);
    verified.insert(storage);
  }
  return mapping.bytes().subspan(begin, end - begin);
}

const PickleNode* StateFile::find(const PickleNode& dict, std::string_view key) const {
  const auto members = archive.members(dict);
  if (!members) return nullptr;
  for (std::size_t i = 0; i + 1 < members->size(); i += 2)
    if (const PickleNode& name = node((*members)[i]); name.kind == PickleKind::text && name.text == key) {
      const PickleNode& value = node((*members)[i + 1]);
      return value.kind == PickleKind::none ? nullptr : &value;
    }
  return nullptr;
}

const PickleNode& StateFile::member(const PickleNode& dict, std::string_view key) const {
  const PickleNode* found = find(dict, key);
  if (found == nullptr) fail("has no '", key, "': ZeRO of DeepSpeed did not write it, or one older than 0.6 did");
  return *found;
}

std::string_view StateFile::name(const PickleNode& value, std::string_view what) const {
  if (value.kind != PickleKind::text) fail("a name in '", what, "' is a ", pickle_kind_name(value.kind), "; text is wanted");
  if (value.text.size() > longest_name) fail("a name in '", what, "' has ", value.text.size(), " bytes; at most ", longest_name, " are read");
  return value.text;
}

std::vector<std::pair<std::string_view, const PickleNode*>> StateFile::items(const PickleNode& dict, std::string_view what) const {
  const auto members = archive.members(dict);
  if (!members) fail("'", what, "' is a ", pickle_kind_name(dict.kind), "; expected a dict");
  std::vector<std::pair<std::string_view, const PickleNode*>> out;
  std::set<std::string_view> names;
  for (std::size_t i = 0; i + 1 < members->size(); i += 2) {
    out.emplace_back(name(node((*members)[i]), what), &node((*members)[i + 1]));
    if (!names.insert(out.back().first).second) fail("'", what, "' has '", out.back().first, "' twice");
  }
  return out;
}

const std::vector<std::uint32_t>& StateFile::list(const PickleNode& value, std::string_view what) const {
  if (value.kind != PickleKind::list && value.kind != PickleKind::tuple) fail("'", what, "' is a ", pickle_kind_name(value.kind), "; expected a list");
  return value.items;
}

std::int64_t StateFile::integer(const PickleNode& value, std::string_view what) const {
  if (value.kind != PickleKind::integer || value.integer < 0) fail("'", what, "' is not an integer of at least 0");
  return value.integer;
}

std::uint64_t elements_of(const StateFile& file, const std::string& name, const std::vector<std::int64_t>& shape) {
  std::uint64_t all = 1;
  for (const std::int64_t n : shape) {
    if (n != 0 && all > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) / static_cast<std::uint64_t>(n))
      file.fail("parameter '", name, "' of shape ", shape_text(shape), ": its number of elements overflows");
    all *= static_cast<std::uint64_t>(n);
  }
  return all;
}

std::vector<Parameter> read_shapes(const StateFile& file, const PickleNode& dict, std::string_view what, std::set<std::string_view>& names) {
  std::vector<Parameter> out;
  for (const auto& [name, shape] : file.items(dict, what)) {
    if (!names.insert(name).second) file.fail("parameter '", name, "' is described twice");
    Parameter parameter{std::string(name), {}, 0};
    parameter.shape = file.archive.sizes(*shape, parameter.name, "its shape");
    parameter.elements = elements_of(file, parameter.name, parameter.shape);
    out.push_back(std::move(parameter));
  }
  return out;
}

// ---- a rank's part of the optimizer ----

namespace {

/// A number, or ZeroStageEnum(number).
std::int64_t read_stage(const StateFile& file, const PickleNode& value) {
  const PickleNode* number = &value;
  if (value.kind == PickleKind::object && file.node(value.items[0]).text.ends_with(".ZeroStageEnum") && file.archive.pickle().arguments(value).size() == 1)
    number = &file.node(file.archive.pickle().arguments(value)[0]);
  const std::int64_t stage = file.integer(*number, "zero_stage");
  if (stage < 1 || stage > 3) file.fail("is of ZeRO stage ", stage, "; 1, 2 and 3 are read");
  return stage;
}

/// Groups that shared bytes would make large tensors of a small file.
void require_apart(const Rank& rank) {
  std::vector<const TorchTensor*> sorted;
  for (const TorchTensor& group : rank.groups)
    if (group.begin != group.end) sorted.push_back(&group);
  std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->begin < b->begin; });
  for (std::size_t i = 1; i < sorted.size(); ++i)
    if (sorted[i]->begin < sorted[i - 1]->end) rank.file->fail("'", sorted[i]->name, "' and '", sorted[i - 1]->name, "' overlap");
}

Rank read_rank(const std::string& path) {
  Rank out;
  out.file = std::make_shared<StateFile>(path);
  StateFile& file = *out.file;
  const PickleNode& state = file.member(file.archive.pickle().root(), "optimizer_state_dict");
  out.stage = read_stage(file, file.member(state, "zero_stage"));
  const PickleNode& count = file.member(state, "partition_count");
  if (count.kind == PickleKind::list || count.kind == PickleKind::tuple) {
    for (const std::uint32_t item : count.items) {
      const std::int64_t ranks = file.integer(file.node(item), "partition_count");
      if (out.ranks != 0 && ranks != out.ranks) file.fail("its groups are divided over ", out.ranks, " and over ", ranks, " ranks (experts?), which is not read");
      out.ranks = ranks;
    }
  } else {
    out.ranks = file.integer(count, "partition_count");
  }
  if (out.ranks < 1) file.fail("'partition_count' is ", out.ranks, "; at least 1 is expected");
  if (file.find(state, "ds_zero_partition_groups") != nullptr) file.fail("its parameters are divided over several groups of ranks (experts), which is not read");

  const char* key = out.stage == 3 ? "fp32_flat_groups" : "single_partition_of_fp32_groups";
  for (const std::uint32_t item : file.list(file.member(state, key), key)) {
    const std::string name = concat(key, "[", out.groups.size(), "]");
    TorchTensor group = file.archive.tensor(file.node(item), name);
    if (group.shape.size() != 1 || !group.contiguous()) file.fail("'", name, "' of shape ", shape_text(group.shape), " is not one flat row");
    if (group.dtype != DType::f32 && group.dtype != DType::f16 && group.dtype != DType::bf16)
      file.fail("'", name, "' has dtype ", dtype_name(group.dtype), "; expected F32, F16 or BF16");
    if (group.dtype != (out.groups.empty() ? group.dtype : out.groups[0].dtype)) file.fail("'", name, "' has another dtype than the group before it");
    out.groups.push_back(std::move(group));
  }
  if (out.groups.empty()) file.fail("'", key, "' is empty");
  if (const PickleNode* alignments = file.find(state, "param_alignment_paddings"); alignments != nullptr && out.stage < 3) {
    std::size_t total = 0;
    for (const std::uint32_t group : file.list(*alignments, "param_alignment_paddings")) {
      auto& of_group = out.alignments.emplace_back();
      const auto& numbers = file.list(file.node(group), "param_alignment_paddings");
      total += numbers.size();
      if (total > file.archive.pickle().size()) file.fail("'param_alignment_paddings' lists the same numbers over and over");
      for (const std::uint32_t item : numbers) of_group.push_back(file.integer(file.node(item), "param_alignment_paddings"));
    }
  }
  require_apart(out);
  return out;
}

}  // namespace

std::vector<Rank> read_ranks(const Folder& folder) {
  std::vector<Rank> out;
  for (const auto& [number, name] : folder.optimizer) {
    const std::string path = path_join(folder.path, name);
    out.push_back(read_rank(path));
    const Rank &first = out.front(), &rank = out.back();
    const auto same = [&](const char* what, std::int64_t here, std::int64_t there) {
      if (here != there) rank.file->fail(what, " is ", here, ", but ", there, " in ", first.file->path, ": files of two runs");
    };
    same("'zero_stage'", rank.stage, first.stage);
    same("'partition_count'", rank.ranks, first.ranks);
    same("the number of groups", static_cast<std::int64_t>(rank.groups.size()), static_cast<std::int64_t>(first.groups.size()));
    if (rank.groups[0].dtype != first.groups[0].dtype)
      rank.file->fail("its groups are ", dtype_name(rank.groups[0].dtype), ", but ", dtype_name(first.groups[0].dtype), " in ", first.file->path);
    if (number >= rank.ranks) rank.file->fail("is of rank ", number, ", but the checkpoint is of ", rank.ranks, " ranks: left over from another run; remove it");
  }
  const auto ranks = static_cast<std::uint64_t>(out.front().ranks);
  if (ranks == out.size()) return out;  // numbers differ and lie below it
  std::int64_t missing = 0;
  while (folder.optimizer.contains(missing)) ++missing;
  throw InputError(concat(folder.path, ": the checkpoint is of ", ranks, " ranks, and of ", out.size(), " there is a file *_optim_states.pt; that of rank ", missing,
                          " is missing: copy the files of all nodes into one folder"));
}

}  // namespace tessera::format::deepspeed
