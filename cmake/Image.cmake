# The plug-in libtessera_image.so: JPEG and PNG through Debian's libjpeg-turbo and libpng. dlopen'ed when the first
# image is read; without it everything else works.

pkg_check_modules(JPEG IMPORTED_TARGET QUIET libjpeg)
pkg_check_modules(PNG IMPORTED_TARGET QUIET libpng)
if(NOT JPEG_FOUND OR NOT PNG_FOUND)
  message(STATUS "Images: not built (no libjpeg62-turbo-dev or libpng-dev: make deps)")
  return()
endif()

file(GLOB image_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tessera/image/*_codec.cpp)
add_library(tessera_image MODULE ${image_sources})
target_compile_options(tessera_image PRIVATE ${tessera_core_optimization})
target_link_libraries(tessera_image PRIVATE tessera_core tessera_flags PkgConfig::JPEG PkgConfig::PNG)
set_target_properties(tessera_image PROPERTIES BUILD_RPATH "$ORIGIN")
