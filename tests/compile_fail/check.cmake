# cmake -DCOMPILER= -DINCLUDES= -DCASE= -DEXPECTED=<regex> -P check.cmake
cmake_minimum_required(VERSION 3.25)
set(ENV{LC_ALL} C) # the compiler's messages are compared
list(TRANSFORM INCLUDES PREPEND -I)

# clang counts a discarded constructor call as an unused value.
set(compile ${COMPILER} -std=c++20 -fsyntax-only ${INCLUDES}
  -Werror=unused-result -Werror=unused-value ${CASE})

execute_process(COMMAND ${compile} -DGOOD RESULT_VARIABLE code ERROR_VARIABLE output)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "The good twin does not compile:\n${output}")
endif()

execute_process(COMMAND ${compile} RESULT_VARIABLE code ERROR_VARIABLE output)
if(code EQUAL 0)
  message(FATAL_ERROR "It compiles, and must not.")
endif()
if(NOT output MATCHES "error: [^\n]*${EXPECTED}")
  message(FATAL_ERROR "It fails, but not with an error about '${EXPECTED}':\n${output}")
endif()
