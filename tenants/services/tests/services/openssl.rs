//! AES-256-CBC against the `openssl` command, both ways.

use std::process::Command;

use services::{Decryption, Encryption};

use crate::packets::serve;
use crate::tools::{available, noise, run_with_input};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn openssl(direction: &str, key: &[u8], vector: &[u8], input: &[u8]) -> Vec<u8> {
    let mut command = Command::new("openssl");
    command.args(["enc", direction, "-aes-256-cbc", "-K", &hex(key), "-iv", &hex(vector)]);
    run_with_input(&mut command, input)
}

#[test]
#[cfg_attr(miri, ignore = "starts a program")]
fn openssl_decrypts_what_we_encrypt_and_encrypts_the_same() {
    if !available("openssl", &["version"]) {
        return;
    }
    let key: [u8; 32] = noise(32, 1).try_into().expect("32 bytes");
    let vector_key: [u8; 32] = noise(32, 2).try_into().expect("32 bytes");
    let mut encryption = Encryption::new(&key, &vector_key);
    let mut decryption = Decryption::new(&key);
    // Every length around the first blocks, then one in 59, which meets every remainder by 16; and the largest.
    let lengths = (0..=50).chain((51..4_095).step_by(59)).chain([4_095, 4_096]);
    for length in lengths {
        let message = noise(length, 100 + length as u64);
        let reply = serve(&mut encryption, &message).expect("encrypted");
        let (vector, text) = reply.split_at(16);
        assert_eq!(openssl("-d", &key, vector, text), message, "{length} bytes: their decryption");
        let theirs = openssl("-e", &key, vector, &message);
        assert_eq!(theirs, text, "{length} bytes: the same cipher text");
        let back = serve(&mut decryption, &[vector, &theirs].concat()).expect("decrypted");
        assert_eq!(back, message, "{length} bytes: our decryption of theirs");
    }
}
