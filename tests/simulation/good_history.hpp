#pragma once
// SPDX-License-Identifier: MIT

#include <string>
#include <vector>

namespace leaselock::simulation {

/// A history that keeps all rules: c0 takes k0, has it renewed, is refused nothing, and gives it back;
/// c1 finds it busy, and takes it then. ttl 1,000 ms, margin 12 ms.
inline const std::vector<std::string> good = {
    "0 c0 clock offset=0 ppm=0",
    "0 c1 clock offset=0 ppm=0",
    "1 c0 guard guard=a key=k0 ttl=1000 margin=12000000 fenced=1 nodes=1",
    "1 c0 call call=1 guard=a verb=acquire limit=100000000",
    "1 c0 send id=1 verb=set key=k0 token=A ttl=1000 to=s0",
    "1 c0 send id=2 verb=fence key=k0 token=A to=s0",
    "2 s0 exec id=1 verb=set key=k0 token=A is=ok before=- after=A left=1000 ttl=1000 clock=2",
    "2 s0 exec id=2 verb=fence key=k0 token=A is=70 before=A after=A left=1000 counter_left=9 "
    "clock=2",
    "3 c0 reply id=1 is=ok",
    "3 c0 reply id=2 is=70",
    "3 c0 event guard=a verb=acquire answer=yes token=A elapsed=2000000 remaining=986000000",
    "3 c0 return call=1 answer=yes token=A deadline=989000000 fence=70",
    "4 c0 call call=2 guard=a verb=keep limit=0",
    "4 c0 return call=2 answer=yes token=A deadline=989000000",
    "4 c0 listen guard=a token=A",
    "5 store register key=k0 token=A fence=70 ok=1",
    "6 c1 guard guard=b key=k0 ttl=1000 margin=12000000 fenced=1 nodes=1",
    "6 c1 send id=3 verb=set key=k0 token=B ttl=1000 to=s0",
    "7 s0 exec id=3 verb=set key=k0 token=B is=nil before=A after=A left=995 ttl=1000 clock=7",
    "8 c1 reply id=3 is=nil",
    "8 c1 event guard=b verb=acquire answer=no token=B elapsed=2000000 remaining=0",
    "300 c0 send id=4 verb=expire key=k0 token=A ttl=1000 to=s0 asked=300000000",
    "301 s0 exec id=4 verb=expire key=k0 token=A is=1 before=A after=A left=1000 ttl=1000 "
    "clock=301",
    "302 c0 reply id=4 is=1",
    "302 c0 event guard=a verb=renew answer=yes token=A elapsed=2000000 remaining=986000000",
    "303 c0 owns guard=a token=A is=1 deadline=1288000000 loss=none",
    "304 store write key=k0 token=A fence=70 ok=1",
    "305 c0 unlisten guard=a token=A",
    "400 c0 call call=3 guard=a verb=unlock limit=100000000",
    "400 c0 send id=5 verb=delete key=k0 token=A to=s0",
    "401 s0 exec id=5 verb=delete key=k0 token=A is=1 before=A after=- left=-2 clock=401",
    "402 c0 reply id=5 is=1",
    "402 c0 event guard=a verb=release answer=yes token=A elapsed=2000000 remaining=0",
    "402 c0 return call=3 answer=yes token=A deadline=0",
    "403 c0 owns guard=a token=A is=0 deadline=0 loss=none",
    "404 c0 call call=4 guard=a verb=end limit=100000000",
    "404 c0 return call=4 answer=yes",
    "500 c1 send id=6 verb=set key=k0 token=C ttl=1000 to=s0",
    "500 c1 send id=7 verb=fence key=k0 token=C to=s0",
    "501 s0 exec id=6 verb=set key=k0 token=C is=ok before=- after=C left=1000 ttl=1000 clock=501",
    "501 s0 exec id=7 verb=fence key=k0 token=C is=80 before=C after=C left=1000 counter_left=9 "
    "clock=501",
    "502 c1 reply id=6 is=ok",
    "502 c1 reply id=7 is=80",
    "502 c1 event guard=b verb=acquire answer=yes token=C elapsed=2000000 remaining=986000000",
    "503 store register key=k0 token=C fence=80 ok=1",
    "504 store write key=k0 token=A fence=70 ok=0",
};

} // namespace leaselock::simulation
