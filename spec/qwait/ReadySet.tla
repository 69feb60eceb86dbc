------------------------------ MODULE ReadySet ------------------------------
(* The notification protocol of crate `qwait`, over sequentially consistent     *)
(* memory: doorbells, ready bits, masks, owners, sleepers.                       *)
(*                                                                              *)
(* Every action has the name that it has in core/qwait/tests/spec.rs, which    *)
(* visits all states of small instances with `cargo test`. Here Shared chooses   *)
(* the form: TRUE for several consumers with owners, FALSE for one with lazily    *)
(* cleared bits; and with Direct that one has no bits but those of activation:   *)
(* a queue is ready where its doorbell says so (sets of up to 8 queues).         *)
EXTENDS Naturals, FiniteSets

CONSTANTS Queues,      \* numbered from 1
          Consumers,   \* numbered from 1; a single one where Shared is FALSE
          Producers,
          Items,       \* how many items each producer enqueues
          Strays,      \* ready bits that a late producer of a removed queue sets
          Masked,      \* queues that are disabled at first
          Shared,
          Direct

ASSUME /\ Items \in Nat /\ Strays \in Nat /\ Shared \in BOOLEAN /\ Direct \in BOOLEAN
       /\ ~(Shared /\ Direct)
       /\ Queues = 1..Cardinality(Queues)
       /\ Queues \subseteq Nat /\ Consumers \subseteq Nat /\ Masked \subseteq Queues
       /\ ~Shared => Cardinality(Consumers) = 1

None == 0

VARIABLES count,     \* doorbells
          ready,     \* set of queues whose bit is set
          masked,    \* set of disabled queues
          owner,     \* queue -> the consumer that took its doorbell, or None
          sleepers,  \* the sleepers' word
          changed,   \* consumers whose token changed since they read it
          baton,     \* consumers that a waker picked
          pp,        \* producer -> <<place, queue>>
          cp,        \* consumer -> <<place, queue>>
          items,     \* producer -> items yet to be enqueued
          strays,
          timer,     \* queues that are enabled and whose wake-up is still to be done
          served     \* items taken

vars == <<count, ready, masked, owner, sleepers, changed, baton, pp, cp, items, strays, timer,
          served>>

At(place) == <<place, None>>
Ready(q) == (q \in ready \/ (Direct /\ count[q] > 0)) /\ q \notin masked
AnyReady == \E q \in Queues : Ready(q)
Sum(f) == LET RECURSIVE Over(_)
              Over(S) == IF S = {} THEN 0
                         ELSE LET x == CHOOSE x \in S : TRUE IN f[x] + Over(S \ {x})
          IN Over(DOMAIN f)

Init == /\ count = [q \in Queues |-> 0]
        /\ ready = IF Direct THEN Queues ELSE {}    \* adding activates
        /\ masked = Masked
        /\ owner = [q \in Queues |-> None]
        /\ sleepers = {} /\ changed = {} /\ baton = {}
        /\ pp = [p \in Producers |-> At("Idle")]
        /\ cp = [c \in Consumers |-> At("Look")]
        /\ items = [p \in Producers |-> Items]
        /\ strays = Strays
        /\ timer = {}
        /\ served = 0

(* The lowest sleeper is taken out of the word and its token changed. *)
WakeOne ==
    IF sleepers = {} THEN UNCHANGED <<sleepers, changed>>
    ELSE LET picked == CHOOSE c \in sleepers : \A d \in sleepers : c <= d
         IN sleepers' = sleepers \ {picked} /\ changed' = changed \cup {picked}

------------------------------------------------------------------------------
(* Producers *)

Ring(p, q) ==
    /\ pp[p] = At("Idle") /\ items[p] > 0
    /\ items' = [items EXCEPT ![p] = @ - 1]
    /\ count' = [count EXCEPT ![q] = @ + 1]
    /\ pp' = [pp EXCEPT ![p] = CASE count[q] > 0 -> @
                                 [] Direct -> At("Wake")
                                 [] OTHER -> <<"Set", q>>]
    /\ UNCHANGED <<ready, masked, owner, sleepers, changed, baton, cp, strays, timer, served>>

Set(p) ==
    /\ pp[p][1] = "Set"
    /\ ready' = ready \cup {pp[p][2]}
    /\ pp' = [pp EXCEPT ![p] = At("Wake")]
    /\ UNCHANGED <<count, masked, owner, sleepers, changed, baton, cp, items, strays, timer, served>>

Wake(p) ==
    /\ pp[p] = At("Wake")
    /\ WakeOne
    /\ pp' = [pp EXCEPT ![p] = At("Idle")]
    /\ UNCHANGED <<count, ready, masked, owner, baton, cp, items, strays, timer, served>>

