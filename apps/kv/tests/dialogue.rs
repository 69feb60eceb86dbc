//! Dialogues: each command and each error line, as a client sees them.

mod common;

use common::{Conversation, NOW, Rng, expect, small_store, store, talk};
use kv::{Flow, Output, Session, Store, StoreConfig, WallTime};

fn later(seconds: u64) -> WallTime {
    WallTime::from_unix_s(NOW.unix_s + seconds)
}

#[test]
fn storing_and_fetching() {
    let store = small_store();
    expect(&store, NOW, "set a 5 0 3\r\nabc\r\n", "STORED\r\n");
    expect(&store, NOW, "get a\r\n", "VALUE a 5 3\r\nabc\r\nEND\r\n");
    expect(&store, NOW, "gets a\r\n", "VALUE a 5 3 1\r\nabc\r\nEND\r\n");
    expect(&store, NOW, "get b\r\n", "END\r\n");
    expect(&store, NOW, "get b a b a\r\n", "VALUE a 5 3\r\nabc\r\nVALUE a 5 3\r\nabc\r\nEND\r\n");
    expect(&store, NOW, "add a 0 0 1\r\nx\r\n", "NOT_STORED\r\n");
    expect(&store, NOW, "replace b 0 0 1\r\nx\r\n", "NOT_STORED\r\n");
    expect(&store, NOW, "append b 0 0 1\r\nx\r\n", "NOT_STORED\r\n");
    expect(&store, NOW, "append a 0 0 1\r\nd\r\nprepend a 0 0 1\r\n_\r\n", "STORED\r\nSTORED\r\n");
    expect(&store, NOW, "get a\r\n", "VALUE a 5 5\r\n_abcd\r\nEND\r\n");
    expect(&store, NOW, "cas a 0 0 1 3\r\nx\r\n", "STORED\r\n");
    expect(&store, NOW, "cas a 0 0 1 3\r\ny\r\n", "EXISTS\r\n");
    expect(&store, NOW, "cas b 0 0 1 3\r\ny\r\n", "NOT_FOUND\r\n");
    expect(&store, NOW, "set a 0 0 1 noreply\r\nz\r\nget a\r\n", "VALUE a 0 1\r\nz\r\nEND\r\n");
    expect(&store, NOW, "delete a\r\ndelete a\r\n", "DELETED\r\nNOT_FOUND\r\n");
    expect(&store, NOW, "set n 0 0 2\r\n10\r\nincr n 5\r\ndecr n 20\r\n", "STORED\r\n15\r\n0\r\n");
    expect(&store, NOW, "get n\r\n", "VALUE n 0 2\r\n0 \r\nEND\r\n");
    expect(&store, NOW, "mn\r\nversion\r\n", &format!("MN\r\nVERSION {}\r\n", kv::VERSION));
}

#[test]
fn expiry_follows_the_time_given() {
    let store = small_store();
    expect(&store, NOW, "set a 0 10 1\r\nx\r\nset b 0 -1 1\r\nx\r\n", "STORED\r\nSTORED\r\n");
    expect(&store, later(9), "get a b\r\n", "VALUE a 0 1\r\nx\r\nEND\r\n");
    expect(&store, later(10), "get a b\r\n", "END\r\n");
    expect(&store, NOW, "set c 0 1800000100 1\r\nx\r\n", "STORED\r\n");
    expect(&store, later(99), "mg c t v\r\n", "VA 1 t1\r\nx\r\n");
    expect(&store, later(99), "touch c 50\r\ntouch zz 50\r\n", "TOUCHED\r\nNOT_FOUND\r\n");
    expect(&store, later(148), "gat 100 c\r\n", "VALUE c 0 1\r\nx\r\nEND\r\n");
    expect(&store, later(200), "gats 1 c\r\n", "VALUE c 0 1 3\r\nx\r\nEND\r\n");
    expect(&store, later(201), "get c\r\n", "END\r\n");
    expect(
        &store,
        NOW,
        "set d 0 0 1\r\nx\r\nflush_all 30\r\nget d\r\n",
        "STORED\r\nOK\r\nVALUE d 0 1\r\nx\r\nEND\r\n",
    );
    expect(&store, later(30), "get d\r\n", "END\r\n");
    expect(
        &store,
        later(30),
        "set d 0 0 1\r\nx\r\nflush_all\r\nget d\r\n",
        "STORED\r\nOK\r\nEND\r\n",
    );
    expect(&store, later(31), "me d\r\nset d 0 9 1\r\nx\r\n", "EN\r\nSTORED\r\n");
    let (reply, _) = talk(&store, later(33), b"me d\r\n");
    assert!(reply.starts_with(b"ME d exp=-7 la=2 cas="), "{:?}", String::from_utf8_lossy(&reply));
}

