#include <tessera/base/system/plugin.h>
#include <tessera/image/plugin.h>

namespace tessera::image {
namespace {

constexpr Plugin codecs = {"libtessera_image.so", image_plugin_entry, "images need",
                           "install libjpeg62-turbo-dev and libpng-dev (`make deps`), then build again"};

}  // namespace

const ImagePlugin& image_plugin() {
  static const ImagePlugin* const plugin = reinterpret_cast<decltype(&tessera_image_plugin)>(load_plugin(codecs))();
  return *plugin;
}

bool has_image_plugin() { return has_plugin(codecs); }

}  // namespace tessera::image
