//! The dialogues that are played to both.

use wire::TcpOptions;

use crate::dialogue::Dialogue;
use crate::support::{OTHER_PORT, Open};

/// What the peer does, by name.
pub type Script = fn(&mut Dialogue<'_>);

/// Every option.
const FULL: Open = Open {
    mss: Some(1_460),
    window_scale: Some(7),
    timestamp: Some(1_000),
    sack: true,
    ecn: false,
    window: 65_535,
};
/// Selective acknowledgments alone.
const SACK: Open = Open { window_scale: None, timestamp: None, ..FULL };

/// All dialogues.
pub const DIALOGUES: &[(&str, Script)] = &[
    ("a SYN without options", |d| d.open(Open { mss: None, ..Open::default() })),
    ("a SYN with every option", |d| d.open(FULL)),
    ("a SYN that asks for ECN", |d| d.open(Open { ecn: true, ..Open::default() })),
    ("the default MSS", |d| {
        d.open(Open { mss: None, ..Open::default() });
        d.send(1_200);
    }),
    ("a small MSS", |d| {
        d.open(Open { mss: Some(300), ..Open::default() });
        d.send(700);
    }),
    ("an MSS of next to nothing", |d| {
        d.open(Open { mss: Some(10), ..Open::default() });
        d.send(200);
    }),
    ("data on a SYN", |d| {
        d.hear_syn(d.peer.syn().len(10));
        d.hear(d.peer.seg(1, 1).len(10));
        d.read();
    }),
    ("data with the handshake's end", |d| {
        d.knock(Open::default());
        d.hear(d.peer.seg(1, 1).len(10).flags("P."));
        d.read();
    }),
    ("a SYN once more", |d| {
        d.knock(Open::default());
        d.hear(d.peer.syn());
        d.hear(d.peer.seg(1, 1));
    }),
    ("a wrong acknowledgment of a SYN", |d| {
        d.knock(Open::default());
        d.hear(d.peer.seg(1, 5));
        d.hear(d.peer.seg(1, 1).len(1));
    }),
    ("a reset in SYN-RECEIVED", |d| {
        d.knock(Open::default());
        d.hear(d.peer.seg(1, 1).flags("R"));
        d.hear(d.peer.seg(1, 1));
    }),
    ("a port that is closed", |d| {
        d.peer.there.port = OTHER_PORT;
        d.hear(d.peer.syn());
        d.hear(d.peer.seg(5, 7));
        d.hear(d.peer.seg(5, 7).flags("R"));
    }),
    ("FIN and nothing else to a listener", |d| {
        d.hear(d.peer.seg(0, 0).flags("F"));
        d.hear(d.peer.seg(0, 0).flags("SF"));
    }),
    ("data in order", |d| {
        d.open_plain();
        d.hear(d.peer.seg(1, 1).len(100));
        d.hear(d.peer.seg(101, 1).len(1_460));
        d.read();
    }),
    ("data twice", |d| {
        d.open_plain();
        d.hear(d.peer.seg(1, 1).len(100));
        d.hear(d.peer.seg(1, 1).len(100));
        d.hear(d.peer.seg(51, 1).len(100));
        d.read();
    }),
    ("data twice with SACK", |d| {
        d.open(SACK);
        d.hear(d.peer.seg(1, 1).len(100));
        d.hear(d.peer.seg(1, 1).len(100));
        d.hear(d.peer.seg(51, 1).len(100));
    }),
    ("data behind a gap", |d| {
        d.open_plain();
        d.hear(d.peer.seg(101, 1).len(100));
        d.read();
        d.hear(d.peer.seg(1, 1).len(100));
        d.read();
    }),
    ("gaps with SACK", |d| {
        d.open(SACK);
        d.hear(d.peer.seg(101, 1).len(100));
        d.hear(d.peer.seg(301, 1).len(100));
        d.hear(d.peer.seg(301, 1).len(100));
        d.hear(d.peer.seg(201, 1).len(100));
        d.hear(d.peer.seg(1, 1).len(100));
        d.read();
    }),
    ("a FIN behind a gap", |d| {
        d.open_plain();
        d.hear(d.peer.seg(101, 1).len(10).flags("F."));
        d.hear(d.peer.seg(1, 1).len(100));
        d.read();
    }),
    ("data beyond the window", |d| {
        d.open_plain();
        d.hear(d.peer.seg(400_001, 1).len(10));
        d.hear(d.peer.seg(1, 1).len(10));
    }),
    ("an acknowledgment of what was not sent", |d| {
        d.open_plain();
        d.hear(d.peer.seg(1, 1_001));
        d.hear(d.peer.seg(1, 1_001).len(10));
        d.read();
    }),
    ("an old acknowledgment", |d| {
        d.open_plain();
        d.send(100);
        d.hear(d.peer.seg(1, 101));
        d.hear(d.peer.seg(1, 51).len(10));
        d.read();
    }),
    ("an acknowledgment older than any window", |d| {
        d.open_plain();
        d.hear(d.peer.seg(1, 0xfff0_0000).len(10));
        d.read();
    }),
    ("a reset in order", |d| {
        d.open_plain();
        d.hear(d.peer.seg(1, 1).flags("R."));
        d.read();
        d.hear(d.peer.seg(1, 1));
    }),
    ("a reset elsewhere in the window", |d| {
        d.open_plain();
        d.hear(d.peer.seg(50, 1).flags("R."));
        d.hear(d.peer.seg(1, 1).len(10));
    }),
    ("a reset beyond the window", |d| {
        d.open_plain();
        d.hear(d.peer.seg(400_001, 1).flags("R."));
        d.hear(d.peer.seg(1, 1).len(10));
    }),
    ("a SYN on a connection", |d| {
        d.open_plain();
        d.hear(d.peer.seg(1, 1).flags("S"));
        d.hear(d.peer.seg(1, 1).len(10));
    }),
    ("a SYN-ACK on a connection", |d| {
        d.open_plain();
        d.hear(d.peer.seg(50, 1).flags("S."));
        d.hear(d.peer.seg(1, 1).len(10));
    }),
    ("segments without ACK", |d| {
        d.open_plain();
        d.hear(d.peer.seg(1, 1).flags("").len(10));
        d.hear(d.peer.seg(1, 1).flags("F"));
        d.read();
    }),
    ("the peer closes first", |d| {
        d.open_plain();
        d.hear(d.peer.seg(1, 1).len(10).flags("F."));
        d.read();
        d.send(100);
        d.hear(d.peer.seg(12, 101));
        d.close();
        d.hear(d.peer.seg(12, 102));
        d.hear(d.peer.seg(12, 102));
    }),
    ("a FIN once more", |d| {
        d.open_plain();
        d.hear(d.peer.seg(1, 1).flags("F."));
        d.hear(d.peer.seg(1, 1).flags("F."));
        d.hear(d.peer.seg(2, 1).len(10));
        d.read();
    }),
    ("the application closes one half", |d| {
        d.open_plain();
        d.shutdown();
        d.hear(d.peer.seg(1, 2));
        d.hear(d.peer.seg(1, 2).len(100));
        d.read();
        d.hear(d.peer.seg(101, 2).flags("F."));
        d.read();
    }),
    ("both close at once", |d| {
        d.open_plain();
        d.close();
        d.hear(d.peer.seg(1, 1).flags("F."));
        d.hear(d.peer.seg(2, 2));
        d.hear(d.peer.seg(1, 2).flags("F."));
    }),
    ("data after close", |d| {
        d.open_plain();
        d.close();
        d.hear(d.peer.seg(1, 2));
        d.hear(d.peer.seg(1, 2).len(10));
        d.hear(d.peer.seg(11, 2));
    }),
    ("TIME-WAIT", |d| {
        d.open_plain();
        d.close();
        d.hear(d.peer.seg(1, 2).flags("F."));
        d.hear(d.peer.seg(1, 2).flags("F."));
        d.hear(d.peer.seg(2, 2).len(10));
        d.hear(d.peer.seg(2, 2));
    }),
    ("a SYN in TIME-WAIT", |d| {
        d.open_plain();
        d.close();
        d.hear(d.peer.seg(1, 2).flags("F."));
        d.hear(d.peer.seg(0, 0).flags("S"));
        let mut syn = d.peer.syn();
        syn.seq = d.peer.iss + 1_000_000;
        d.peer.iss = syn.seq;
        d.hear_syn(syn);
        d.hear(d.peer.seg(1, 1).len(10));
    }),
    ("a timestamp of the past", |d| {
        d.open(FULL);
        let (value, echo) = d.peer.timestamp.unwrap_or_default();
        d.hear(d.peer.seg(1, 1).len(10).ts(value + 100, echo));
        d.hear(d.peer.seg(11, 1).len(10).ts(value - 100, echo));
        d.hear(d.peer.seg(11, 1).len(10).ts(value + 100, echo));
        d.read();
    }),
    ("a segment without its timestamp", |d| {
        d.open(FULL);
        d.hear(d.peer.seg(1, 1).len(10).options(TcpOptions::NONE));
        d.read();
    }),
    ("urgent data", |d| {
        d.open_plain();
        d.hear(d.peer.seg(1, 1).len(10).flags("PU."));
        d.hear(d.peer.seg(11, 1).len(10));
        d.read();
    }),
    ("a mark of congestion", |d| {
        d.open(Open { ecn: true, ..Open::default() });
        d.hear(d.peer.seg(1, 1).len(10).marked());
        d.hear(d.peer.seg(11, 1).len(10));
        d.hear(d.peer.seg(21, 1).len(10).flags("W."));
    }),
    ("a closed window", |d| {
        d.open_plain();
        d.hear(d.peer.seg(1, 1).win(0));
        d.send(100);
        d.wait();
        d.hear(d.peer.seg(1, 1).win(1_000));
        d.hear(d.peer.seg(1, 101));
    }),
    ("a window smaller than a segment", |d| {
        d.open(Open { window: 500, ..Open::default() });
        d.send(500);
        d.hear(d.peer.seg(1, 501).win(65_535));
        d.send(1_500);
    }),
    ("a window that is taken back", |d| {
        d.open_plain();
        d.send(100);
        d.hear(d.peer.seg(1, 1).win(50));
        d.hear(d.peer.seg(1, 101).win(0));
        d.send(10);
        d.hear(d.peer.seg(1, 101).win(1_000));
    }),
    ("keepalive", |d| {
        d.open_plain();
        d.read();
        d.wait();
        d.hear(d.peer.seg(1, 1));
    }),
    ("three duplicate acknowledgments", |d| {
        d.open_plain();
        d.send(6_000);
        d.hear_all(&[1, 1, 1].map(|ack| d.peer.seg(1, ack)));
        d.hear(d.peer.seg(1, 6_001));
    }),
    ("SACK blocks over a hole", |d| {
        d.open(SACK);
        d.send(7_300);
        let ends = [2_921, 4_381, 5_841];
        d.hear_all(&ends.map(|end| d.peer.sack(1, 1, &[(1_461, end)])));
        d.hear(d.peer.seg(1, 7_301));
    }),
];
