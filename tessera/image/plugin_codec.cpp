// The plug-in's entry function.

#include <tessera/image/codecs.h>
#include <tessera/image/plugin.h>

extern "C" const tessera::image::ImagePlugin* tessera::image::tessera_image_plugin() {
  static constexpr ImagePlugin plugin{decode_jpeg, decode_png};
  return &plugin;
}