#[test]
fn every_error_line() {
    let store = store();
    let long = "k".repeat(251);
    for wrong in [
        "",
        "x",
        "nonsense",
        "get",
        "gat",
        "set a 0 0",
        "incr a",
        "touch a",
        "delete",
        "mg",
        "ms",
        "md",
        "ma",
        "mx",
        "verbosity",
        "flush_all 1 2 3",
        "stats nonsense",
        "GET a",
    ] {
        expect(&store, NOW, &format!("{wrong}\r\n"), "ERROR\r\n");
    }
    let bad = "CLIENT_ERROR bad command line format\r\n";
    for wrong in [
        format!("get a {long}"),
        format!("delete {long}"),
        format!("touch {long} 0"),
        format!("incr {long} 1"),
        format!("mg {long}"),
        "me".to_owned(),
        "ms a".to_owned(),
        "set a 0 0 -1".to_owned(),
        "set a x 0 1".to_owned(),
        "verbosity x".to_owned(),
        "slabs automove x".to_owned(),
    ] {
        expect(&store, NOW, &format!("{wrong}\r\n"), bad);
    }
    expect(
        &store,
        NOW,
        "set a 0 0 1\r\nxyz\r\nget a\r\n",
        "CLIENT_ERROR bad data chunk\r\nERROR\r\nEND\r\n",
    );
    expect(&store, NOW, "incr a x\r\n", "CLIENT_ERROR invalid numeric delta argument\r\n");
    expect(&store, NOW, "touch a x\r\n", "CLIENT_ERROR invalid exptime argument\r\n");
    expect(
        &store,
        NOW,
        "set a 0 0 1\r\nx\r\nincr a 1\r\n",
        "STORED\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
    );
    expect(
        &store,
        NOW,
        "delete a 5\r\n",
        "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n",
    );
    for (wrong, line) in [
        ("v v", "duplicate flag"),
        ("!", "invalid flag"),
        (
            "Tx",
            "bad token in command \
        line format",
        ),
        ("M12", "incorrect length for M token"),
        ("Jx", "invalid numeric initial value"),
        ("Dx", "invalid numeric delta value"),
        ("b", "error decoding key"),
    ] {
        expect(&store, NOW, &format!("mg a! {wrong}\r\n"), &format!("CLIENT_ERROR {line}\r\n"));
        // What comes with ms is swallowed.
        expect(
            &store,
            NOW,
            &format!("ms a! 4 {wrong}\r\nmn\r\n\r\n"),
            &format!("CLIENT_ERROR {line}\r\n"),
        );
    }
    expect(&store, NOW, "ma a Dx\r\n", "CLIENT_ERROR invalid or duplicate flag\r\n");
    expect(&store, NOW, "ma a MQ\r\n", "CLIENT_ERROR invalid mode for ma M token\r\n");
    let large = format!("{}\r\nget a\r\n", "v".repeat(2 << 20));
    expect(
        &store,
        NOW,
        &format!("set a 0 0 {}\r\n{large}", 2 << 20),
        "SERVER_ERROR object too large for cache\r\nEND\r\n",
    );
    expect(
        &store,
        NOW,
        "stats detail on\r\n",
        "SERVER_ERROR statistics by key prefix are not available\r\n",
    );
}

