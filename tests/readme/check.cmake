# cmake -DREADME= -DCOMPILER= -DINCLUDES= -DPRELUDE= -DWORK_DIR= -P check.cmake
#
# Compiles every C++ block of the README:
#   ```cpp        statements: the #includes go to the top, the rest into a function
#   ```cpp file   a file as it stands
#   ```cpp skip   not compiled
# PRELUDE declares what the snippets take for granted. Errors carry the README's line numbers.
cmake_minimum_required(VERSION 3.25)
list(TRANSFORM INCLUDES PREPEND -I)

file(READ "${README}" rest)
string(PREPEND rest "\n")
set(line 0)
set(compiled 0)
set(failed 0)

while(TRUE)
  # From one fence to the next; strings only, for a list would fall apart at [, ] and ;
  string(FIND "${rest}" "\n```cpp" start)
  if(start EQUAL -1)
    break()
  endif()
  string(SUBSTRING "${rest}" 0 ${start} before)
  string(REGEX MATCHALL "\n" newlines "${before}\n")
  list(LENGTH newlines count)
  math(EXPR line "${line} + ${count}") # that of the opening fence

  math(EXPR start "${start} + 7")
  string(SUBSTRING "${rest}" ${start} -1 rest)
  string(FIND "${rest}" "\n" end)
  string(SUBSTRING "${rest}" 0 ${end} info)
  string(STRIP "${info}" info)
  string(SUBSTRING "${rest}" ${end} -1 rest)
  string(FIND "${rest}" "\n```" end)
  if(end EQUAL -1)
    message(FATAL_ERROR "README.md:${line}: this block has no end")
  endif()
  string(SUBSTRING "${rest}" 0 ${end} block)
  string(SUBSTRING "${rest}" ${end} -1 rest)

  math(EXPR first "${line} + 1")
  string(REGEX MATCHALL "\n" newlines "${block}")
  list(LENGTH newlines count)
  math(EXPR line "${line} + ${count}")

  if(info STREQUAL "skip")
    continue()
  elseif(info STREQUAL "file")
    set(source "#line ${first} \"README.md\"${block}\n")
  elseif(info STREQUAL "")
    # The include lines leave an empty line behind, so that the line numbers stay right.
    string(REGEX MATCHALL "\n#include[^\n]*" includes "${block}")
    string(REPLACE ";" "" includes "${includes}")
    string(REGEX REPLACE "\n#include[^\n]*" "\n" body "${block}")
    set(source "#include \"${PRELUDE}\"${includes}\nvoid readme_snippet() {
#line ${first} \"README.md\"${body}\n}\n")
  else()
    message(FATAL_ERROR "README.md: a cpp block is plain, 'file' or 'skip', not '${info}'")
  endif()

  math(EXPR compiled "${compiled} + 1")
  set(file "${WORK_DIR}/snippet_${compiled}.cpp")
  file(WRITE "${file}" "${source}")
  execute_process(COMMAND ${COMPILER} -std=c++20 -fsyntax-only -Wall -Wextra ${INCLUDES} "${file}"
    RESULT_VARIABLE code ERROR_VARIABLE output)
  if(NOT code EQUAL 0)
    math(EXPR failed "${failed} + 1")
  endif()
  if(output)
    message("${output}")
  endif()
endwhile()

if(compiled EQUAL 0)
  message(FATAL_ERROR "README.md has no C++ block that is compiled")
endif()
if(failed)
  message(FATAL_ERROR "${failed} of the README's ${compiled} C++ blocks do not compile")
endif()
message(STATUS "the README's ${compiled} C++ blocks compile")
