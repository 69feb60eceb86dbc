//! SYN cookies (RFC 4987 §3.6): where a port's backlog is full, a SYN is answered and nothing is kept. What a record
//! would hold is in the SYN-ACK's own sequence number and timestamp, and comes back with the acknowledgment.
//!
//! ```text
//! sequence number   2 bits: the period, 3 bits: the MSS, rounded down, 27 bits: a keyed hash of all
//! timestamp         its low 7 bits: the shift of the peer's windows, 31 where there is none, and before it whether it sends
//!                   selective acknowledgments, and whether ECN was agreed on
//! ```
//!
//! A peer without timestamps goes without scaled windows, selective acknowledgments and ECN. Of 2^28 guesses one opens a connection: of 2^32 numbers, those of
//! two periods and eight MSS are taken.

use core::hash::Hasher;

use clock::Instant;
use siphasher::sip::SipHasher24;
use wire::SeqNumber;

use super::fields::{Ends, Segment};
use super::handshake::Handshake;
use super::isn::IsnSecret;

/// log2 of the nanoseconds for which a cookie is made; it is taken for as long again: 69 s.
const PERIOD_SHIFT: u32 = 36;
const PERIOD_BITS: u32 = 2;
const MSS_BITS: u32 = 3;
const HASH_BITS: u32 = 32 - PERIOD_BITS - MSS_BITS;
/// What an MSS is rounded down to: the smallest that is taken, the default, those of common links and tunnels, and of
/// large frames.
const MSS: [u16; 1 << MSS_BITS] = [64, 536, 1024, 1220, 1360, 1440, 1460, 8960];
/// Low bits of the timestamp.
const SCALE_BITS: u32 = 5;
const NO_SCALE: u32 = (1 << SCALE_BITS) - 1;
const SACK: u32 = 1 << SCALE_BITS;
const ECN: u32 = SACK << 1;
const OPTIONS: u32 = ECN | SACK | NO_SCALE;

/// The period of a moment.
fn period(now: Instant) -> u64 {
    now.as_nanos() >> PERIOD_SHIFT
}

/// Whether a cookie that was made at `made` may still come back at `now`.
pub(crate) fn may_come_back(made: Instant, now: Instant) -> bool {
    period(now) - period(made).min(period(now)) <= 1
}

/// Puts a handshake into its own sequence number; what is lost on the way is left out. Answers the timestamp to send.
pub(crate) fn bake(
    handshake: &mut Handshake,
    ends: Ends,
    (now, timestamp): (Instant, u32),
    secret: &IsnSecret,
) -> u32 {
    let index = MSS.iter().rposition(|&mss| mss <= handshake.mss).unwrap_or(0);
    handshake.iss = sequence_number(index as u32, period(now), handshake.irs, ends, secret);
    let Some(_) = handshake.ts_recent else {
        (handshake.window_scale, handshake.sack, handshake.ecn) = (None, false, false);
        return 0;
    };
    let scale = handshake.window_scale.map_or(NO_SCALE, u32::from);
    let sack = if handshake.sack { SACK } else { 0 };
    let ecn = if handshake.ecn { ECN } else { 0 };
    let stamp = timestamp & !OPTIONS | ecn | sack | scale;
    // Later ones must not look older than this one.
    if stamp > timestamp { stamp.wrapping_sub(OPTIONS + 1) } else { stamp }
}

/// The handshake that a cookie was made of, if `segment` acknowledges one.
pub(crate) fn unbake(
    segment: &Segment,
    ends: Ends,
    now: Instant,
    secret: &IsnSecret,
) -> Option<Handshake> {
    let (iss, irs) = (segment.ack - 1, segment.seq - 1);
    let index = iss.0 >> HASH_BITS & ((1 << MSS_BITS) - 1);
    let is_of = |period| sequence_number(index, period, irs, ends, secret) == iss;
    let period = period(now);
    if !is_of(period) && !is_of(period.wrapping_sub(1)) {
        return None;
    }
    let options = segment.timestamp.map_or(NO_SCALE, |stamp| stamp.echo & OPTIONS);
    let scale = options & NO_SCALE;
    Some(Handshake {
        iss,
        irs,
        mss: MSS[index as usize],
        window_scale: (scale != NO_SCALE).then_some(scale.min(14) as u8),
        ts_recent: segment.timestamp.map(|stamp| stamp.value),
        sack: options & SACK != 0,
        ecn: options & ECN != 0,
    })
}

