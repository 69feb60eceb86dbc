//! Encryption and decryption: a known answer, the way there and back, the vectors, and the instructions that are used.

use std::collections::HashSet;
use std::time::Instant;

use services::{Decryption, Encryption, Refused, Service};

use crate::packets::serve;
use crate::tools::noise;

/// From NIST SP 800-38A, appendix F.2.5 (CBC-AES256): key, vector, first two blocks of text and cipher.
const KEY: &str = "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4";
const VECTOR: &str = "000102030405060708090a0b0c0d0e0f";
const TEXT: &str = "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51";
const CIPHER: &str = "f58c4c04d6e5f1ba779eabfb5f7bfbd69cfc4e967edb808d679f777bc6702c7d";

fn unhex(text: &str) -> Vec<u8> {
    let digit = |byte: u8| (byte as char).to_digit(16).expect("a digit") as u8;
    text.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

#[test]
fn the_example_of_the_standard() {
    // The service chooses the vector itself. XOR-ing the wanted one into the first block undoes that: CBC enters both
    // by the same sum.
    let key: [u8; 32] = unhex(KEY).try_into().expect("32 bytes");
    let mut encryption = Encryption::new(&key, &[9; 32]);
    let first = serve(&mut Encryption::new(&key, &[9; 32]), b"").expect("served");
    let mut text = unhex(TEXT);
    for ((byte, wanted), own) in text.iter_mut().zip(unhex(VECTOR)).zip(&first) {
        *byte ^= wanted ^ own;
    }
    let reply = serve(&mut encryption, &text).expect("served");
    assert_eq!(reply[16..48], unhex(CIPHER));

    // And back, with the standard's vector; the third block is padding of the service's own.
    let mut whole = [unhex(VECTOR), reply[16..].to_vec()].concat();
    let mut decryption = Decryption::new(&key);
    assert_eq!(serve(&mut decryption, &whole).expect("served"), unhex(TEXT));
    *whole.last_mut().expect("not empty") ^= 1;
    assert_eq!(serve(&mut decryption, &whole), Err(Refused::Padding));
}

#[test]
fn there_and_back_for_every_length() {
    let mut encryption = Encryption::new(&[1; 32], &[2; 32]);
    let mut decryption = Decryption::new(&[1; 32]);
    for length in 0..=4_096 {
        let message = noise(length, length as u64);
        let sealed = serve(&mut encryption, &message).expect("encrypted");
        assert_eq!(sealed.len(), 32 + length / 16 * 16);
        assert_eq!(serve(&mut decryption, &sealed).expect("decrypted"), message);
    }
}

#[test]
fn no_two_messages_look_alike() {
    let mut encryption = Encryption::new(&[1; 32], &[2; 32]);
    let replies: HashSet<Vec<u8>> =
        (0..1_000).map(|_| serve(&mut encryption, b"the same").expect("encrypted")).collect();
    let vectors: HashSet<&[u8]> = replies.iter().map(|reply| &reply[..16]).collect();
    let blocks: HashSet<&[u8]> = replies.iter().map(|reply| &reply[16..]).collect();
    assert_eq!((vectors.len(), blocks.len()), (1_000, 1_000));
    let other = serve(&mut Encryption::new(&[1; 32], &[3; 32]), b"the same").expect("encrypted");
    assert!(!vectors.contains(&other[..16]), "another vector key, other vectors");
}

#[test]
fn lengths_that_no_message_has_are_refused() {
    let mut decryption = Decryption::new(&[1; 32]);
    for length in (0..70).filter(|&length| length < 32 || length % 16 != 0) {
        let refused = Err(Refused::Length { found: length, multiple: 16 });
        assert_eq!(serve(&mut decryption, &vec![7; length]), refused);
    }
}

/// Bytes a nanosecond of the fastest of many short windows: other work on the machine can only make one slower.
fn fastest(service: &mut dyn Service, request: &[u8]) -> f64 {
    let mut reply = vec![0; service.reply_len_max(request.len())];
    let windows = (0..2_000).map(|_| {
        let start = Instant::now();
        service.serve(request, &mut reply).expect("served");
        request.len() as f64 / start.elapsed().as_nanos() as f64
    });
    windows.fold(0.0, f64::max)
}

/// The crate decides by itself whether it uses the processor's instructions; that it does shows in its speed alone.
/// Measured: 0.03 bytes a nanosecond without them, because the constant-time code computes four blocks to use one; with
/// them 0.27 in a build for tests on a busy machine, and 0.7 in one for use.
const ACCELERATED_BYTES_PER_NS: f64 = 0.08;

#[test]
#[cfg_attr(miri, ignore = "a measurement")]
fn the_processors_instructions_are_used() {
    if !Encryption::is_accelerated() {
        println!("this processor has no AES instructions: nothing to find");
        return;
    }
    let mut encryption = Encryption::new(&[1; 32], &[2; 32]);
    let message = noise(4_096, 1);
    let sealed = serve(&mut encryption, &message).expect("encrypted");
    let there = fastest(&mut encryption, &message);
    let back = fastest(&mut Decryption::new(&[1; 32]), &sealed);
    println!("AES-256-CBC, 4,096 bytes: encryption {there:.2}, decryption {back:.2} bytes/ns");
    assert!(there > ACCELERATED_BYTES_PER_NS, "{there:.3} bytes/ns: that is software's speed");
}
