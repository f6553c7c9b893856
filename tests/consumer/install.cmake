# cmake -DFROM=<build tree> -DPREFIX=<empty afterwards but for leaselock> -P install.cmake
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE "${PREFIX}")
execute_process(COMMAND ${CMAKE_COMMAND} --install "${FROM}" --prefix "${PREFIX}"
  COMMAND_ERROR_IS_FATAL ANY)
