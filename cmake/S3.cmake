# The plug-in libtessera_s3.so: s3:// through libcurl, which signs requests as Amazon wants them (from 7.75 on; the
# rules about its headers that we rely on are those of 7.87 and later). dlopen'ed when the first s3:// is used; without
# it everything else works.

pkg_check_modules(CURL IMPORTED_TARGET QUIET libcurl>=7.87)
pkg_check_modules(CRYPTO IMPORTED_TARGET QUIET libcrypto>=1.1.1)
if(NOT CURL_FOUND OR NOT CRYPTO_FOUND)
  message(STATUS "s3://: not built (no libcurl4-openssl-dev or libssl-dev: make deps)")
  return()
endif()

file(GLOB s3_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tessera/storage/*_curl.cpp)
add_library(tessera_s3 MODULE ${s3_sources})
target_compile_options(tessera_s3 PRIVATE ${tessera_core_optimization})
target_link_libraries(tessera_s3 PRIVATE tessera_core tessera_flags PkgConfig::CURL PkgConfig::CRYPTO)
set_target_properties(tessera_s3 PROPERTIES BUILD_RPATH "$ORIGIN")
