//! Dialogues with the parsers: whole, split at every byte, wrong, and hostile.

use super::*;
use crate::sizes::SizeDistribution;
use crate::workload::WorkloadConfig;
use proptest::prelude::*;

fn memcached() -> Workload {
    let config = WorkloadConfig::Memcached {
        get_share: 0.5,
        keys: 1_000,
        key_size: SizeDistribution::Fixed(5),
        value_size: SizeDistribution::Uniform { min: 1, max: 40 },
    };
    Workload::new(&config, 3).expect("a valid workload")
}

fn echo(bytes: u32) -> Workload {
    Workload::new(&WorkloadConfig::Echo { bytes }, 3).expect("a valid workload")
}

/// What a correct service answers.
fn right_answer(workload: &Workload, request: Request) -> Vec<u8> {
    let content = workload.content(request);
    match request.kind {
        RequestKind::Echo => content.to_vec(),
        RequestKind::Spin => {
            let mut answer = Vec::new();
            workload.append(request, &mut answer);
            answer
        }
        RequestKind::Set => b"STORED\r\n".to_vec(),
        RequestKind::Get => {
            let mut answer =
                format!("VALUE k{:04} 0 {}\r\n", request.key, content.len()).into_bytes();
            answer.extend_from_slice(content);
            answer.extend_from_slice(b"\r\nEND\r\n");
            answer
        }
    }
}

/// Feeds `pieces` to a new parser; the outcomes of `requests` in order.
fn outcomes<'a>(
    workload: &Workload,
    requests: &[Request],
    pieces: impl Iterator<Item = &'a [u8]>,
) -> Result<Vec<Outcome>, Violation> {
    let mut parser = ResponseParser::default();
    let mut done = Vec::new();
    for mut piece in pieces {
        while !piece.is_empty() {
            let request = *requests.get(done.len()).ok_or(Violation::Unasked)?;
            let progress = parser.advance(workload, request, true, piece)?;
            assert!(progress.outcome.is_some() || progress.consumed == piece.len());
            piece = &piece[progress.consumed..];
            done.extend(progress.outcome);
        }
    }
    Ok(done)
}

fn outcome_of(workload: &Workload, request: Request, bytes: &[u8]) -> Result<Outcome, Violation> {
    let done = outcomes(workload, &[request], std::iter::once(bytes))?;
    Ok(*done.first().expect("the response is complete"))
}

#[test]
fn each_kind_of_answer_has_its_outcome() {
    let workload = memcached();
    let cases: [(Request, &[u8], Outcome); 9] = [
        (Request::set(1), b"STORED\r\n", Outcome::Complete),
        (Request::set(1), b"NOT_STORED\r\n", Outcome::Error),
        (Request::set(1), b"NOT_FOUND\r\n", Outcome::Error),
        (Request::set(1), b"SERVER_ERROR out of memory storing object\r\n", Outcome::Error),
        (Request::set(1), b"ERROR\r\n", Outcome::Error),
        (Request::get(1), b"ERROR Too many open connections\r\n", Outcome::Error),
        (Request::get(1), b"END\r\n", Outcome::Miss),
        (Request::get(1), b"CLIENT_ERROR bad command line format\r\n", Outcome::Error),
        (Request::get(1), &right_answer(&workload, Request::get(1)), Outcome::Complete),
    ];
    for (request, bytes, expected) in cases {
        assert_eq!(outcome_of(&workload, request, bytes), Ok(expected), "{bytes:?}");
    }
}

#[test]
fn wrong_bytes_are_seen_wherever_they_are() {
    let workload = memcached();
    let request = Request::get(17);
    let right = right_answer(&workload, request);
    let value_start = right.iter().position(|&b| b == b'\n').expect("a first line") + 1;
    let value_end = value_start + workload.content(request).len();
    for at in value_start..value_end {
        let mut bytes = right.clone();
        bytes[at] ^= 1;
        assert_eq!(outcome_of(&workload, request, &bytes), Ok(Outcome::WrongBytes), "byte {at}");
    }
    // Another key's answer, and a value that is one byte short.
    let other = right_answer(&workload, Request::get(18));
    assert_eq!(outcome_of(&workload, request, &other), Ok(Outcome::WrongBytes));
    let mut short =
        format!("VALUE k0017 0 {}\r\n", workload.content(request).len() - 1).into_bytes();
    short.extend_from_slice(&workload.content(request)[1..]);
    short.extend_from_slice(b"\r\nEND\r\n");
    assert_eq!(outcome_of(&workload, request, &short), Ok(Outcome::WrongBytes));

    let workload = echo(64);
    for at in [0, 31, 63] {
        let mut bytes = right_answer(&workload, Request::echo(5));
        bytes[at] ^= 0x80;
        let outcome = outcome_of(&workload, Request::echo(5), &bytes);
        assert_eq!(outcome, Ok(Outcome::WrongBytes), "byte {at}");
    }
}

