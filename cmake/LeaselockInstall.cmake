# Headers and the CMake package. Everything is text, so the package goes to share/ and fits every
# architecture.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_DATADIR}/cmake/leaselock")

# One export per component: find_package(leaselock COMPONENTS core) must not look for hiredis.
install(TARGETS leaselock_core EXPORT leaselock_core FILE_SET HEADERS)
install(EXPORT leaselock_core NAMESPACE leaselock:: DESTINATION "${package_dir}"
  FILE leaselock-core.cmake)
if(LEASELOCK_HIREDIS)
  install(TARGETS leaselock EXPORT leaselock FILE_SET HEADERS)
  install(FILES "${PROJECT_SOURCE_DIR}/include/leaselock/definitions.ipp"
    DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/leaselock")
  install(EXPORT leaselock NAMESPACE leaselock:: DESTINATION "${package_dir}"
    FILE leaselock-leaselock.cmake)
  install(FILES "${CMAKE_CURRENT_LIST_DIR}/FindLeaselockHiredis.cmake" DESTINATION "${package_dir}")
endif()

if(TARGET leaselock_tls)
  install(TARGETS leaselock_tls EXPORT leaselock_tls FILE_SET HEADERS)
  install(EXPORT leaselock_tls NAMESPACE leaselock:: DESTINATION "${package_dir}"
    FILE leaselock-tls.cmake)
endif()

configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/leaselock-config.cmake.in"
  leaselock-config.cmake INSTALL_DESTINATION "${package_dir}"
  NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(leaselock-config-version.cmake
  COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES
  "${CMAKE_CURRENT_BINARY_DIR}/leaselock-config.cmake"
  "${CMAKE_CURRENT_BINARY_DIR}/leaselock-config-version.cmake"
  DESTINATION "${package_dir}")
