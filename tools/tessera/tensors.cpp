/// \file
/// Loads the part that needs tensors: libtessera_tool.so, next to the program or in ../lib of an installation.

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/system/plugin.h>
#include <tools/tessera/commands.h>

#include <cstdlib>
#include <filesystem>

namespace tessera::tool {
namespace {

constexpr const char* library_name = "libtessera_tool.so";

std::string find_library() {
  const std::string folder = std::filesystem::path(own_program()).parent_path().string();
  const std::string beside = path_join(folder, library_name),
                    installed = path_join(folder, std::string("../lib/") + library_name);
  for (const std::string& path : {beside, installed})
    if (path_exists(path)) return path;
  throw Error(concat("this command needs tensors, but ", beside,
                     " does not exist: build it with `make build`, or keep it next to the program"));
}

}  // namespace

std::string own_program() {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) throw Error(concat("cannot read /proc/self/exe: ", error.message()));
  return path.string();
}

int run_with_tensors(const std::string& name, const Arguments& arguments) {
  const std::string path = find_library();
  // libgomp reads this when it is loaded. By default it spins for seconds at the end of a parallel region, which wastes
  // cores that other ranks and the communication threads need; a short spin keeps the latency of back-to-back regions.
  if (std::getenv("OMP_WAIT_POLICY") == nullptr) ::setenv("GOMP_SPINCOUNT", "2000", /*overwrite=*/0);
  // Its symbols are global, because the CUDA plug-in, which is loaded later, shares LibTorch's registries with it. It
  // is never closed, because its threads outlive us.
  using Entry = int (*)(const char*, int, const char**);
  const auto entry = reinterpret_cast<Entry>(load_entry(path, "tessera_tool_main", Symbols::shared));
  std::vector<const char*> argv;
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  return entry(name.c_str(), static_cast<int>(argv.size()), argv.data());
}

}  // namespace tessera::tool
