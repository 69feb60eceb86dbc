//! smoltcp as the other end: a stack by other authors, on a network that loses, doubles and reorders frames.
//!
//! Each test runs over IPv4 and IPv6, with either end opening the connection, for some seeds; these also choose buffers,
//! options, congestion control and MTU. Time is virtual: a failing run's seed is printed before it.

mod bench;
mod peer;
mod talk;

use clock::Duration;
use smoltcp::socket::tcp::{CongestionControl, State};
use sockets::Errno;
use wire::{Ipv4View, Ipv6View, TcpFlags, TcpView};
use world::dice::Dice;
use world::network::Faults;

use crate::bench::{Bench, Setup};
use crate::peer::PeerConfig;
use crate::talk::Talk;

/// Seeds of each test, for each version of IP and each end that opens.
const SEEDS: u64 = 6;
/// Virtual time for a transfer.
const LONG: Duration = Duration::from_secs(600);
const KIB: usize = 1 << 10;

/// Losses, doubles and reordering. No flipped bits: smoltcp learns link addresses from frames that have one.
fn faults() -> Faults {
    Faults { loss: 0.02, duplicate: 0.02, reorder: 0.05, corrupt: 0.0, ..Faults::usual() }
}

/// All that a test runs on.
fn each(faults: Faults, mut test: impl FnMut(Setup)) {
    for seed in 0..SEEDS * 4 {
        let (is_v6, is_active) = (seed % 2 == 1, seed / 2 % 2 == 1);
        let mut dice = Dice::new(seed, "setup", 0);
        let mut choose = |most: u64| dice.below(most) as usize;
        let congestion =
            [CongestionControl::None, CongestionControl::Reno, CongestionControl::Cubic];
        let setup = Setup {
            seed,
            is_v6,
            is_active,
            faults,
            mtu: [1_500, 1_500, 1_280][choose(3)],
            window: [32, 64, 256][choose(3)] << 10,
            peer: PeerConfig {
                mtu: [1_500, 1_280, 1_400][choose(3)],
                buffer: [4, 16, 64, 256][choose(4)] * KIB,
                timestamps: choose(2) == 1,
                congestion: congestion[choose(3)],
            },
        };
        println!("{setup:?}");
        test(setup);
    }
}

/// Both have sent all, and have read the other's end.
fn all_is_said(bench: &mut Bench) -> bool {
    let [ours, peer] = bench.talks;
    ours.is_done() && peer.is_done() && ours.heard_end && peer.heard_end
}

/// Runs to the end of both streams; each end has every byte of the other's.
fn run_out(bench: &mut Bench) {
    bench.until(LONG, "all said", all_is_said);
    let [ours, peer] = bench.talks;
    assert_eq!((ours.received, peer.received), (peer.bytes, ours.bytes));
}

/// A TCP segment of the capture.
struct Segment {
    is_ours: bool,
    is_syn: bool,
    window: u16,
    payload: usize,
    mss: Option<u16>,
}

/// The segments that passed since the last look.
fn segments(bench: &mut Bench) -> Vec<Segment> {
    let packets = bench.captured().into_iter().filter_map(|(is_ours, packet)| {
        let v4 = Ipv4View::parse(&packet).ok().map(|ip| (ip.protocol(), ip.payload().to_vec()));
        let v6 = || Ipv6View::parse(&packet).ok().map(|ip| (ip.protocol(), ip.payload().to_vec()));
        let (protocol, payload) = v4.or_else(v6)?;
        (protocol == wire::Protocol::TCP).then_some((is_ours, payload))
    });
    packets
        .map(|(is_ours, bytes)| {
            let view = TcpView::parse(&bytes).expect("a segment");
            let is_syn = view.flags().contains(TcpFlags::SYN);
            let (window, payload) = (view.window(), view.payload().len());
            Segment { is_ours, is_syn, window, payload, mss: view.options().mss }
        })
        .collect()
}

#[test]
fn streams_in_both_directions_arrive_byte_by_byte() {
    let mut lost = 0;
    each(faults(), |setup| {
        let mut bench = Bench::connected(setup, [Talk::of(300 * KIB), Talk::of(200 * KIB)]);
        run_out(&mut bench);
        assert_eq!(bench.stats().tcp_resets_in, 0);
        lost += bench.network.borrow().stats.lost;
        bench.finish();
    });
    assert!(lost > 500, "{lost} frames lost");
}

#[test]
fn an_end_that_has_said_all_hears_the_other_out() {
    each(faults(), |setup| {
        for speaker in 0..2 {
            let mut talks = [Talk::of(0); 2];
            // It has the other's end before its first byte.
            talks[speaker] = Talk { is_mute: true, ..Talk::of(100 * KIB) };
            let mut bench = Bench::connected(setup, talks);
            bench.until(LONG, "one end heard", |bench| bench.talks[speaker].heard_end);
            bench.talks[speaker].is_mute = false;
            run_out(&mut bench);
            bench.finish();
        }
    });
}

