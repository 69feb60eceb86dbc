//! GET hits through `Session::feed` and nothing else, to be counted:
//!
//! ```sh
//! cargo build --release -p kv --example get_hits
//! valgrind --tool=callgrind --toggle-collect='*measured*' target/release/examples/get_hits 10000 30 100
//! ```
//!
//! Arguments: requests, key bytes, value bytes. The count divided by the requests is the instructions
//! of one GET hit, the copy into the output included.

use kv::{Flow, Output, Session, Store, StoreConfig, WallTime};

const NOW: WallTime = WallTime::from_unix_s(1_800_000_000);

/// A transmit buffer that starts over with every request.
struct Buffer {
    bytes: Box<[u8]>,
    len: usize,
}

impl Output for Buffer {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

#[inline(never)]
fn measured(store: &Store, session: &mut Session, request: &[u8], out: &mut Buffer, times: usize) {
    for _ in 0..times {
        out.len = 0;
        if session.feed(store, NOW, request, out) == Flow::Close {
            break;
        }
    }
}

fn main() {
    let argument = |nth: usize, otherwise: usize| {
        std::env::args().nth(nth).and_then(|text| text.parse().ok()).unwrap_or(otherwise)
    };
    let (times, key_len, value_len) = (argument(1, 1_000_000), argument(2, 30), argument(3, 100));
    let store = match Store::new(StoreConfig::default(), [1, 2]) {
        Ok(store) => store,
        Err(error) => return eprintln!("the store can't be made: {error}"),
    };
    let mut session = Session::new();
    let key = "k".repeat(key_len.clamp(1, 250));
    let set = format!("set {key} 0 0 {value_len}\r\n{}\r\n", "v".repeat(value_len));
    let mut out = Buffer { bytes: vec![0; 2 * value_len + 1024].into_boxed_slice(), len: 0 };
    let _ = session.feed(&store, NOW, set.as_bytes(), &mut out);
    let request = format!("get {key}\r\n");
    let before = std::time::Instant::now();
    measured(&store, &mut session, request.as_bytes(), &mut out, times);
    let each_ns = before.elapsed().as_nanos() as f64 / times.max(1) as f64;
    println!(
        "{times} GETs, key {key_len} B, value {value_len} B: {each_ns:.0} ns each, {} B reply",
        out.len
    );
}
