# cmake -DPROJECT= -DBUILD= -DGENERATOR= -P run.cmake -- <arguments for the project's configuration>
#
# Configures and builds PROJECT afresh and runs its program, `consumer`. With
# LEASELOCK_EXPECTED_FAILURE in the environment, the configuration has to fail and to say that.
cmake_minimum_required(VERSION 3.25)

set(arguments "")
set(behind FALSE)
foreach(i RANGE ${CMAKE_ARGC})
  if(behind AND DEFINED CMAKE_ARGV${i})
    string(REPLACE ";" "\\;" argument "${CMAKE_ARGV${i}}")
    list(APPEND arguments "${argument}")
  elseif("${CMAKE_ARGV${i}}" STREQUAL "--")
    set(behind TRUE)
  endif()
endforeach()

file(REMOVE_RECURSE "${BUILD}")
execute_process(COMMAND ${CMAKE_COMMAND} -G "${GENERATOR}" -S "${PROJECT}" -B "${BUILD}" ${arguments}
  RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
message("${output}")

set(expected "$ENV{LEASELOCK_EXPECTED_FAILURE}")
if(expected)
  string(REGEX REPLACE "[ \n]+" " " output "${output}") # message() folds long lines
  string(FIND "${output}" "${expected}" found)
  if(code EQUAL 0 OR found EQUAL -1)
    message(FATAL_ERROR "expected a failure that says '${expected}'")
  endif()
  return()
endif()
if(NOT code EQUAL 0)
  message(FATAL_ERROR "the configuration failed")
endif()

execute_process(COMMAND ${CMAKE_COMMAND} --build "${BUILD}" COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${BUILD}/consumer" COMMAND_ERROR_IS_FATAL ANY)
