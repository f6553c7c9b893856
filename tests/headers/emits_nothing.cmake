# cmake -DNM= -DOBJECTS= -P emits_nothing.cmake
#
# The objects include every header, and use none of it: they define nothing of the library's. A virtual
# function that is declared without inline and defined with it, or a variable that is filled in at
# start-up, would have every file of every user compile all that hangs on it.
foreach(object IN LISTS OBJECTS)
  execute_process(COMMAND "${NM}" -C --defined-only "${object}"
    OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  # g++ 14 leaves local constants (r) for concepts of the standard library
  string(REGEX MATCHALL "[^\n]* [A-QS-Za-qs-z] [^\n]*leaselock::[^\n]*" found "${symbols}")
  if(found)
    list(LENGTH found count)
    list(SUBLIST found 0 10 found)
    string(REPLACE ";" "\n" found "${found}")
    message(SEND_ERROR "${object} defines ${count} symbols:\n${found}")
  endif()
endforeach()