#[test]
fn meta_commands() {
    let store = small_store();
    expect(&store, NOW, "ms a 2 F7 T90 c k Oq1\r\nhi\r\n", "HD c1 ka Oq1\r\n");
    expect(&store, NOW, "mg a s v f t c k Ox h l\r\n", "VA 2 s2 f7 t90 c1 ka Ox h0 l0\r\nhi\r\n");
    expect(&store, later(4), "mg a l h u\r\nmg a l h u\r\n", "HD l4 h1\r\nHD l4 h1\r\n");
    expect(&store, NOW, "mg b k Ox\r\nmg b q\r\nmn\r\n", "EN kb Ox\r\nMN\r\n");
    expect(
        &store,
        NOW,
        "ms a 1 ME\r\nx\r\nms b 1 MR\r\nx\r\nms b 1 MA q\r\nx\r\n",
        "NS\r\nNS\r\nNS\r\n",
    );
    expect(
        &store,
        NOW,
        "ms a 1 MA\r\n!\r\nms a 1 MP q\r\n>\r\nmg a v\r\n",
        "HD\r\nVA 4\r\n>hi!\r\n",
    );
    expect(
        &store,
        NOW,
        "ms a 1 C99 c\r\nx\r\nms b 1 C99\r\nx\r\nmd a C99\r\nma b C9\r\n",
        "EX c0\r\nNF\r\nEX\r\nNF\r\n",
    );
    expect(
        &store,
        NOW,
        "ms e 1 E1234 c\r\nx\r\nmg e c\r\nms e 1 C1234\r\ny\r\n",
        "HD c1234\r\nHD c1234\r\nHD\r\n",
    );
    expect(
        &store,
        NOW,
        "ms YWJj 1 b k\r\nx\r\nmg YWJj b k v\r\nget abc\r\n",
        "HD kYWJj b\r\nVA 1 kYWJj b\r\nx\r\nVALUE abc 0 1\r\nx\r\nEND\r\n",
    );
    expect(
        &store,
        NOW,
        "mg YmFy b k N30 t\r\nmg bar k\r\n",
        "HD kYmFy b t30 W\r\nHD kYmFy b Z\r\n",
    );
    expect(&store, NOW, "mg v N30 t v\r\nmg v v\r\n", "VA 0 t30 W\r\n\r\nVA 0 Z\r\n\r\n");
    expect(
        &store,
        later(20),
        "set r 0 20 1\r\nx\r\nmg r R10\r\nmg r R30\r\nmg r R30\r\n",
        "STORED\r\nHD\r\nHD W\r\nHD Z\r\n",
    );
    expect(
        &store,
        NOW,
        "md a I T30\r\nmg a t v\r\nmg a\r\n",
        "HD\r\nVA 4 t30 X W\r\n>hi!\r\nHD Z X\r\n",
    );
    expect(&store, NOW, "md a q\r\nmd a k O1\r\n", "NF ka O1\r\n");
    expect(
        &store,
        NOW,
        "ma n\r\nma n N0 J5 v\r\nma n v\r\nma n D10 v t\r\nma n MD D100 v k\r\nma n q\r\n",
        "NF\r\nVA 1\r\n5\r\nVA 1\r\n6\r\nVA 2 t-1\r\n16\r\nVA 1 kn\r\n0\r\n",
    );
}

#[test]
fn connections_are_closed_where_memcached_closes_them() {
    for ending in ["quit\r\nget a\r\n", "quit now\r\n", "POST / HTTP/1.1\r\n"] {
        let (reply, verdict) = talk(&store(), NOW, format!("mn\r\n{ending}").as_bytes());
        assert_eq!((reply.as_slice(), verdict), (&b"MN\r\n"[..], Flow::Close), "{ending:?}");
    }
    let (store, mut session, mut out) = (store(), Conversation::new(), Vec::new());
    for _ in 0..kv::LINE_MAX_BYTES {
        assert_eq!(session.feed(&store, NOW, b"x", &mut out), Flow::Continue);
    }
    assert_eq!(session.feed(&store, NOW, b"x", &mut out), Flow::Close);
    assert_eq!(session.feed(&store, NOW, b"\r\nmn\r\n", &mut out), Flow::Close);
    assert!(out.is_empty());
}

#[test]
fn a_closed_session_gives_back_its_half_value() {
    let (store, mut session) = (store(), Conversation::new());
    assert!(session.is_idle());
    let mut out = Vec::new();
    let _ = session.feed(&store, NOW, b"set a 0 0 100000\r\nabc", &mut out);
    assert!(!session.is_idle());
    assert_eq!(store.stats(NOW).pending_items, 1);
    session.close(&store);
    assert_eq!(store.stats(NOW).pending_items, 0);
    assert_eq!(session.feed(&store, NOW, b"mn\r\n", &mut out), Flow::Close);
    println!("an idle session takes {} bytes", size_of::<Session>());
}

