#include <tessera/format/deepspeed/deepspeed_states.h>

#include <tessera/base/file.h>
#include <tessera/format/deepspeed/deepspeed_files.h>

#include <array>
#include <limits>

namespace tessera::format::deepspeed {
namespace {

constexpr std::size_t longest_name = 1024;  // a pickle can repeat one text any number of times, so copies must be short

/// Loss scalers, enums, additions by users: any class may be named, because no class is instantiated and nothing is
/// called.
constexpr auto every_name = std::to_array<std::string_view>({"*"});

/// A file together with the mapping that it refers to.
struct MappedState {
  explicit MappedState(const std::string& path) : mapping(path), state(path, mapping.bytes()) {}
  MappedFile mapping;
  StateFile state;
};

}  // namespace

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::vector<std::string> parts;
  for (const std::int64_t n : shape) parts.push_back(std::to_string(n));
  return concat("[", join(parts), "]");
}

StateFile::StateFile(const std::string& where, std::span<const std::byte> contents)
    : path(where), contents_(contents), archive_(contents, where, every_name) {}

std::span<const std::byte> StateFile::bytes(std::size_t storage, std::uint64_t begin, std::uint64_t end) {
  if (!verified_.contains(storage)) {
    verify_storage(contents_, archive_.storages()[storage], path);
    verified_.insert(storage);
  }
  return contents_.subspan(begin, end - begin);
}

const PickleNode* StateFile::find(const PickleNode& dict, std::string_view key) const {
  const auto members = archive_.members(dict);
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
  if (found == nullptr) fail("has no '", key, "': it was not written by DeepSpeed's ZeRO, or by a version before 0.6");
  return *found;
}

std::string_view StateFile::name(const PickleNode& value, std::string_view what) const {
  if (value.kind != PickleKind::text)
    fail("a name in '", what, "' is a ", pickle_kind_name(value.kind), "; expected text");
  if (value.text.size() > longest_name)
    fail("a name in '", what, "' has ", value.text.size(), " bytes; at most ", longest_name, " are supported");
  return value.text;
}

std::vector<std::pair<std::string_view, const PickleNode*>> StateFile::items(const PickleNode& dict,
                                                                             std::string_view what) const {
  const auto members = archive_.members(dict);
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
  if (value.kind != PickleKind::list && value.kind != PickleKind::tuple)
    fail("'", what, "' is a ", pickle_kind_name(value.kind), "; expected a list");
  return value.items;
}

std::int64_t StateFile::integer(const PickleNode& value, std::string_view what) const {
  if (value.kind != PickleKind::integer || value.integer < 0) fail("'", what, "' is not an integer of at least 0");
  return value.integer;
}

std::vector<std::int64_t> StateFile::shape(const PickleNode& value, const std::string& name) const {
  return archive_.sizes(value, name, "its shape");
}

std::shared_ptr<StateFile> open_state(const std::string& path) {
  const auto both = std::make_shared<MappedState>(require_regular(path));
  return {both, &both->state};
}

std::uint64_t elements_of(const StateFile& file, const std::string& name, const std::vector<std::int64_t>& shape) {
  constexpr auto limit = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  std::uint64_t all = 1;
  for (const std::int64_t n : shape) {
    if (n != 0 && all > limit / static_cast<std::uint64_t>(n))
      file.fail("parameter '", name, "' of shape ", shape_text(shape), ": its number of elements overflows");
    all *= static_cast<std::uint64_t>(n);
  }
  return all;
}

std::vector<Parameter> read_shapes(const StateFile& file, const PickleNode& dict, std::string_view what,
                                   std::set<std::string_view>& names) {
  std::vector<Parameter> out;
  for (const auto& [name, shape] : file.items(dict, what)) {
    if (!names.insert(name).second) file.fail("parameter '", name, "' is described twice");
    Parameter parameter{std::string(name), {}, 0};
    parameter.shape = file.shape(*shape, parameter.name);
    parameter.elements = elements_of(file, parameter.name, parameter.shape);
    out.push_back(std::move(parameter));
  }
  return out;
}

}  // namespace tessera::format::deepspeed
