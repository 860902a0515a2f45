# tessera_embed(NAME NAMESPACE symbol=file ...): the files become string constants of a library, declared by
#   namespace NAMESPACE { extern const std::string_view symbol; }
# in the header that uses them. Run as a script (cmake -P) this file writes the .cpp; nothing of it is in the source
# tree.

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  file(WRITE ${output} "#include <string_view>\n\nnamespace ${namespace} {\n")
  string(REPLACE "," ";" pairs "${files}")
  foreach(pair IN LISTS pairs)
    string(REGEX MATCH "^([^=]+)=(.*)$" unused "${pair}")
    set(symbol ${CMAKE_MATCH_1})
    file(READ ${CMAKE_MATCH_2} bytes HEX)
    # One array element per byte: any content, no escaping, no limit on the length of a literal.
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${bytes}")
    file(APPEND ${output} "static const char ${symbol}_bytes[] = {${bytes}'\\0'};\n"
                          "extern const std::string_view ${symbol};\n"
                          "const std::string_view ${symbol}{${symbol}_bytes, sizeof ${symbol}_bytes - 1};\n")
  endforeach()
  file(APPEND ${output} "}  // namespace ${namespace}\n")
  return()
endif()

set(tessera_embed_script ${CMAKE_CURRENT_LIST_FILE})

function(tessera_embed name namespace)
  set(generated ${PROJECT_BINARY_DIR}/embedded/${name}.cpp)
  set(files "")
  foreach(pair ${ARGN})
    string(REGEX REPLACE "^[^=]+=" "" file "${pair}")
    if(NOT EXISTS ${file})
      message(FATAL_ERROR "${file} is not there: run 'make deps' first.")
    endif()
    list(APPEND files ${file})
  endforeach()
  string(REPLACE ";" "," pairs "${ARGN}")
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/embedded)
  add_custom_command(OUTPUT ${generated}
    COMMAND ${CMAKE_COMMAND} -Doutput=${generated} -Dnamespace=${namespace} -Dfiles=${pairs} -P ${tessera_embed_script}
    DEPENDS ${files} ${tessera_embed_script} COMMENT "embedding ${name}" VERBATIM)
  add_library(tessera_embedded_${name} OBJECT ${generated})
  target_link_libraries(tessera_embedded_${name} PRIVATE tessera_flags)
endfunction()

tessera_embed(characters tessera::text::assets
  characters_txt=${PROJECT_SOURCE_DIR}/tessera/text/unicode/characters.txt)
set_property(GLOBAL APPEND PROPERTY tessera_core_objects $<TARGET_OBJECTS:tessera_embedded_characters>)
set(dygraphs /usr/share/javascript/dygraphs)
set(report_assets ${PROJECT_SOURCE_DIR}/tessera/train/reporting/assets)
if(TESSERA_TORCH)
  tessera_embed(report_assets tessera::train::assets
    dygraph_js=${dygraphs}/dygraph.min.js dygraph_css=${dygraphs}/dygraph.min.css
    report_html=${report_assets}/report.html report_css=${report_assets}/report.css
    report_js=${report_assets}/report.js)
  set_property(GLOBAL APPEND PROPERTY tessera_torch_objects $<TARGET_OBJECTS:tessera_embedded_report_assets>)
endif()
# The planner's page looks like the report of a run.
tessera_embed(page_style tessera::tool::assets report_css=${report_assets}/report.css)