#[test]
fn connections_without_a_byte_end_in_order() {
    each(faults(), |setup| {
        let mut bench = Bench::connected(setup, [Talk::of(0); 2]);
        run_out(&mut bench);
        let has_ended =
            |bench: &mut Bench| matches!(bench.peer.state(), State::Closed | State::TimeWait);
        bench.until(LONG, "the peer's connection ended", has_ended);
        bench.finish();
    });
}

/// The reader sleeps, the window closes and is probed; once it reads, all arrives.
#[test]
fn a_window_that_closes_is_probed_until_it_opens() {
    each(faults(), |setup| {
        for deaf in 0..2 {
            let bytes = setup.window as usize + 2 * setup.peer.buffer + 400 * KIB;
            let mut talks = [Talk::of(10 * KIB); 2];
            talks[1 - deaf] = Talk::of(bytes);
            talks[deaf].is_deaf = true;
            let mut bench = Bench::connected(setup, talks);
            bench.pass(Duration::from_secs(60));
            let all = segments(&mut bench);
            let of = |is_ours| all.iter().filter(move |segment| segment.is_ours == is_ours);
            let closed = of(deaf == 0).filter(|segment| !segment.is_syn && segment.window == 0);
            assert!(closed.count() > 3, "a window that is closed, and probed");
            assert_eq!(bench.talks[deaf].received, 0);
            bench.talks[deaf].is_deaf = false;
            run_out(&mut bench);
            bench.finish();
        }
    });
}

/// Each end cuts its stream as the other's SYN asks, and as its own link allows.
#[test]
fn segments_are_no_larger_than_the_other_end_takes() {
    for (mtu, peer_mtu) in [(1_500, 1_280), (1_280, 1_500), (1_500, 1_500), (1_400, 1_330)] {
        each(faults(), |setup| {
            let peer = PeerConfig { mtu: peer_mtu, ..setup.peer };
            let setup = Setup { mtu, peer, ..setup };
            let mut bench = Bench::connected(setup, [Talk::of(50 * KIB), Talk::of(50 * KIB)]);
            run_out(&mut bench);
            let headers = if setup.is_v6 { 60 } else { 40 };
            let all = segments(&mut bench);
            for (is_ours, own) in [(true, mtu), (false, peer_mtu as u16)] {
                let of = |is_ours| all.iter().filter(move |segment| segment.is_ours == is_ours);
                let announced: Vec<_> = of(!is_ours).filter_map(|segment| segment.mss).collect();
                assert!(!announced.is_empty(), "a SYN has it");
                let most = usize::from(announced[0].min(own - headers));
                let largest = of(is_ours).map(|segment| segment.payload).max().expect("bytes");
                // Timestamps and as many bytes of SACK blocks as may go with them take of it.
                assert!(
                    largest <= most && largest + 40 >= most,
                    "{largest} of {most}, ours: {is_ours}"
                );
            }
            bench.finish();
        });
    }
}

/// An end that aborts resets the other, whatever is under way; the other's next segment has it reset once more, should
/// the first be lost.
#[test]
fn a_reset_ends_both() {
    each(faults(), |setup| {
        for by_peer in [false, true] {
            let mut talks = [Talk::open(0); 2];
            // The other goes on, so that it finds out.
            talks[usize::from(!by_peer)] = Talk::open(4 << 20);
            let mut bench = Bench::connected(setup, talks);
            bench.until(LONG, "begun", |bench| {
                bench.talks[usize::from(by_peer)].received > 10 * KIB
            });
            if by_peer {
                bench.peer.socket().abort();
                bench.until(LONG, "reset", |bench| bench.talks[0].has_failed);
            } else {
                bench.sockets.set_linger(bench.descriptor, Some(Duration::ZERO)).expect("open");
                bench.sockets.close(bench.descriptor).expect("open");
                bench.descriptor = -1;
                bench.until(LONG, "reset", |bench| bench.peer.state() == State::Closed);
            }
            bench.finish();
        }
    });
}

/// A port that nothing listens on refuses, at either end.
#[test]
fn a_closed_port_refuses() {
    each(faults(), |setup| {
        let mut bench = Bench::new(setup);
        if setup.is_active {
            let socket = bench.socket();
            assert_eq!(bench.connect(socket), Err(Errno::ECONNREFUSED));
            bench.sockets.close(socket).expect("open");
        } else {
            bench.knock();
            bench.until(LONG, "refused", |bench| bench.peer.state() == State::Closed);
        }
        bench.finish();
    });
}
