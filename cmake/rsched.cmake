# Small helpers that every folder's CMakeLists.txt uses.

# The warnings, the standard and the include paths of all our C.
function(rsched_compile_options target)
  target_compile_features(${target} PUBLIC c_std_11)
  set_target_properties(${target} PROPERTIES C_STANDARD 11 C_EXTENSIONS OFF
                        C_VISIBILITY_PRESET hidden)
  target_compile_definitions(${target} PRIVATE _GNU_SOURCE)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wshadow
                         -Wstrict-prototypes -Wmissing-prototypes)
  if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -Wno-format-truncation) # texts are cut on purpose
  endif()
  if(RSCHED_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}"
                             "${PROJECT_SOURCE_DIR}/include")
endfunction()

# Debian 12's valgrind, which counts instructions in tests, gives up on what
# clang writes of DWARF 5.
add_compile_options("$<$<AND:$<C_COMPILER_ID:Clang>,$<CONFIG:Debug,RelWithDebInfo>>:-gdwarf-4>")

if(RSCHED_SANITIZE)
  add_compile_options(-fsanitize=${RSCHED_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=undefined)
  add_link_options(-fsanitize=${RSCHED_SANITIZE})
endif()
if(RSCHED_FUZZ)
  if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "RSCHED_FUZZ needs clang (-DCMAKE_C_COMPILER=clang)")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# Sources of librsched, relative to the calling folder.
function(rsched_sources)
  list(TRANSFORM ARGN PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
  target_sources(rsched_objects PRIVATE ${ARGN})
endfunction()

# A test: exit status 0 passes, 77 skips (print the reason as the last line),
# anything else fails.
#
#   rsched_test(NAME name COMMAND program argument...
#               LABELS label...      unit cli mpi runtime slow install house vm
#                                    thirdparty,
#                                    tsan (also run under the thread sanitizer)
#               [TIMEOUT seconds]    240; 300 with the label slow
#               [PROCESSORS n]       cores that it keeps busy; 1, mpi: 2
#               [ENVIRONMENT VAR=value...])
function(rsched_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;TIMEOUT;PROCESSORS"
                        "COMMAND;LABELS;ENVIRONMENT")
  if(NOT arg_NAME OR NOT arg_COMMAND OR NOT arg_LABELS OR arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "rsched_test(${ARGV}): NAME, COMMAND and LABELS are "
                        "needed, '${arg_UNPARSED_ARGUMENTS}' is not understood")
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 240)
    if("slow" IN_LIST arg_LABELS)
      set(arg_TIMEOUT 300)
    endif()
  endif()
  if(RSCHED_SANITIZE)
    math(EXPR arg_TIMEOUT "3 * ${arg_TIMEOUT}")
  endif()
  if("mpi" IN_LIST arg_LABELS OR "mpi-asan" IN_LIST arg_LABELS)
    # Containers run as root, and have fewer cores than the tests have ranks.
    list(APPEND arg_ENVIRONMENT OMPI_ALLOW_RUN_AS_ROOT=1
         OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
         PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe) # Open MPI 4 and 5
    if(NOT arg_PROCESSORS)
      set(arg_PROCESSORS 2)
    endif()
  endif()
  if(NOT arg_PROCESSORS)
    set(arg_PROCESSORS 1)
  endif()
  add_test(NAME ${arg_NAME} COMMAND ${arg_COMMAND})
  set_tests_properties(${arg_NAME} PROPERTIES SKIP_RETURN_CODE 77
      LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT}
      PROCESSORS ${arg_PROCESSORS} ENVIRONMENT "${arg_ENVIRONMENT}")
  # Its program is built there, whatever labels the program's own test has.
  list(GET arg_COMMAND 0 program)
  if(RSCHED_SANITIZE STREQUAL "thread" AND "tsan" IN_LIST arg_LABELS AND TARGET ${program})
    set_target_properties(${program} PROPERTIES EXCLUDE_FROM_ALL OFF)
  endif()
endfunction()

# A test program with a main of its own, linked with the library's objects, so
# that it may test what is internal; registered as a test of the same name.
#
#   rsched_program(name source... LABELS label...
#                  [LIBRARIES target...] [ARGUMENTS argument...]
#                  [TIMEOUT seconds] [PROCESSORS n] [ENVIRONMENT VAR=value...])
function(rsched_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LIBRARIES;ARGUMENTS;LABELS;TIMEOUT;PROCESSORS;ENVIRONMENT")
  set(options "")
  foreach(option LABELS TIMEOUT PROCESSORS ENVIRONMENT)
    if(arg_${option})
      list(APPEND options ${option} ${arg_${option}})
    endif()
  endforeach()
  add_executable(${name} ${arg_UNPARSED_ARGUMENTS})
  rsched_compile_options(${name})
  target_compile_options(${name} PRIVATE -UNDEBUG) # assert() must not vanish
  if(RSCHED_FUZZ OR (RSCHED_SANITIZE STREQUAL "thread" AND NOT "tsan" IN_LIST arg_LABELS))
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON) # not run there
  endif()
  target_link_libraries(${name} PRIVATE rsched_internal ${arg_LIBRARIES})
  rsched_test(NAME ${name} COMMAND ${name} ${arg_ARGUMENTS} ${options})
endfunction()

# A Criterion test program: as rsched_program, with the label unit if no other
# is given:
#
#   rsched_criterion(name source... [LABELS label...] [TIMEOUT seconds] ...)
function(rsched_criterion name)
  if(NOT "LABELS" IN_LIST ARGN)
    list(APPEND ARGN LABELS unit)
  endif()
  pkg_check_modules(CRITERION REQUIRED IMPORTED_TARGET criterion)
  rsched_program(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE PkgConfig::CRITERION)
endfunction()

# A libFuzzer program (LLVMFuzzerTestOneInput) with the seed inputs in the
# folder CORPUS, run over RUNS inputs; only there when RSCHED_FUZZ is on.
#
#   rsched_fuzzer(name source... CORPUS folder [RUNS n])
set(RSCHED_FUZZ_RUNS 100000 CACHE STRING "Inputs that the tests give to each fuzzer")
function(rsched_fuzzer name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "CORPUS;RUNS" "")
  if(NOT RSCHED_FUZZ)
    return()
  endif()
  if(NOT arg_RUNS)
    set(arg_RUNS ${RSCHED_FUZZ_RUNS})
  endif()
  add_executable(${name} ${arg_UNPARSED_ARGUMENTS})
  rsched_compile_options(${name})
  target_link_libraries(${name} PRIVATE rsched_internal)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  # New inputs go into the first folder, in the build tree.
  set(found "${CMAKE_CURRENT_BINARY_DIR}/${name}-inputs")
  file(MAKE_DIRECTORY "${found}")
  rsched_test(NAME ${name} LABELS fuzz TIMEOUT 200
              COMMAND ${name} -seed=1 -runs=${arg_RUNS} -timeout=10 -max_total_time=180
                      -artifact_prefix=${name}- "${found}"
                      "${CMAKE_CURRENT_SOURCE_DIR}/${arg_CORPUS}")
endfunction()
