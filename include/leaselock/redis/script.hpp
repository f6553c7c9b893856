#pragma once
// SPDX-License-Identifier: MIT

#include <leaselock/core/config.hpp>

#include <string_view>

/// The scripts through which a lock is renewed, released, adopted and fenced.
///
/// They read with GETEX, not GET: it counts as a write, so that a replica or a demoted master
/// answers READONLY instead of a false 0; without options it changes nothing and works when memory
/// is full. Servers before 6.2 lack it and get the variant with GET, which on a replica is fooled.
/// Each script changes at most one key, by its last command: an error inside means no change.
/// Source: design, "The wire".
namespace leaselock {
inline namespace LEASELOCK_ABI {

/// A script's text and the SHA-1 of it, as EVALSHA wants it.
struct ScriptText {
    std::string_view text;
    std::string_view sha1;
};

/// A script in its two dialects, and what an ACL user must be permitted for it.
struct Script {
    ScriptText getex;
    ScriptText get; ///< for servers before 6.2
    std::string_view permissions;
};

// clang-format off: a line of a script to a line; examples/ab_experiment.sh reads them here
namespace scripts {

/// K1 lock, A1 value; 1 deleted, 0 another's, -1 absent.
inline constexpr Script compare_and_delete{
    {"local v=redis.call('getex',KEYS[1])\n"
     "if v==ARGV[1] then return redis.call('del',KEYS[1]) end\n"
     "return v and 0 or -1",
     "82e087a07c1b3bc0fafefb4a490fe3f059047cbf"},
    {"local v=redis.call('get',KEYS[1])\n"
     "if v==ARGV[1] then return redis.call('del',KEYS[1]) end\n"
     "return v and 0 or -1",
     "237dada7b3d01945ed42979a4845cb68e4e147d7"},
    "+getex +del",
};

/// compare-and-delete in one text that every server takes: for a deletion whose answer nobody may be
/// there to read, so that nobody would send the other dialect. What is no lack of GETEX is raised by
/// asking once more.
inline constexpr Script compare_and_delete_anywhere{
    {"local v=redis.pcall('getex',KEYS[1])\n"
     "if type(v)=='table' then\n"
     "  v=redis.call(string.find(v.err,'nknown .*command') and 'get' or 'getex',KEYS[1])\n"
     "end\n"
     "if v==ARGV[1] then return redis.call('del',KEYS[1]) end\n"
     "return v and 0 or -1",
     "59bcfcbc22aa41a745b44f7147050baede77c43f"},
    compare_and_delete_anywhere.getex,
    "+getex +del",
};

/// K1 lock, A1 value, A2 ttl ms; 1 renewed, 0 another's, -1 absent.
inline constexpr Script compare_and_expire{
    {"local v=redis.call('getex',KEYS[1])\n"
     "if v==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) end\n"
     "return v and 0 or -1",
     "dbce3688d40f5db939ad4d4f0252887f512a082e"},
    {"local v=redis.call('get',KEYS[1])\n"
     "if v==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) end\n"
     "return v and 0 or -1",
     "da92cb6fa39ae504b2b46f62ed681cf73e10d2eb"},
    "+getex +pexpire",
};

/// K1 lock, A1 old value, A2 new value, A3 ttl ms; 1 adopted, 0 another's, -1 absent; safe to
/// repeat, since the new value counts as the old one.
inline constexpr Script compare_and_adopt{
    {"local v=redis.call('getex',KEYS[1])\n"
     "if v~=ARGV[1] and v~=ARGV[2] then return v and 0 or -1 end\n"
     "redis.call('set',KEYS[1],ARGV[2],'PX',ARGV[3])\n"
     "return 1",
     "1fd1dbec0df6bf52fc0c0d0299ae3c4affee2bee"},
    {"local v=redis.call('get',KEYS[1])\n"
     "if v~=ARGV[1] and v~=ARGV[2] then return v and 0 or -1 end\n"
     "redis.call('set',KEYS[1],ARGV[2],'PX',ARGV[3])\n"
     "return 1",
     "0a80d57c24f672a190ffac034da61582ef1fc781"},
    "+getex +set",
};

/// K1 lock, K2 fence counter in the same slot, A1 value, A2 ms to keep the counter; the new
/// fencing token, "0" another's, "-1" absent. The counter follows the server's clock in microseconds
/// where that is ahead; its expiry derives from the value, so that an idle day cannot take it back.
inline constexpr Script compare_and_fence{
    {"local v=redis.call('getex',KEYS[1])\n"
     "if v~=ARGV[1] then return v and '0' or '-1' end\n"
     "local t=redis.call('time')\n"
     "local n=t[1]*1000000+t[2]\n"
     "local p=redis.call('get',KEYS[2])\n"
     "if p then\n"
     "  if #p>16 or not string.find(p,'^%d+$') then return redis.error_reply('FENCE corrupt') end\n"
     "  if tonumber(p)>=n then n=p+1 end\n"
     "end\n"
     "if n>=9007199254740992 then return redis.error_reply('FENCE overflow') end\n"
     "local s=string.format('%.0f',n)\n"
     "redis.call('set',KEYS[2],s,'PXAT',string.format('%.0f',math.floor(n/1000)+1+ARGV[2]))\n"
     "return s",
     "ec93e986163570b0bb67c063230b8d87f9c3b6f5"},
    {"if redis.replicate_commands then redis.replicate_commands() end\n"
     "local v=redis.call('get',KEYS[1])\n"
     "if v~=ARGV[1] then return v and '0' or '-1' end\n"
     "local t=redis.call('time')\n"
     "local w=t[1]*1000000+t[2]\n"
     "local n=w\n"
     "local p=redis.call('get',KEYS[2])\n"
     "if p then\n"
     "  if #p>16 or not string.find(p,'^%d+$') then return redis.error_reply('FENCE corrupt') end\n"
     "  if tonumber(p)>=n then n=p+1 end\n"
     "end\n"
     "if n>=9007199254740992 then return redis.error_reply('FENCE overflow') end\n"
     "local s=string.format('%.0f',n)\n"
     "redis.call('set',KEYS[2],s,'PX',string.format('%.0f',math.floor((n-w)/1000)+1+ARGV[2]))\n"
     "return s",
     "75668fdbf40fe50b68f5a493ce00e1770508e929"},
    "+getex +time +get +set",
};

/// No keys: the id that a server draws when it starts. It is asked once per connect, as text.
inline constexpr std::string_view run_id =
    "return string.match(redis.call('info','server'),'run_id:(%x+)')";

} // namespace scripts
// clang-format on
} // namespace LEASELOCK_ABI
} // namespace leaselock
