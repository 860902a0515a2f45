#include <tessera/base/system/plugin.h>
#include <tessera/storage/http.h>

namespace tessera::storage {
namespace {

constexpr Plugin curl = {"libtessera_s3.so", http_plugin_entry, "s3:// needs",
                         "install libcurl4-openssl-dev (`make deps`), then build again",
                         " (it needs libcurl.so.4: apt-get install libcurl4)"};

}  // namespace

const HttpPlugin& http_plugin() {
  static const HttpPlugin* const plugin = reinterpret_cast<decltype(&tessera_http_plugin)>(load_plugin(curl))();
  return *plugin;
}

bool has_http_plugin() { return has_plugin(curl); }

}  // namespace tessera::storage
