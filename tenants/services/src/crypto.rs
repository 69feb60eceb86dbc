//! Crypto forwarding (HyperPlane §V-A): AES-256 in CBC mode (NIST SP 800-38A §6.2).
//!
//! Encryption: the request is the message, of any length, also none; the reply is the initialisation vector (16 bytes)
//! and the message encrypted with its padding (PKCS#7, RFC 5652 §6.3: 1 to 16 bytes). Decryption is the opposite.
//!
//! ```
//! use services::{Decryption, Encryption, Service};
//!
//! // Both keys from the operating system's random generator, fresh at each start.
//! # let (key, vector_key) = ([1; 32], [2; 32]);
//! let mut encryption = Encryption::new(&key, &vector_key);
//! let mut sealed = vec![0; encryption.reply_len_max(5)];
//! let length = encryption.serve(b"hello", &mut sealed)?;
//! assert_eq!(length, 16 + 16);
//! let mut message = vec![0; 32];
//! let length = Decryption::new(&key).serve(&sealed, &mut message)?;
//! assert_eq!(&message[..length], b"hello");
//! # Ok::<(), services::Refused>(())
//! ```
//!
//! CBC needs vectors that nobody can foretell. They are made as SP 800-38A appendix C has it: a counter, which never
//! repeats, encrypted; under a key of its own, so that no message block ever meets the same permutation.
//!
//! **CBC hides, it does not protect from changes**: who can send messages to [`Decryption`] can alter them, and learn
//! their text if he is told which ones had wrong padding. Where an enemy can do that, authenticate the reply.
//!
//! The `aes` crate looks for AES-NI when a key is set up, and falls back to code in constant time. `is_accelerated`
//! says what it finds; a test measures it.

use aes::cipher::{
    Array, BlockCipherEncrypt, BlockModeDecrypt, BlockModeEncrypt, InnerIvInit, KeyInit,
    block_padding::Pkcs7,
};
use aes::{Aes256Dec, Aes256Enc};

use crate::refused::Refused;
use crate::service::{Service, room};

/// Bytes of a key.
pub const KEY_LEN: usize = 32;
/// Bytes of a block and of an initialisation vector.
const BLOCK_LEN: usize = 16;

/// Encrypts messages under one key. Its key schedules are overwritten when it is dropped.
pub struct Encryption {
    messages: Aes256Enc,
    vectors: Aes256Enc,
    /// Number of the next message: the nonce whose encryption is its vector.
    next: u64,
}

impl Encryption {
    /// Encrypts under `key`, with vectors made under `vector_key`. Both must be secret and different. `vector_key` must
    /// be drawn anew for each `Encryption` made with the same `key`: the counter behind the vectors starts at zero, and
    /// equal vectors show which messages begin alike.
    pub fn new(key: &[u8; KEY_LEN], vector_key: &[u8; KEY_LEN]) -> Self {
        let [messages, vectors] = [key, vector_key].map(|key| Aes256Enc::new(&Array(*key)));
        Self { messages, vectors, next: 0 }
    }

    /// Whether this processor's AES instructions are used: the `aes` crate decides by the same question, unless it was
    /// built with `--cfg aes_backend="soft"`.
    pub fn is_accelerated() -> bool {
        #[cfg(target_arch = "x86_64")]
        return std::arch::is_x86_feature_detected!("aes");
        #[cfg(target_arch = "aarch64")]
        return std::arch::is_aarch64_feature_detected!("aes");
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        return false;
    }
}

impl Service for Encryption {
    fn name(&self) -> &'static str {
        "encryption"
    }

    fn serve(&mut self, request: &[u8], reply: &mut [u8]) -> Result<usize, Refused> {
        let length = self.reply_len_max(request.len());
        let out = room(reply, length)?;
        let next = self.next.checked_add(1).ok_or(Refused::KeyExhausted)?;
        let mut vector = Array([0; BLOCK_LEN]);
        vector[..8].copy_from_slice(&self.next.to_be_bytes());
        self.vectors.encrypt_block(&mut vector);
        let (vector_out, text) = out.split_at_mut(BLOCK_LEN);
        vector_out.copy_from_slice(&vector);
        cbc::Encryptor::inner_iv_init(&self.messages, &vector)
            .encrypt_padded_b2b::<Pkcs7>(request, text)
            .map_err(|_| Refused::ReplyRoom { needed: length, room: length })?;
        self.next = next;
        Ok(length)
    }

    fn reply_len_max(&self, request_len: usize) -> usize {
        BLOCK_LEN + (request_len / BLOCK_LEN + 1) * BLOCK_LEN
    }
}

/// Decrypts what [`Encryption`] made. Its key schedule is overwritten when it is dropped.
pub struct Decryption {
    messages: Aes256Dec,
}

impl Decryption {
    /// Decrypts under `key`.
    pub fn new(key: &[u8; KEY_LEN]) -> Self {
        Self { messages: Aes256Dec::new(&Array(*key)) }
    }
}

impl Service for Decryption {
    fn name(&self) -> &'static str {
        "decryption"
    }

    fn serve(&mut self, request: &[u8], reply: &mut [u8]) -> Result<usize, Refused> {
        let (vector, text) = request
            .split_first_chunk::<BLOCK_LEN>()
            .filter(|(_, text)| !text.is_empty() && text.len().is_multiple_of(BLOCK_LEN))
            .ok_or(Refused::Length { found: request.len(), multiple: BLOCK_LEN })?;
        let out = room(reply, text.len())?;
        cbc::Decryptor::inner_iv_init(&self.messages, &Array(*vector))
            .decrypt_padded_b2b::<Pkcs7>(text, out)
            .map(<[u8]>::len)
            .map_err(|_| Refused::Padding)
    }

    fn reply_len_max(&self, request_len: usize) -> usize {
        // The last block, padding, is written before it is known to be that.
        request_len.saturating_sub(BLOCK_LEN)
    }
}