Stray(q) ==
    /\ strays > 0
    /\ strays' = strays - 1
    /\ ready' = IF Direct THEN ready ELSE ready \cup {q}
    /\ WakeOne
    /\ UNCHANGED <<count, masked, owner, baton, pp, cp, items, timer, served>>

------------------------------------------------------------------------------
(* The timer that enables queues *)

Enable(q) ==
    /\ q \in masked
    /\ masked' = masked \ {q}
    /\ timer' = timer \cup {q}
    /\ UNCHANGED <<count, ready, owner, sleepers, changed, baton, pp, cp, items, strays, served>>

EnableWake(q) ==
    /\ q \in timer
    /\ timer' = timer \ {q}
    /\ WakeOne
    /\ UNCHANGED <<count, ready, masked, owner, baton, pp, cp, items, strays, served>>

------------------------------------------------------------------------------
(* Consumers *)

Go(c, place) == cp' = [cp EXCEPT ![c] = place]

Look(c, q) ==
    /\ cp[c] = At("Look") /\ Ready(q)
    /\ Go(c, <<"Verify", q>>)
    /\ ready' = IF Shared THEN ready \ {q} ELSE ready
    /\ UNCHANGED <<count, masked, owner, sleepers, changed, baton, pp, items, strays, timer, served>>

LookFindsNothing(c) ==
    /\ cp[c] = At("Look") /\ ~AnyReady
    /\ Go(c, At("Announce"))
    /\ changed' = changed \ {c}
    /\ baton' = baton \ {c}
    /\ UNCHANGED <<count, ready, masked, owner, sleepers, pp, items, strays, timer, served>>

Verify(c) ==
    LET q == cp[c][2] IN
    /\ cp[c][1] = "Verify"
    /\ IF Shared /\ count[q] > 0 /\ owner[q] = None
       THEN Go(c, <<"Confirm", q>>) /\ owner' = [owner EXCEPT ![q] = c]
       ELSE /\ UNCHANGED owner
            /\ Go(c, IF Shared THEN At("Look")
                     ELSE IF count[q] = 0 THEN <<"Clear", q>> ELSE <<"Serve", q>>)
    /\ UNCHANGED <<count, ready, masked, sleepers, changed, baton, pp, items, strays, timer, served>>

Confirm(c) ==
    LET q == cp[c][2] IN
    /\ cp[c][1] = "Confirm"
    /\ IF count[q] > 0
       THEN Go(c, <<"PassBaton", q>>) /\ UNCHANGED owner
       ELSE Go(c, At("Look")) /\ owner' = [owner EXCEPT ![q] = None]
    /\ UNCHANGED <<count, ready, masked, sleepers, changed, baton, pp, items, strays, timer, served>>

PassBaton(c) ==
    /\ cp[c][1] = "PassBaton"
    /\ IF c \in baton /\ AnyReady THEN WakeOne ELSE UNCHANGED <<sleepers, changed>>
    /\ baton' = baton \ {c}
    /\ Go(c, <<"Serve", cp[c][2]>>)
    /\ UNCHANGED <<count, ready, masked, owner, pp, items, strays, timer, served>>

Serve(c) ==
    LET q == cp[c][2]
        left == count[q] - 1
    IN
    /\ cp[c][1] = "Serve"
    /\ count' = [count EXCEPT ![q] = left]
    /\ owner' = [owner EXCEPT ![q] = None]
    /\ served' = served + 1
    /\ Go(c, CASE Shared /\ left = 0 -> At("Process")
               [] Shared /\ left > 0 -> <<"Reactivate", q>>
               [] ~Shared /\ left = 0 -> <<"Clear", q>>
               [] OTHER -> At("Look"))
    /\ UNCHANGED <<ready, masked, sleepers, changed, baton, pp, items, strays, timer>>

Reactivate(c) ==
    /\ cp[c][1] = "Reactivate"
    /\ ready' = ready \cup {cp[c][2]}
    /\ Go(c, At("ReactivateWake"))
    /\ UNCHANGED <<count, masked, owner, sleepers, changed, baton, pp, items, strays, timer, served>>

ReactivateWake(c) ==
    /\ cp[c] = At("ReactivateWake")
    /\ WakeOne
    /\ Go(c, At("Process"))
    /\ UNCHANGED <<count, ready, masked, owner, baton, pp, items, strays, timer, served>>

Process(c) ==
    /\ cp[c] = At("Process")
    /\ Go(c, At("Look"))
    /\ UNCHANGED <<count, ready, masked, owner, sleepers, changed, baton, pp, items, strays, timer,
                   served>>

