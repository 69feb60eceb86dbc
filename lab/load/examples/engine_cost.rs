//! What the generator itself costs per request, without any transport: the engine is driven with
//! answers that are there at once. `cargo run --release -p load --example engine_cost`

use std::sync::Arc;
use std::time::Instant;

use load::{
    Conditions, Engine, LoadConfig, LoadReport, Mode, Phase, RequestKind, Sender, Workload,
    WorkloadConfig,
};

/// Answers every GET with the key's value and every SET with `STORED`.
struct AtOnce<'a> {
    workload: &'a Workload,
    /// Connections with an answer, and where its bytes end.
    answers: Vec<(u32, usize)>,
    bytes: Vec<u8>,
}

impl Sender for AtOnce<'_> {
    fn send(&mut self, connection: u32, bytes: &[u8]) -> usize {
        // The requests of one send stand one after the other; GETs have no body.
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|&b| b == b'\n') {
            let line = &rest[..end - 1];
            rest = &rest[end + 1..];
            let key_text = line[4..].split(|&b| b == b' ').next().unwrap_or_default();
            let key = key_text[1..].iter().fold(0u32, |n, d| n * 10 + u32::from(d - b'0'));
            let request = load::Request { kind: RequestKind::Get, key };
            let value = self.workload.content(request);
            if line.starts_with(b"get ") {
                self.bytes.extend_from_slice(b"VALUE ");
                self.bytes.extend_from_slice(key_text);
                self.bytes.extend_from_slice(b" 0 2\r\n");
                self.bytes.extend_from_slice(value);
                self.bytes.extend_from_slice(b"\r\nEND\r\n");
            } else {
                rest = &rest[value.len() + 2..];
                self.bytes.extend_from_slice(b"STORED\r\n");
            }
        }
        self.answers.push((connection, self.bytes.len()));
        bytes.len()
    }

    fn abort(&mut self, _: u32) {}
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for (mode, connections) in [
        (Mode::open(1_000_000.0), 16),
        (Mode::open(1_000_000.0), 10_000),
        (Mode::open(2_000_000.0), 10_000),
        (Mode::closed(1), 10_000),
    ] {
        let mut config = LoadConfig::new(WorkloadConfig::usr());
        config.mode = mode;
        config.connections = connections;
        let workload = Arc::new(Workload::new(&config.workload, config.seed)?);
        let mut engine = Engine::new(&config, Arc::clone(&workload))?;
        (0..connections).for_each(|connection| engine.on_opened(connection));
        let mut network = AtOnce { workload: &workload, answers: Vec::new(), bytes: Vec::new() };
        let mut answers = Vec::new();
        let mut bytes = Vec::new();
        let origin = Instant::now();
        let now_ns = || origin.elapsed().as_nanos() as u64;
        engine.start(now_ns());
        while engine.poll(now_ns(), &mut network).phase != Phase::Done {
            std::mem::swap(&mut answers, &mut network.answers);
            std::mem::swap(&mut bytes, &mut network.bytes);
            let mut from = 0;
            for (connection, end) in answers.drain(..) {
                engine.on_received(connection, &bytes[from..end], now_ns(), &mut network);
                from = end;
            }
            bytes.clear();
        }
        let measured = engine.finish(now_ns());
        let conditions = Conditions::new(&config, "answers at once", "no network", "spin");
        println!("{}", LoadReport::new(&config, conditions, &measured).to_table());
    }
    Ok(())
}
