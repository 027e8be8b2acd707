# What `cmake --install` installs: headers, the library, and the two ways in
# which other builds find it (pkg-config, find_package). The folders that make
# programs or further libraries install those themselves.

include(CMakePackageConfigHelpers)

install(TARGETS rsched EXPORT rschedTargets
        LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
        INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(DIRECTORY include/rsched DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        FILES_MATCHING PATTERN "*.h")
install(FILES LICENSE README.md CONTRIBUTING.md CHANGELOG.md DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(DIRECTORY docs DESTINATION "${CMAKE_INSTALL_DOCDIR}")

# find_package(rsched): the target rsched::rsched.
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/rsched")
install(EXPORT rschedTargets NAMESPACE rsched:: DESTINATION "${package_dir}")
configure_package_config_file(cmake/rschedConfig.cmake.in
    "${PROJECT_BINARY_DIR}/rschedConfig.cmake" INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/rschedConfigVersion.cmake"
    COMPATIBILITY SameMinorVersion) # interfaces may change from 0.x to 0.x+1
install(FILES "${PROJECT_BINARY_DIR}/rschedConfig.cmake"
              "${PROJECT_BINARY_DIR}/rschedConfigVersion.cmake"
        DESTINATION "${package_dir}")

# pkg-config rsched. The prefix is written relative to the file, so that it is
# right after `cmake --install --prefix` too.
set(pc_dir "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
file(RELATIVE_PATH pc_to_prefix "${CMAKE_INSTALL_PREFIX}/${pc_dir}"
     "${CMAKE_INSTALL_PREFIX}")
configure_file(cmake/rsched.pc.in "${PROJECT_BINARY_DIR}/rsched.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/rsched.pc" DESTINATION "${pc_dir}")
