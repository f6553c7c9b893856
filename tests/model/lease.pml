/* SPDX-License-Identifier: MIT
 *
 * The protocol of the lock, small enough to look at every state: clients that acquire, fence, renew,
 * release, hand over and adopt; one Redis; a network that delays, reorders and loses; a clock.
 *
 * A client may stand still between any two steps, and so may a request: a step that can be taken need
 * not be taken yet. A request is executed at any time after it was sent, or never; its reply is read
 * at any time after that, or never. Time is one clock: rates that differ are what the margin is for.
 *
 * Each of the wrong variants is a defect; tests/model/run wants every one of them to be found.
 */
#ifndef CLIENTS
#define CLIENTS 2
#endif
#ifndef TOKENS
#define TOKENS 3 /* acquisitions in all, adoptions among them */
#endif
#ifndef END
#define END 6 /* the last moment of the clock */
#endif
#define TTL 2
#define NOBODY 0

mtype = { idle, setting, fencing, held, renewing, adopting, writing };
mtype = { none, set_nx, fence, expire, del, adopt };

/* Redis: the lock's key, when it expires, and the fence counter */
byte value = NOBODY;
byte expires = 0;
byte counter = 0;

byte now = 0;
byte tokens = 0;         /* given out so far; a token is its number */
byte granted[TOKENS + 1]; /* the place of a token in the order of ownership */
byte grants = 0;
byte fenced = 0;         /* the place of the grant that was fenced last */
byte offer = NOBODY;     /* a lease that was detached: its value */

/* the store behind the lock */
byte highest = 0;
byte wrote = 0;          /* the place of the grant that wrote last */

/* what is on its way: one request that is waited for, and one that is not, for each client */
typedef Request { mtype what = none; byte token; byte old; }
Request asked[CLIENTS];
Request posted[CLIENTS];
bool answered[CLIENTS];
byte answer[CLIENTS];

/* the clients */
mtype at[CLIENTS] = idle;
byte token[CLIENTS];
byte sent[CLIENTS];
byte deadline[CLIENTS];
byte fence_of[CLIENTS];
bool owner[CLIENTS];
bool lapsed[CLIENTS];    /* the deadline was passed while it was the owner: final */

#define OWNS(c) (owner[c] && now < deadline[c])
#define PRESENT (value != NOBODY && now < expires)
#define STORED (PRESENT -> value : NOBODY)

inline execute(request, result) {
    if
    :: request.what == set_nx ->
        if
        :: STORED == NOBODY ->
            value = request.token; expires = now + TTL;
            grants++; granted[request.token] = grants;
            result = 1
        :: else -> result = 0
        fi
    :: request.what == adopt ->
        if
        :: STORED != NOBODY && (STORED == request.old || STORED == request.token) ->
            if
            :: STORED == request.old -> grants++; granted[request.token] = grants
            :: else
            fi;
            value = request.token; expires = now + TTL;
            result = 1
        :: else -> result = 0
        fi
    :: request.what == fence ->
        if
#ifdef WRONG_BLIND_FENCE
        :: true ->
#else
        :: STORED == request.token ->
#endif
            counter++;
            assert(granted[request.token] > fenced); /* it grows in the order of ownership */
            fenced = granted[request.token];
            result = counter
#ifndef WRONG_BLIND_FENCE
        :: else -> result = 0
#endif
        fi
    :: request.what == expire ->
        if
#ifdef WRONG_BLIND_RENEWAL
        :: PRESENT ->
#else
        :: STORED == request.token ->
#endif
            assert(value == request.token); /* no command changes another's key */
            expires = now + TTL;
            result = 1
#ifdef WRONG_CREATING_RENEWAL
        :: STORED == NOBODY -> value = request.token; expires = now + TTL; result = 1;
            assert(false) /* renewal never creates a key */
        :: else -> result = 0
#else
        :: else -> result = 0
#endif
        fi
    :: request.what == del ->
        if
#ifdef WRONG_BLIND_DELETE
        :: PRESENT ->
#else
        :: STORED == request.token ->
#endif
            assert(value == request.token);
            value = NOBODY;
            result = 1
        :: else -> result = 0
        fi
    fi;
    request.what = none; request.token = 0; request.old = 0
}

/* Executes what has arrived, in any order; what it never executes was lost. */
active proctype redis() {
    byte c;
    byte ignored;
end:
    do
    :: d_step {
        asked[0].what != none && !answered[0] -> execute(asked[0], answer[0]); answered[0] = true }
    :: d_step { posted[0].what != none -> execute(posted[0], ignored); ignored = 0 }
    :: d_step {
        asked[1].what != none && !answered[1] -> execute(asked[1], answer[1]); answered[1] = true }
    :: d_step { posted[1].what != none -> execute(posted[1], ignored); ignored = 0 }
#if CLIENTS > 2
    :: d_step {
        asked[2].what != none && !answered[2] -> execute(asked[2], answer[2]); answered[2] = true }
    :: d_step { posted[2].what != none -> execute(posted[2], ignored); ignored = 0 }
#endif
    od
}

active proctype clock() {
    byte c;
end:
    do
    :: d_step {
        now < END ->
        now++;
        c = 0;
        do
        :: c < CLIENTS -> lapsed[c] = lapsed[c] || (owner[c] && now >= deadline[c]); c++
        :: else -> break
        od;
        c = 0
    }
    od
}

inline ask(request, its_token, its_old) {
    asked[me].what = request; asked[me].token = its_token; asked[me].old = its_old;
    answered[me] = false; answer[me] = 0; sent[me] = now
}

