//! What starter and dataplane say to each other over the control socket.

use endpoint::{Answer, Ask};
use nic::Interface;
use serde::{Deserialize, Serialize};
use tailplane::MacAddr;

use super::passed_table::{self, PassedTable};
use super::plan::Pair;
use crate::config::{App, RunConfig};

/// What a starter says to its dataplane.
#[derive(Debug, Serialize, Deserialize)]
pub enum Order {
    /// At first. With the packet memory, the domain's socket where there is an application, and the wire's
    /// descriptors.
    Start(Start),
    /// The starter has bound the queues that it passed, and let go of all.
    Alone,
    /// What became of the request of this number: [`Told::Table`].
    Table {
        /// The number.
        number: u64,
        /// What became of it.
        answer: passed_table::Answer,
    },
    /// A request for the elastic threads, with the starter's number. [`Told::Steered`] answers it.
    Steer(Ask),
    /// Where each elastic thread and the application's thread that serves it are to run, in the threads' order. The
    /// next such order says so again: nobody hears what became of this one.
    Place(Vec<Pair>),
}

/// What a dataplane needs to know and cannot look up.
#[derive(Debug, Serialize, Deserialize)]
pub struct Start {
    /// The text of the configuration.
    pub config: String,
    /// What is served: a program that the command line named stands in no text.
    pub app: App,
    /// The first port.
    pub port: u16,
    /// The processors of the elastic threads, where they have some.
    pub cpus: Vec<usize>,
    /// Their real-time priority; 0: none.
    pub realtime: u8,
    /// What it is to do.
    pub role: Role,
    /// What kind of wire came.
    pub wire: PassedWire,
}

impl Start {
    /// With what is served, processors and priority as they are in `config`, whatever its text says.
    pub fn of(config: &RunConfig, role: Role, wire: PassedWire) -> Self {
        let (cpus, realtime) = (config.dataplane.cpus.clone(), config.dataplane.realtime());
        let (app, port) = (config.service.app, config.service.port());
        Self { config: config.text.clone(), app, port, cpus, realtime, role, wire }
    }
}

/// What a dataplane is to do.
#[derive(Debug, Serialize, Deserialize)]
pub enum Role {
    /// Serve, for an application of this program (its name is for errors).
    Serve {
        /// The program's name.
        program: String,
    },
    /// Reset what arrives and whom the register names, for a dataplane that was killed.
    Farewell,
}

/// How an [`Interface`] is passed whose queues are: `#[serde(with = "PassedInterface")]`.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Interface")]
#[expect(missing_docs, reason = "as there")]
pub struct PassedInterface {
    pub name: String,
    pub index: u32,
    #[serde(with = "PassedAddress")]
    pub mac: MacAddr,
    pub mtu: usize,
    pub hardware_type: u16,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "MacAddr")]
struct PassedAddress([u8; 6]);

/// A wire that was passed.
#[derive(Debug, Serialize, Deserialize)]
pub enum PassedWire {
    /// The register of peers, and a socket for each queue.
    AfXdp {
        /// The interface: its name is for errors, its index where it is.
        #[serde(with = "PassedInterface")]
        interface: Interface,
        /// How many queues there are.
        queues: u32,
        /// Chunks that the kernel is to hold for reception, of each queue.
        rx_buffers: u32,
        /// Bytes of each chunk of packet memory.
        chunk_bytes: usize,
        /// Largest IP packet that is sent, in bytes.
        mtu_bytes: u16,
        /// Chunks that a frame with one takes at most.
        frame_chunks: u8,
        /// Largest IP packet that is received, in bytes.
        receive_mtu_bytes: u16,
        /// Whether the device completes the checksums of what is sent.
        tx_checksum_offload: bool,
        /// The indirection table that chooses among the queues, where there is one.
        table: Option<PassedTable>,
    },
    /// Memory and two bells.
    Shm,
}

/// What a dataplane tells its starter.
#[derive(Debug, Serialize, Deserialize)]
pub enum Told {
    /// The rings of the queues that were passed are mapped: they may be bound.
    Mapped,
    /// To be done with the indirection table, and answered by [`Order::Table`].
    Table {
        /// A number of its own.
        number: u64,
        /// What.
        request: passed_table::Request,
    },
    /// What arrives is served from now on. With the descriptor of the statistics segment.
    Ready {
        /// Whether flow groups can be moved: where the threads go on without their application, which runs anywhere.
        movable: bool,
    },
    /// What became of a request.
    Steered(Answer),
    /// It has ended as it was to.
    Ended,
    /// It has not; each cause after what it caused.
    Failed(Vec<String>),
    /// The same, because its application has not joined.
    NotJoined(Vec<String>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_the_command_line_is_what_is_served_whatever_the_text_says() {
        let mut config = RunConfig::parse("[service]\napp = \"kv\"\n").expect("a service");
        let role = || Role::Serve { program: "mine".into() };
        let said = |config: &RunConfig| {
            let start = Start::of(config, role(), PassedWire::Shm);
            let words = serde_json::to_string(&start).expect("a message");
            let start = serde_json::from_str::<Start>(&words).expect("the same");
            (start.app, start.port)
        };
        assert_eq!(said(&config), (App::Kv, 11_211));
        // As `tailplane run kv.toml -- PROGRAM` does: the port stays.
        (config.service.app, config.service.port) = (App::Program, Some(config.service.port()));
        assert_eq!(said(&config), (App::Program, 11_211));
    }
}
