#include <tessera/storage/http.h>

#include <dlfcn.h>

#include <filesystem>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>

namespace tessera::storage {
namespace {

/// Beside the library (or program) that this function is in.
std::string http_plugin_path() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&http_plugin_path), &info) == 0 || info.dli_fname == nullptr)
    throw Error("cannot find the own library: dladdr knows no file");
  return path_join(std::filesystem::absolute(info.dli_fname).parent_path().string(), "libtessera_s3.so");
}

const HttpPlugin* load_http_plugin() {
  const std::string path = http_plugin_path();
  if (!path_exists(path))
    throw Error(concat("s3:// needs ", path,
                       ", which was not built: install libcurl4-openssl-dev and libssl-dev (`make deps`), then build "
                       "again"));
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw Error(concat("cannot load ", path, ": ", ::dlerror(), " (it needs libcurl.so.4: apt-get install libcurl4)"));
  const auto entry = reinterpret_cast<decltype(&tessera_http_plugin)>(::dlsym(library, http_plugin_entry));
  if (entry == nullptr) throw Error(concat(path, " has no ", http_plugin_entry, ": it is of another build"));
  return entry();
}

}  // namespace

const HttpPlugin& http_plugin() {
  static const HttpPlugin* const plugin = load_http_plugin();  // a load that threw is tried again by the next call
  return *plugin;
}

bool has_http_plugin() { return path_exists(http_plugin_path()); }

}  // namespace tessera::storage
