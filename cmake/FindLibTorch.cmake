# tessera_find_libtorch(RESULT VERSION DEFAULTS): the folder torch/ of LibTorch VERSION. Looked for, in this order, at
# TESSERA_TORCH_DIR (a folder that holds torch/, or torch/ itself), where find_package(Torch) of the project that asks
# has found it, at the DEFAULTS (beside a Tessera of pip's, where this one was built), and in the packages of
# python3. Another version is an error: the C++ ABI changes between releases.
function(tessera_torch_version result folder)
  set(${result} "" PARENT_SCOPE)
  if(EXISTS ${folder}/version.py AND EXISTS ${folder}/lib/libtorch_cpu.so)
    file(STRINGS ${folder}/version.py line REGEX "^__version__")
    string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" version "${line}")
    set(${result} "${version}" PARENT_SCOPE)
  endif()
endfunction()

function(tessera_find_libtorch result version defaults)
  set(given "")
  if(TESSERA_TORCH_DIR)
    set(given ${TESSERA_TORCH_DIR}/torch ${TESSERA_TORCH_DIR})
  elseif(TORCH_INSTALL_PREFIX)
    set(given ${TORCH_INSTALL_PREFIX})
  endif()
  set(places ${given})
  if(NOT given)
    find_program(TESSERA_PYTHON python3)
    set(packages "")
    if(TESSERA_PYTHON)
      execute_process(COMMAND ${TESSERA_PYTHON} -c
        "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
        OUTPUT_VARIABLE packages ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    endif()
    set(places ${defaults} ${packages})
  endif()
  set(others "")
  foreach(place ${places})
    tessera_torch_version(found ${place})
    if(found STREQUAL version)
      set(${result} ${place} PARENT_SCOPE)
      return()
    elseif(found)
      string(APPEND others "\n  ${place} is LibTorch ${found}")
    endif()
  endforeach()
  string(REPLACE ";" ", " places "${places}")
  message(FATAL_ERROR
    "This Tessera was built for LibTorch ${version} and needs exactly that: the C++ ABI changes between releases."
    "${others}\n"
    "Looked at: ${places}\n"
    "Install it (pip install torch==${version}) and give the folder that holds torch/, -DTESSERA_TORCH_DIR=..., or "
    "take a Tessera that was built for your LibTorch (docs/install.md).")
endfunction()
