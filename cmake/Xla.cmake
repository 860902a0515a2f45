# The plug-in libtessera_xla.so: training steps compiled by XLA (docs/tpu.md). It links nothing of XLA: a PJRT plug-in
# is dlopen'ed when a run asks for it, through the one header in third_party/pjrt.

file(GLOB_RECURSE xla_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tessera/xla/*.cpp)
list(FILTER xla_sources EXCLUDE REGEX "/tessera/xla/devices.cpp$")
target_sources(tessera PRIVATE ${PROJECT_SOURCE_DIR}/tessera/xla/devices.cpp)  # finds the plug-in: part of libtessera
tessera_units(xla_units xla 8 ${xla_sources})
add_library(tessera_xla SHARED ${xla_units})
tessera_use_torch(tessera_xla)
target_link_libraries(tessera_xla PRIVATE tessera_flags ${CMAKE_DL_LIBS} PUBLIC tessera)
