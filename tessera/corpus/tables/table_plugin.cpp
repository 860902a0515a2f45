#include <tessera/corpus/tables/table_plugin.h>

#include <dlfcn.h>

#include <filesystem>

#include <tessera/base/error.h>
#include <tessera/base/file.h>

namespace tessera::corpus {
namespace {

/// Beside the library (or program) that this function is in.
std::string plugin_path() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&plugin_path), &info) == 0 || info.dli_fname == nullptr)
    throw Error("cannot find the own library: dladdr knows no file");
  return path_join(std::filesystem::absolute(info.dli_fname).parent_path().string(), "libtessera_arrow.so");
}

const TablePlugin* load() {
  const std::string path = plugin_path();
  if (!path_exists(path))
    throw Error(concat("Parquet and Arrow files need ", path,
                       ", which was not built: run `make deps` (Apache Arrow from PyPI), then build again"));
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw Error(concat("cannot load ", path, ": ", ::dlerror()));
  const auto entry = reinterpret_cast<decltype(&tessera_table_plugin)>(::dlsym(library, table_plugin_entry));
  if (entry == nullptr) throw Error(concat(path, " has no ", table_plugin_entry, ": it is of another build"));
  return entry();
}

}  // namespace

const TablePlugin& table_plugin() {
  static const TablePlugin* const plugin = load();  // a load that threw is tried again by the next call
  return *plugin;
}

bool has_table_plugin() { return path_exists(plugin_path()); }

}  // namespace tessera::corpus
