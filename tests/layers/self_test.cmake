# cmake -DWORK_DIR=<scratch> -P self_test.cmake
#
# Shows that check.cmake fails on each kind of bad tree, for the right reason, and on no good one.
cmake_minimum_required(VERSION 3.25)

# tree(<name> <expected text, or "good"> {<header> <what stands in it>}...)
function(tree name expected)
  set(root "${WORK_DIR}/${name}")
  file(REMOVE_RECURSE "${root}")
  file(MAKE_DIRECTORY "${root}")
  set(rest ${ARGN})
  while(rest)
    list(POP_FRONT rest header content)
    file(WRITE "${root}/leaselock/${header}" "#pragma once\n${content}\n")
  endwhile()

  execute_process(
    COMMAND ${CMAKE_COMMAND} "-DINCLUDE_DIR=${root}" -P "${CMAKE_CURRENT_LIST_DIR}/check.cmake"
    RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  string(REGEX REPLACE "[ \n]+" " " output "${output}") # message() folds long lines
  string(FIND "${output}" "${expected}" found)
  if(expected STREQUAL "good" AND code EQUAL 0)
    message(STATUS "${name}: passes, as it should")
  elseif(NOT expected STREQUAL "good" AND NOT code EQUAL 0 AND NOT found EQUAL -1)
    message(STATUS "${name}: fails, as it should")
  else()
    message(SEND_ERROR "${name}: expected '${expected}', got exit code ${code}: ${output}")
  endif()
endfunction()

tree(every_arrow_down "good"
  core/a.hpp "#include <string>\n#include <leaselock/core/detail/b.hpp>"
  core/detail/b.hpp "// #include <leaselock/lock/e.hpp>"
  redis/c.hpp "#include <leaselock/core/a.hpp>"
  hiredis/d.hpp "#include <leaselock/redis/c.hpp>\n#include <hiredis/hiredis.h>"
  lock/e.hpp "#include <leaselock/core/a.hpp>"
  testing/f.hpp "#include <leaselock/redis/c.hpp>"
  leaselock.hpp "#include <leaselock/lock/e.hpp>\n#include <leaselock/hiredis/d.hpp>")
tree(tls_apart "good"
  hiredis/tls.hpp "#include <leaselock/hiredis/detail/tls_a.hpp>"
  hiredis/detail/tls_a.hpp "#include <openssl/ssl.h>")
tree(tls_for_everybody "hiredis/a.hpp: TLS is included by those who want it: leaselock/hiredis/tls.hpp"
  hiredis/a.hpp "#include <leaselock/hiredis/tls.hpp>" hiredis/tls.hpp "")
tree(openssl_outside "hiredis/a.hpp: OpenSSL outside TLS: openssl/ssl.h"
  hiredis/a.hpp "#include <openssl/ssl.h>")
tree(upward "core/a.hpp: upward include: leaselock/redis/c.hpp"
  core/a.hpp "#include <leaselock/redis/c.hpp>" redis/c.hpp "")
tree(upward_to_the_top "lock/e.hpp: upward include: leaselock/leaselock.hpp"
  lock/e.hpp "#include <leaselock/leaselock.hpp>" leaselock.hpp "")
tree(upward_in_quotes "redis/c.hpp: upward include: leaselock/lock/e.hpp"
  redis/c.hpp "  #  include \"../lock/e.hpp\"" lock/e.hpp "")
tree(upward_in_quotes_from_the_root "redis/c.hpp: upward include: leaselock/lock/e.hpp"
  redis/c.hpp "#include \"leaselock/lock/e.hpp\"" lock/e.hpp "")
tree(sideways "lock/e.hpp: sideways include: leaselock/hiredis/d.hpp"
  lock/e.hpp "#include <leaselock/hiredis/d.hpp>" hiredis/d.hpp "")
tree(sideways_to_testing "hiredis/d.hpp: sideways include: leaselock/testing/f.hpp"
  hiredis/d.hpp "#include <leaselock/testing/f.hpp>" testing/f.hpp "")
tree(detail "redis/c.hpp: detail of another room: leaselock/core/detail/b.hpp"
  redis/c.hpp "#include <leaselock/core/detail/b.hpp>" core/detail/b.hpp "")
tree(detail_from_the_top "leaselock.hpp: detail of another room: leaselock/lock/detail/g.hpp"
  leaselock.hpp "#include <leaselock/lock/detail/g.hpp>" lock/detail/g.hpp "")
tree(circle "circle among, or above a circle: leaselock/core/a.hpp leaselock/core/b.hpp leaselock/core/c.hpp"
  core/a.hpp "#include <leaselock/core/b.hpp>"
  core/b.hpp "#include <leaselock/core/c.hpp>"
  core/c.hpp "#include <leaselock/core/a.hpp>")
tree(itself "circle among"
  core/a.hpp "#include <leaselock/core/a.hpp>")
tree(hiredis_in_the_lock "lock/e.hpp: hiredis outside its room: hiredis/hiredis.h"
  lock/e.hpp "#include <hiredis/hiredis.h>")
tree(missing "core/a.hpp: no such header: leaselock/core/typo.hpp"
  core/a.hpp "#include <leaselock/core/typo.hpp>")
tree(unknown_room "leaselock/utils/h.hpp: no such room"
  utils/h.hpp "")
tree(empty "nothing was checked")
