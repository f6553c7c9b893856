# What we ask of our own tests and examples, and of nobody else: neither target is exported.
# -Werror is a property, so that `cmake --compile-no-warning-as-error` can lift it.
add_library(leaselock_strict INTERFACE)
target_compile_options(leaselock_strict INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wold-style-cast
  # gcc 12 sees an overlap in "k" + std::to_string(1): https://gcc.gnu.org/bugzilla/show_bug.cgi?id=105651
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>)

function(leaselock_strict target)
  target_link_libraries(${target} PRIVATE leaselock_strict)
  set_target_properties(${target} PROPERTIES
    CXX_EXTENSIONS OFF
    COMPILE_WARNING_AS_ERROR ON)
endfunction()
