//! Opens half a million connections between two dataplanes in one process, and uses them.
//!
//! ```text
//! connections                          500,000 connections, 100,000 echoes
//! connections --connections 1000000
//! ```

use std::process::ExitCode;

use bench::connections::{IDLE_BYTES_LIMIT, run};
use clap::Parser;

/// Opens many connections in memory, tells what each costs, and has echoes on a sample of them.
#[derive(Parser)]
struct Arguments {
    /// Established connections.
    #[arg(long, default_value_t = 500_000, value_parser = clap::value_parser!(u32).range(1..=1_500_000))]
    connections: u32,
    /// Connections that one echo each is sent on.
    #[arg(long, default_value_t = 100_000)]
    sample: u32,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let found = run(arguments.connections as usize, arguments.sample as usize)?;
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&found)?);
    } else {
        println!(
            "driver loopback, inline domain, run-to-completion, B 64, both ends in one thread"
        );
        println!("connections open          {}", found.connections);
        println!("opened in                 {:.2} s", found.opening_s);
        println!("bytes each, server        {:.1}", found.server_bytes);
        println!("bytes each, client        {:.1}", found.client_bytes);
        if let Some(resident) = found.resident_bytes {
            println!("resident bytes each       {resident:.1} (both ends, services included)");
        }
        println!("echoed on                 {}", found.echoed);
        println!("server echoes/s, all open {:.0}", found.echoes_per_s_all);
        println!("server echoes/s, 64 open  {:.0}", found.echoes_per_s_few);
        println!(
            "ratio                     {:.2}",
            found.echoes_per_s_all / found.echoes_per_s_few
        );
    }
    let within = found.server_bytes <= IDLE_BYTES_LIMIT;
    if !within {
        eprintln!(
            "{:.1} bytes per idle connection: over the limit of {IDLE_BYTES_LIMIT}",
            found.server_bytes
        );
    }
    Ok(if within { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