/* Waits no longer. The request goes its way; what was not executed yet is executed by nobody's leave. */
inline stop_waiting() {
    if
    :: asked[me].what != none && posted[me].what == none ->
        posted[me].what = asked[me].what;
        posted[me].token = asked[me].token;
        posted[me].old = asked[me].old
    :: else /* it is lost: the other outcome is a step of its own before this one */
    fi;
    asked[me].what = none; asked[me].token = 0; asked[me].old = 0;
    answered[me] = false; answer[me] = 0
}

/* compare-and-delete that nobody waits for; where one is on its way still, this one is lost. */
inline post_deletion() {
    if
    :: posted[me].what == none -> posted[me].what = del; posted[me].token = token[me]
    :: else
    fi
}

inline end_acquisition() {
    owner[me] = false; lapsed[me] = false; at[me] = idle;
    token[me] = 0; sent[me] = 0; deadline[me] = 0; fence_of[me] = 0;
    asked[me].what = none; asked[me].token = 0; asked[me].old = 0;
    answered[me] = false; answer[me] = 0
}

inline grant() {
    owner[me] = true;
#ifdef WRONG_DEADLINE_FROM_REPLY
    deadline[me] = now + TTL;
#else
    deadline[me] = sent[me] + TTL;
#endif
    assert(!OWNS(0) || !OWNS(1));
#if CLIENTS > 2
    assert(!OWNS(0) || !OWNS(2));
    assert(!OWNS(1) || !OWNS(2));
#endif
    at[me] = held
}

proctype client(byte me) {
end:
    do
    /* acquire: a token of its own for each attempt */
    :: d_step { at[me] == idle && tokens < TOKENS && posted[me].what == none ->
        tokens++; token[me] = tokens; ask(set_nx, token[me], 0); at[me] = setting }
    :: d_step { at[me] == setting && answered[me] && answer[me] == 1 ->
        if
        :: now < sent[me] + TTL -> grant()
        :: else -> post_deletion(); end_acquisition() /* a yes that came too late is none */
        fi }
    :: d_step { at[me] == setting && answered[me] && answer[me] == 0 -> end_acquisition() }
    /* no reply: unknown, which is never believed; the ghost is deleted by its token */
    :: d_step { (at[me] == setting || at[me] == adopting) ->
        stop_waiting();
#ifdef WRONG_UNKNOWN_BELIEVED
        grant()
#else
        post_deletion(); end_acquisition()
#endif
        }

    /* the fence, once for an acquisition; its lease runs on meanwhile */
    :: d_step { at[me] == held && fence_of[me] == 0 ->
        asked[me].what = fence; asked[me].token = token[me]; answered[me] = false; answer[me] = 0;
        at[me] = fencing }
    :: d_step { at[me] == fencing && answered[me] ->
        if
        :: answer[me] != 0 -> fence_of[me] = answer[me]; at[me] = held;
            answered[me] = false; answer[me] = 0
        :: else -> end_acquisition() /* lost */
        fi }
    :: d_step { at[me] == fencing -> post_deletion(); end_acquisition() }

    /* renew */
    :: d_step { at[me] == held && OWNS(me) -> ask(expire, token[me], 0); at[me] = renewing }
    :: d_step { at[me] == renewing && answered[me] ->
        if
        :: answer[me] == 0 -> end_acquisition() /* lost */
#ifdef WRONG_REVIVING_RENEWAL
        :: answer[me] == 1 ->
#else
        :: answer[me] == 1 && OWNS(me) ->
#endif
            if
            :: sent[me] + TTL > deadline[me] -> deadline[me] = sent[me] + TTL
            :: else
            fi;
            assert(!lapsed[me] || !OWNS(me)); /* what was lost never comes back */
            at[me] = held; answered[me] = false; answer[me] = 0
#ifndef WRONG_REVIVING_RENEWAL
        :: answer[me] == 1 && !OWNS(me) -> post_deletion(); end_acquisition()
#endif
        fi }
    :: d_step { at[me] == renewing -> stop_waiting(); at[me] = held }

    /* a check, any time to think, and a write to the store, which refuses what is older */
    :: d_step { at[me] == held && OWNS(me) && fence_of[me] != 0 -> at[me] = writing }
    :: d_step { at[me] == writing ->
        if
        :: fence_of[me] >= highest ->
            highest = fence_of[me];
            assert(granted[token[me]] >= wrote); /* no stale write behind a newer one */
            wrote = granted[token[me]]
        :: else
        fi;
        at[me] = held }

    /* the end: given back, or lost at the deadline; the destructor deletes in any case */
    :: d_step { at[me] == held -> post_deletion(); end_acquisition() }

    /* handed over: to whoever adopts first */
    :: d_step { at[me] == held && OWNS(me) && offer == NOBODY -> offer = token[me];
        end_acquisition() }
    :: d_step { at[me] == idle && offer != NOBODY && tokens < TOKENS && posted[me].what == none ->
        tokens++; token[me] = tokens; ask(adopt, token[me], offer); at[me] = adopting }
    :: d_step { at[me] == adopting && answered[me] ->
        if
        :: answer[me] == 1 && now < sent[me] + TTL -> grant()
        :: answer[me] == 1 && now >= sent[me] + TTL -> post_deletion(); end_acquisition()
        :: answer[me] == 0 -> end_acquisition()
        fi }
    od
}

init {
    atomic {
        run client(0);
        run client(1);
#if CLIENTS > 2
        run client(2)
#endif
    }
}