#[test]
fn stats_count_what_was_done() {
    let store = Store::new(StoreConfig { started: NOW, ..StoreConfig::default() }, [1, 1]).unwrap();
    store.connection_opened();
    store.connection_opened();
    store.connection_closed();
    let input =
        b"set a 0 0 1\r\nx\r\nget a b\r\nget a\r\nmg a\r\ndelete b\r\nincr b 1\r\ntouch a 0\r\n\
        cas b 0 0 1 1\r\nx\r\nflush_all\r\n";
    let _ = talk(&store, NOW, input);
    let report = String::from_utf8(talk(&store, later(7), b"stats\r\n").0).unwrap();
    for line in [
        "uptime 7",
        "curr_connections 1",
        "total_connections 2",
        "cmd_get 4",
        "get_hits 3",
        "get_misses 1",
        "cmd_set 1",
        "delete_misses 1",
        "incr_misses 1",
        "touch_hits 1",
        "cas_misses 1",
        "cmd_flush 1",
        "total_items 1",
        "limit_maxbytes 67108864",
        "evictions 0",
    ] {
        assert!(report.contains(&format!("STAT {line}\r\n")), "no {line} in\n{report}");
    }
    assert!(store.stats(NOW).allocated_bytes <= store.stats(NOW).limit_maxbytes);
    for what in ["settings", "items", "slabs", "sizes"] {
        let report = talk(&store, NOW, format!("stats {what}\r\n").as_bytes()).0;
        assert!(report.starts_with(b"STAT ") && report.ends_with(b"END\r\n"), "stats {what}");
    }
    expect(&store, NOW, "stats reset\r\n", "RESET\r\n");
    let report = String::from_utf8(talk(&store, NOW, b"stats\r\n").0).unwrap();
    assert!(report.contains("STAT cmd_get 0\r\n") && report.contains("STAT curr_items 1\r\n"));
}

/// Counts the pieces.
struct Pieces(usize);

impl Output for Pieces {
    fn put(&mut self, _: &[u8]) {
        self.0 += 1;
    }
}

#[test]
fn a_hit_is_two_pieces() {
    let store = store();
    let _ = talk(&store, NOW, b"set a 0 0 3\r\nabc\r\n");
    let mut pieces = Pieces(0);
    let _ = Conversation::new().feed(&store, NOW, b"get a\r\n", &mut pieces);
    assert_eq!(pieces.0, 2);
}

#[test]
fn many_threads_share_one_store() {
    let store = store();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let store = &store;
            scope.spawn(move || {
                for round in 0..2000 {
                    let key = format!("own-{thread}-{}", round % 50);
                    let value = format!("{thread}:{round}");
                    let length = value.len();
                    let input =
                        format!("set {key} 0 0 {length}\r\n{value}\r\nget {key}\r\nincr n 1\r\n");
                    let reply = String::from_utf8(talk(store, NOW, input.as_bytes()).0).unwrap();
                    assert!(
                        reply.contains(&format!("VALUE {key} 0 {length}\r\n{value}\r\nEND\r\n"))
                    );
                }
            });
        }
        let _ = talk(&store, NOW, b"add n 0 0 1\r\n0\r\n");
    });
    let stats = store.stats(NOW);
    assert_eq!(stats.class_totals().incr_hits + stats.counters.incr_misses, 8000);
}

#[test]
fn garbage_never_panics() {
    for seed in 1..200_u64 {
        let mut rng = Rng(seed);
        let store = store();
        let mut session = Conversation::new();
        let mut out = Vec::new();
        let words: [&[u8]; 22] = [
            b"get ",
            b"set ",
            b"mg ",
            b"ms ",
            b"md ",
            b"ma ",
            b"me ",
            b"\r\n",
            b"\n",
            b" 0 0 5\r\n",
            b" b ",
            b"k ",
            b"O1 ",
            b"\0",
            b"noreply",
            b"-1",
            b"99999999999999999999",
            b"stats ",
            b"C1 ",
            b"incr ",
            b"gat 0 ",
            b"\x80",
        ];
        for _ in 0..300 {
            let mut piece = words[rng.below(words.len())].to_vec();
            if rng.one_in(4) {
                piece.extend((0..rng.below(40)).map(|_| rng.next() as u8));
            }
            if session.feed(&store, NOW, &piece, &mut out) == Flow::Close {
                session.close(&store);
                session = Conversation::new();
            }
        }
        session.close(&store);
        assert_eq!(store.stats(NOW).pending_items, 0);
    }
}

#[test]
fn cas_uniques_are_unique_over_all_items() {
    let store = Store::new(StoreConfig { shards: 4, ..StoreConfig::default() }, [3, 4]);
    let store = store.expect("a store");
    let mut seen = std::collections::BTreeSet::new();
    for round in 0..3 {
        for key in 0..40 {
            let set = format!("set k{key} 0 0 1\r\n{round}\r\ngets k{key}\r\n");
            let reply = talk(&store, NOW, set.as_bytes()).0;
            let reply = String::from_utf8(reply).expect("text");
            let line = reply.lines().nth(1).expect("the item's line");
            let unique: u64 = line.rsplit(' ').next().expect("a word").parse().expect("a number");
            assert!(seen.insert(unique), "{unique} of k{key} was another's: {reply}");
        }
    }
}
