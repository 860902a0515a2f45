#include <tessera/base/system/plugin.h>
#include <tessera/corpus/tables/table_plugin.h>

namespace tessera::corpus {
namespace {

constexpr Plugin arrow = {"libtessera_arrow.so", table_plugin_entry, "Parquet and Arrow files need",
                          "run `make deps` (Apache Arrow from PyPI), then build again"};

}  // namespace

const TablePlugin& table_plugin() {
  static const TablePlugin* const plugin = reinterpret_cast<decltype(&tessera_table_plugin)>(load_plugin(arrow))();
  return *plugin;
}

bool has_table_plugin() { return has_plugin(arrow); }

}  // namespace tessera::corpus