Clear(c) ==
    /\ cp[c][1] = "Clear"
    /\ ready' = ready \ {cp[c][2]}
    /\ Go(c, IF Direct THEN At("Look") ELSE <<"Recheck", cp[c][2]>>)
    /\ UNCHANGED <<count, masked, owner, sleepers, changed, baton, pp, items, strays, timer, served>>

Recheck(c) ==
    /\ cp[c][1] = "Recheck"
    /\ ready' = IF count[cp[c][2]] > 0 THEN ready \cup {cp[c][2]} ELSE ready
    /\ Go(c, At("Look"))
    /\ UNCHANGED <<count, masked, owner, sleepers, changed, baton, pp, items, strays, timer, served>>

Announce(c) ==
    /\ cp[c] = At("Announce")
    /\ sleepers' = sleepers \cup {c}
    /\ Go(c, At("Rescan"))
    /\ UNCHANGED <<count, ready, masked, owner, changed, baton, pp, items, strays, timer, served>>

Rescan(c) ==
    /\ cp[c] = At("Rescan") /\ ~Direct
    /\ Go(c, IF AnyReady THEN At("Withdraw") ELSE At("Asleep"))
    /\ UNCHANGED <<count, ready, masked, owner, sleepers, changed, baton, pp, items, strays, timer,
                   served>>

(* Without bits the look before sleep is one load for each doorbell, in order. *)
RescanOne(c) ==
    LET q == cp[c][2] + 1 IN
    /\ cp[c][1] = "Rescan" /\ Direct
    /\ Go(c, IF Ready(q) THEN At("Withdraw")
             ELSE IF q = Cardinality(Queues) THEN At("Asleep") ELSE <<"Rescan", q>>)
    /\ UNCHANGED <<count, ready, masked, owner, sleepers, changed, baton, pp, items, strays, timer,
                   served>>

WakeUp(c) ==
    /\ cp[c] = At("Asleep") /\ c \in changed
    /\ Go(c, At("Withdraw"))
    /\ UNCHANGED <<count, ready, masked, owner, sleepers, changed, baton, pp, items, strays, timer,
                   served>>

Withdraw(c) ==
    /\ cp[c] = At("Withdraw")
    /\ baton' = IF Shared /\ c \notin sleepers THEN baton \cup {c} ELSE baton
    /\ sleepers' = sleepers \ {c}
    /\ Go(c, At("Look"))
    /\ UNCHANGED <<count, ready, masked, owner, changed, pp, items, strays, timer, served>>

------------------------------------------------------------------------------

ProducerStep(p) == Set(p) \/ Wake(p) \/ \E q \in Queues : Ring(p, q)

ConsumerStep(c) ==
    \/ \E q \in Queues : Look(c, q)
    \/ LookFindsNothing(c) \/ Verify(c) \/ Confirm(c) \/ PassBaton(c) \/ Serve(c) \/ Reactivate(c)
    \/ ReactivateWake(c) \/ Process(c) \/ Clear(c) \/ Recheck(c) \/ Announce(c) \/ Rescan(c)
    \/ RescanOne(c) \/ WakeUp(c) \/ Withdraw(c)

TimerStep == \E q \in Queues : Enable(q) \/ EnableWake(q)

Next == \/ \E p \in Producers : ProducerStep(p)
        \/ \E c \in Consumers : ConsumerStep(c)
        \/ TimerStep
        \/ \E q \in Queues : Stray(q)

Spec == /\ Init /\ [][Next]_vars
        /\ \A p \in Producers : WF_vars(ProducerStep(p))
        /\ \A c \in Consumers : WF_vars(ConsumerStep(c))
        /\ WF_vars(TimerStep)

------------------------------------------------------------------------------
(* What must hold *)

(* A queue is served by one consumer at a time. *)
OneOwner ==
    \A q \in Queues : Cardinality({c \in Consumers : cp[c] = <<"Serve", q>>}) <= 1

(* What was rung for is waiting or was served, once. *)
ExactlyOnce ==
    served + Sum(count) = Cardinality(Producers) * Items - Sum(items)

Sleeps(c) == cp[c] = At("Asleep") /\ c \notin changed
Busy(c) == cp[c][1] \in {"Serve", "Process"}

(* While a consumer sleeps, a queue is not ready without somebody under way who will see to it; a     *)
(* consumer that works on an item, perhaps for long, does not count.                              *)
Noticed ==
    ((\E c \in Consumers : Sleeps(c)) /\ AnyReady) =>
        \/ \E p \in Producers : pp[p] # At("Idle")
        \/ timer # {}
        \/ \E c \in Consumers : ~Sleeps(c) /\ ~Busy(c)

(* Under fairness all that is rung for is served. *)
AllServed == <>(served = Cardinality(Producers) * Items)
=============================================================================