#[test]
fn content_is_not_compared_where_that_is_not_asked() {
    let workload = echo(8);
    let mut parser = ResponseParser::default();
    let progress = parser.advance(&workload, Request::echo(1), false, &[0; 8]);
    assert_eq!(progress, Ok(Progress { consumed: 8, outcome: Some(Outcome::Complete) }));
}

#[test]
fn what_is_no_response_is_a_violation() {
    let workload = memcached();
    let get = Request::get(1);
    let set = Request::set(1);
    let cases: [(Request, &[u8], Violation); 9] = [
        (get, b"STORED\r\n", Violation::UnknownLine),
        (set, b"END\r\n", Violation::UnknownLine),
        (get, b"END\n", Violation::UnknownLine),
        (get, b"\r\n", Violation::UnknownLine),
        (get, b"VALUE k0001 0\r\n", Violation::BadValueLine),
        (get, b"VALUE k0001 0 -1\r\n", Violation::BadValueLine),
        (get, b"VALUE k0001 0 99999999999\r\n", Violation::BadValueLine),
        (get, b"VALUE k0001 0 1\r\nxy\r\n", Violation::BadValueEnd),
        (get, b"VALUE k0001 0 1\r\nx\r\nVALUE k0001 0 1\r\n", Violation::UnknownLine),
    ];
    for (request, bytes, expected) in cases {
        let result = outcomes(&workload, &[request], std::iter::once(bytes));
        assert_eq!(result, Err(expected), "{bytes:?}");
    }
    let long = vec![b'a'; LINE_BYTES_MAX + 1];
    for piece in [1, 100, long.len()] {
        assert_eq!(outcomes(&workload, &[get], long.chunks(piece)), Err(Violation::LineTooLong));
    }
}

proptest! {
    #[test]
    fn any_split_gives_the_same_outcomes(
        keys in proptest::collection::vec((0u32..1_000, any::<bool>()), 1..8),
        cuts in proptest::collection::vec(1usize..20, 1..40),
    ) {
        let workload = memcached();
        let requests: Vec<_> = keys
            .iter()
            .map(|&(key, get)| if get { Request::get(key) } else { Request::set(key) })
            .collect();
        let bytes: Vec<u8> =
            requests.iter().flat_map(|&r| right_answer(&workload, r)).collect();
        let mut cuts = cuts.into_iter().cycle();
        let mut rest = &bytes[..];
        let pieces = std::iter::from_fn(|| {
            let (piece, after) = rest.split_at(cuts.next()?.min(rest.len()));
            rest = after;
            (!piece.is_empty()).then_some(piece)
        });
        let done = outcomes(&workload, &requests, pieces);
        prop_assert_eq!(done, Ok(vec![Outcome::Complete; requests.len()]));
    }

    #[test]
    fn any_bytes_are_taken_or_refused_without_a_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..600),
        kind in 0..3u8,
    ) {
        let (workload, request) = match kind {
            0 => (memcached(), Request::get(4)),
            1 => (memcached(), Request::set(4)),
            _ => (echo(16), Request::echo(4)),
        };
        let mut parser = ResponseParser::default();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let Ok(progress) = parser.advance(&workload, request, true, rest) else { break };
            prop_assert!(progress.consumed > 0 && progress.consumed <= rest.len());
            rest = &rest[progress.consumed..];
        }
    }
}

#[test]
fn spins_are_verified_at_every_split() {
    let times = "exponential:10".parse().expect("service times");
    let workload = Workload::new(&WorkloadConfig::Spin { times }, 3).expect("a valid workload");
    let requests = [Request::spin(0), Request::spin(77), Request::spin(u32::MAX)];
    let stream: Vec<u8> = requests.iter().flat_map(|r| right_answer(&workload, *r)).collect();
    assert_eq!(stream.len(), 48);
    for piece in 1..=48 {
        let found = outcomes(&workload, &requests, stream.chunks(piece)).expect("keeps to it");
        assert_eq!(found, [Outcome::Complete; 3], "in pieces of {piece}");
    }
    for place in 0..48 {
        let mut wrong = stream.clone();
        wrong[place] ^= 1;
        let found = outcomes(&workload, &requests, wrong.chunks(5)).expect("keeps to it");
        let mut expected = [Outcome::Complete; 3];
        expected[place / 16] = Outcome::WrongBytes;
        assert_eq!(found, expected, "byte {place}");
    }
}
