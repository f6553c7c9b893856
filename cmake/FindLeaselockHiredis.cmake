# Finds hiredis 0.14 or newer and makes the target LeaselockHiredis::hiredis.
#
# Tried in this order: the target hiredis::hiredis, which the project may have already or hiredis'
# own package may export (from 1.0 on; Debian 12's 0.14.1 exports none); then header and library,
# where pkg-config says or in the usual places. From pkg-config only the places are taken: its
# -I.../hiredis would put files named net.h and async.h into everybody's include path.
#
# Used by the build and, installed beside the package, by find_package(leaselock).

if(NOT TARGET hiredis::hiredis)
  # GLOBAL: a vendoring project links from other directories than the one that looked.
  find_package(hiredis CONFIG QUIET GLOBAL)
endif()

if(TARGET hiredis::hiredis)
  set(LeaselockHiredis_LIBRARY hiredis::hiredis)
  set(LeaselockHiredis_VERSION "${hiredis_VERSION}")
else()
  find_package(PkgConfig QUIET)
  if(PkgConfig_FOUND)
    pkg_check_modules(LeaselockHiredis_PC QUIET hiredis)
  endif()
  find_path(LeaselockHiredis_INCLUDE_DIR hiredis/hiredis.h
    HINTS ${LeaselockHiredis_PC_INCLUDE_DIRS} PATH_SUFFIXES .. .)
  find_library(LeaselockHiredis_LIBRARY_FILE hiredis HINTS ${LeaselockHiredis_PC_LIBRARY_DIRS})
  mark_as_advanced(LeaselockHiredis_INCLUDE_DIR LeaselockHiredis_LIBRARY_FILE)
  if(LeaselockHiredis_INCLUDE_DIR AND LeaselockHiredis_LIBRARY_FILE)
    set(LeaselockHiredis_LIBRARY "${LeaselockHiredis_LIBRARY_FILE}")
    set(LeaselockHiredis_VERSION "")
    foreach(part IN ITEMS MAJOR MINOR PATCH)
      file(STRINGS "${LeaselockHiredis_INCLUDE_DIR}/hiredis/hiredis.h" number
        REGEX "^#define HIREDIS_${part} [0-9]+")
      string(REGEX REPLACE "[^0-9]" "" number "${number}")
      list(APPEND LeaselockHiredis_VERSION "${number}")
    endforeach()
    list(JOIN LeaselockHiredis_VERSION "." LeaselockHiredis_VERSION)
  endif()
endif()

set(LeaselockHiredis_REASON "leaselock needs hiredis (header hiredis/hiredis.h and library). Install
    Debian, Ubuntu:  apt install libhiredis-dev
    Fedora:          dnf install hiredis-devel
    Alpine:          apk add hiredis-dev
    macOS:           brew install hiredis
  or set CMAKE_PREFIX_PATH to where it is. The target leaselock::core does without it:
  -DLEASELOCK_HIREDIS=OFF when vendored, find_package(leaselock COMPONENTS core) when installed.")

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LeaselockHiredis
  REQUIRED_VARS LeaselockHiredis_LIBRARY
  VERSION_VAR LeaselockHiredis_VERSION
  REASON_FAILURE_MESSAGE "${LeaselockHiredis_REASON}")

if(LeaselockHiredis_FOUND AND NOT TARGET LeaselockHiredis::hiredis)
  add_library(LeaselockHiredis::hiredis INTERFACE IMPORTED GLOBAL)
  target_link_libraries(LeaselockHiredis::hiredis INTERFACE "${LeaselockHiredis_LIBRARY}")
  if(LeaselockHiredis_INCLUDE_DIR)
    target_include_directories(LeaselockHiredis::hiredis SYSTEM INTERFACE
      "${LeaselockHiredis_INCLUDE_DIR}")
  endif()
endif()