fn sequence_number(
    index: u32,
    period: u64,
    irs: SeqNumber,
    ends: Ends,
    secret: &IsnSecret,
) -> SeqNumber {
    // Another length than that of what initial sequence numbers are made of: no two hashes are of the same words.
    let mut hasher = SipHasher24::new_with_key(secret.key());
    for end in [ends.local, ends.remote] {
        hasher.write(&end.addr.octets());
        hasher.write_u16(end.port);
    }
    hasher.write_u64(period);
    hasher.write_u32(irs.0);
    hasher.write_u32(index);
    let hash = hasher.finish() as u32 & ((1 << HASH_BITS) - 1);
    let period = period as u32 & ((1 << PERIOD_BITS) - 1);
    SeqNumber(period << (32 - PERIOD_BITS) | index << HASH_BITS | hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::fields::SynOptions;
    use proptest::prelude::*;
    use wire::{Endpoint, FlowKey, Ipv4Addr, TcpFlags, Timestamp};

    fn ends(port: u16) -> Ends {
        let end = |last, port| Endpoint::v4(Ipv4Addr::new(10, 0, 0, last), port);
        Ends { local: end(1, 80), remote: end(2, port) }
    }

    fn acknowledgment(handshake: &Handshake, stamp: u32) -> Segment {
        Segment {
            hash: 0,
            flow: FlowKey::default(),
            seq: handshake.irs + 1,
            ack: handshake.iss + 1,
            flags: TcpFlags::ACK,
            window: 100,
            payload_len: 0,
            is_marked: false,
            timestamp: handshake.ts_recent.map(|value| Timestamp { value: value + 1, echo: stamp }),
            syn: SynOptions::default(),
            sack_blocks: wire::SackBlocks::EMPTY,
        }
    }

    proptest! {
        #[test]
        fn what_is_baked_comes_back(
            mss in 64..9_000u16,
            irs in any::<u32>(),
            timestamp in any::<u32>(),
            window_scale in prop::option::of(0..15u8),
            (sack, ecn) in any::<(bool, bool)>(),
            peer_stamp in prop::option::of(0..u32::MAX),
            millis in 0..1_000_000u64,
            later in 0..68_000u64,
        ) {
            let secret = IsnSecret::new([7; 16]);
            let offered = Handshake {
                iss: SeqNumber(0),
                irs: SeqNumber(irs),
                mss,
                window_scale,
                ts_recent: peer_stamp,
                sack,
                ecn,
            };
            let mut baked = offered;
            let now = Instant::from_millis(millis);
            let stamp = bake(&mut baked, ends(5), (now, timestamp), &secret);
            if peer_stamp.is_some() {
                prop_assert!((0..256).contains(&timestamp.wrapping_sub(stamp)));
            }
            let at = now + core::time::Duration::from_millis(later);
            let found = unbake(&acknowledgment(&baked, stamp), ends(5), at, &secret).expect("a cookie");
            prop_assert!(may_come_back(now, at));
            prop_assert!(found.mss <= mss && (mss < 536 || 2 * found.mss > mss.min(1_460)));
            prop_assert_eq!(found.sack, sack && peer_stamp.is_some());
            prop_assert_eq!(found.ecn, ecn && peer_stamp.is_some());
            prop_assert_eq!(found.window_scale, window_scale.filter(|_| peer_stamp.is_some()));
            prop_assert_eq!(found.ts_recent, peer_stamp.map(|stamp| stamp + 1));
        }
    }

    #[test]
    fn guesses_old_ones_and_those_of_others_are_refused() {
        let secret = IsnSecret::new([7; 16]);
        let mut handshake = Handshake { mss: 1460, ..Handshake::default() };
        let now = Instant::from_millis(10_000);
        bake(&mut handshake, ends(5), (now, 0), &secret);
        let good = acknowledgment(&handshake, 0);
        assert!(unbake(&good, ends(5), now, &secret).is_some());
        let late = now + core::time::Duration::from_secs(138);
        assert!(unbake(&good, ends(5), late, &secret).is_none() && !may_come_back(now, late));
        assert!(unbake(&good, ends(5), now, &IsnSecret::new([8; 16])).is_none());
        for guess in 1..=1_000 {
            let taken = |segment, port| unbake(&segment, ends(port), now, &secret).is_some();
            assert!(!taken(Segment { ack: good.ack + guess, ..good }, 5));
            assert!(!taken(Segment { seq: good.seq + guess, ..good }, 5));
            assert!(!taken(good, 5 + guess as u16));
            let v6 = Endpoint { addr: "::a00:2".parse().expect("an address"), port: 5 };
            assert!(unbake(&good, Ends { remote: v6, ..ends(5) }, now, &secret).is_none());
        }
    }
}
