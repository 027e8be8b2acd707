# Small helpers that every folder's CMakeLists.txt uses.

# The warnings, the standard and the include paths of all our C.
function(rsched_compile_options target)
  target_compile_features(${target} PUBLIC c_std_11)
  set_target_properties(${target} PROPERTIES C_STANDARD 11 C_EXTENSIONS OFF
                        C_VISIBILITY_PRESET hidden)
  target_compile_definitions(${target} PRIVATE _GNU_SOURCE)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wshadow
                         -Wstrict-prototypes -Wmissing-prototypes
                         # Texts are cut on purpose; only gcc warns of it.
                         $<$<C_COMPILER_ID:GNU>:-Wno-format-truncation>)
  if(RSCHED_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}"
                             "${PROJECT_SOURCE_DIR}/include")
endfunction()

if(RSCHED_SANITIZE)
  add_compile_options(-fsanitize=${RSCHED_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=undefined)
  add_link_options(-fsanitize=${RSCHED_SANITIZE})
endif()

# Sources of librsched, relative to the calling folder.
function(rsched_sources)
  list(TRANSFORM ARGN PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
  target_sources(rsched_objects PRIVATE ${ARGN})
endfunction()

# A Criterion test program: rsched_criterion(NAME source...). It is linked with
# the library's objects, so it may test what is internal.
function(rsched_criterion name)
  pkg_check_modules(CRITERION REQUIRED IMPORTED_TARGET criterion)
  add_executable(${name} ${ARGN})
  rsched_compile_options(${name})
  target_link_libraries(${name} PRIVATE rsched_internal PkgConfig::CRITERION)
  add_test(NAME ${name} COMMAND ${name})
endfunction()
